//! Cross-origin requests of browsers (Fetch standard, "CORS protocol").

use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use crate::Origins;

/// The permissions of pages with an allowed origin, as comma-separated names.
#[derive(Debug, Clone, Copy)]
pub struct Grants {
    /// The methods that pages may use.
    pub methods: &'static str,
    /// The headers that pages may send.
    pub request_headers: &'static str,
    /// The prefix of the names of further headers that pages may send.
    pub request_prefix: Option<&'static str>,
    /// The headers that pages may read.
    pub response_headers: &'static str,
}

impl Grants {
    /// Allows the page of `origin` to read a response.
    pub fn allow(&self, origin: Option<HeaderValue>, headers: &mut HeaderMap) {
        let Some(origin) = origin else { return };
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::VARY, HeaderValue::from_static("origin"));
        for (name, value) in [
            (header::ACCESS_CONTROL_ALLOW_METHODS, self.methods),
            (header::ACCESS_CONTROL_ALLOW_HEADERS, self.request_headers),
            (header::ACCESS_CONTROL_EXPOSE_HEADERS, self.response_headers),
            (header::ACCESS_CONTROL_MAX_AGE, "600"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
    }

    /// Answers a preflight request, or returns the reason why its page may not call. A preflight carries no token, and
    /// its response grants only the permission to send the request.
    pub fn preflight(&self, origins: &Origins, request: &Parts) -> Result<Response, String> {
        origins.check(&request.uri, &request.headers)?;
        let mut response = StatusCode::NO_CONTENT.into_response();
        let origin = origins.allowed_origin(request);
        let is_allowed = origin.is_some();
        self.allow(origin, response.headers_mut());
        if is_allowed && let Some(headers) = self.with_asked_for(&request.headers) {
            response
                .headers_mut()
                .insert(header::ACCESS_CONTROL_ALLOW_HEADERS, headers);
        }
        Ok(response)
    }

    /// Returns the headers that a page may send, including those that it requests and that have the allowed prefix.
    fn with_asked_for(&self, request: &HeaderMap) -> Option<HeaderValue> {
        let prefix = self.request_prefix?;
        let requested = request.get(header::ACCESS_CONTROL_REQUEST_HEADERS)?;
        let mut all = self.request_headers.to_owned();
        for name in requested.to_str().ok()?.split(',').map(str::trim) {
            // An invalid header name must not be copied into the response.
            let name = HeaderName::from_bytes(name.as_bytes()).ok();
            if let Some(name) = name.filter(|name| name.as_str().starts_with(prefix)) {
                all.push_str(", ");
                all.push_str(name.as_str());
            }
        }
        HeaderValue::try_from(all).ok()
    }
}
