//! What a browser asks before it lets a page of a welcome origin call (Fetch standard, "CORS protocol").

use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode, header};

use crate::Origins;

/// What pages of a welcome origin may do: names with commas between them.
#[derive(Debug, Clone, Copy)]
pub struct Grants {
    /// The methods they may use.
    pub methods: &'static str,
    /// The headers they may send.
    pub request_headers: &'static str,
    /// The headers they may read.
    pub response_headers: &'static str,
}

impl Grants {
    /// Lets the page of `origin` read a response.
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

    /// Answers a preflight, or says why its page may not call. A preflight carries no token, and gives nothing but
    /// the permission to ask.
    pub fn preflight(&self, origins: &Origins, request: &Parts) -> Result<Response, String> {
        origins.check(&request.uri, &request.headers)?;
        let mut response = StatusCode::NO_CONTENT.into_response();
        self.allow(origins.welcome(request), response.headers_mut());
        Ok(response)
    }
}
