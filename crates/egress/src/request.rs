//! A request to a service.

use bytes::Bytes;
use http::Method;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use url::Url;

/// Made by its caller, sent by [`Egress`](super::Egress). Not shown: its URL and body can hold arguments.
#[derive(Clone)]
pub struct EgressRequest {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) open_ended: bool,
}

impl EgressRequest {
    /// Without headers and body.
    pub fn new(method: Method, url: Url) -> Self {
        Self {
            method,
            url,
            headers: HeaderMap::new(),
            body: Bytes::new(),
            open_ended: false,
        }
    }

    /// Sets one header, in place of another of that name.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// Sets the body and what it is.
    #[must_use]
    pub fn body(self, content_type: &'static str, body: impl Into<Bytes>) -> Self {
        let mut request = self.header(CONTENT_TYPE, HeaderValue::from_static(content_type));
        request.body = body.into();
        request
    }

    /// Lets the response be a stream without end: the time limit covers no more than its headers, and the
    /// sum of its chunks has no limit.
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
