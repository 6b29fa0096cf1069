//! Requests to a service.

use bytes::Bytes;
use http::Method;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use url::Url;

/// A request that is sent by [`Egress`](super::Egress). The type does not implement `Debug`, because URL and body can
/// contain arguments.
#[derive(Clone)]
pub struct EgressRequest {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) open_ended: bool,
}

impl EgressRequest {
    /// Creates a request without headers and body.
    pub fn new(method: Method, url: Url) -> Self {
        Self {
            method,
            url,
            headers: HeaderMap::new(),
            body: Bytes::new(),
            open_ended: false,
        }
    }

    /// Sets a header and replaces an existing one of that name.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// Sets the body and its content type.
    #[must_use]
    pub fn body(self, content_type: &'static str, body: impl Into<Bytes>) -> Self {
        let mut request = self.header(CONTENT_TYPE, HeaderValue::from_static(content_type));
        request.body = body.into();
        request
    }

    /// Allows the response to be an endless stream: the time limit applies to its headers only, and the total size of
    /// its chunks is not limited.
    #[must_use]
    pub fn open_ended(mut self) -> Self {
        self.open_ended = true;
        self
    }

    pub(super) fn into_reqwest(self) -> reqwest::Request {
        let mut request = reqwest::Request::new(self.method, self.url);
        *request.headers_mut() = self.headers;
        if !self.body.is_empty() {
            *request.body_mut() = Some(self.body.into());
        }
        request
    }
}
