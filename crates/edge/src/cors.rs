//! What a browser asks before it lets a page of a welcome origin call (Fetch standard, "CORS protocol").

use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use crate::Origins;

/// What pages of a welcome origin may do: names with commas between them.
#[derive(Debug, Clone, Copy)]
pub struct Grants {
    /// The methods they may use.
    pub methods: &'static str,
    /// The headers they may send.
    pub request_headers: &'static str,
    /// How the names of further headers begin that they may send.
    pub request_prefix: Option<&'static str>,
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

    /// The headers they may send, with those among them of the prefix that the page asks for.
    fn with_asked_for(&self, request: &HeaderMap) -> Option<HeaderValue> {
        let prefix = self.request_prefix?;
        let requested = request.get(header::ACCESS_CONTROL_REQUEST_HEADERS)?;
        let mut all = self.request_headers.to_owned();
        for name in requested.to_str().ok()?.split(',').map(str::trim) {
            // A name that is none would be an answer of its own.
            let name = HeaderName::from_bytes(name.as_bytes()).ok();
            if let Some(name) = name.filter(|name| name.as_str().starts_with(prefix)) {
                all.push_str(", ");
                all.push_str(name.as_str());
            }
        }
        HeaderValue::try_from(all).ok()
    }
}
