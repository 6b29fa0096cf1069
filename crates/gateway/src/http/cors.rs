//! What a browser asks before it lets a page of a welcome origin call (Fetch standard, "CORS protocol").

use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::{origin, problem};
use crate::config::Config;

/// Methods, request headers and response headers of MCP.
const GRANTS: [(HeaderName, &str); 4] = [
    (header::ACCESS_CONTROL_ALLOW_METHODS, "POST"),
    (
        header::ACCESS_CONTROL_ALLOW_HEADERS,
        "authorization, content-type, accept, mcp-protocol-version, mcp-method, mcp-name, mcp-session-id, last-event-id",
    ),
    (header::ACCESS_CONTROL_EXPOSE_HEADERS, "www-authenticate"),
    (header::ACCESS_CONTROL_MAX_AGE, "600"),
];

/// The origin of a request, if pages of it may call.
pub(super) fn welcome(config: &Config, request: &Parts) -> Option<HeaderValue> {
    let origin = request.headers.get(header::ORIGIN)?;
    origin::check(config, &request.uri, &request.headers)
        .is_ok()
        .then(|| origin.clone())
}

/// Lets the page of `origin` read a response.
pub(super) fn allow(origin: Option<HeaderValue>, headers: &mut HeaderMap) {
    let Some(origin) = origin else { return };
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::VARY, HeaderValue::from_static("origin"));
    for (name, value) in GRANTS {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

/// Answers a preflight; it carries no token, and gives nothing but the permission to ask.
pub(super) fn preflight(config: &Config, request: &Parts) -> Response {
    match origin::check(config, &request.uri, &request.headers) {
        Ok(()) => {
            let mut response = StatusCode::NO_CONTENT.into_response();
            allow(welcome(config, request), response.headers_mut());
            response
        }
        Err(what) => problem(StatusCode::FORBIDDEN, "origin_refused", &what),
    }
}
