//! The headers that every response has.

use axum::response::Response;
use http::header::HeaderName;
use http::{HeaderValue, header};

/// What pages may load: our own stylesheet and picture. No script but where a page says so itself.
const CONTENT: &str = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// The same with our script, and what it asks.
pub(crate) const CONTENT_WITH_SCRIPT: &str = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; script-src 'self'; connect-src 'self'";

/// What every response has, unless it says otherwise itself. The referrer goes to our own pages only: without any,
/// browsers would not say either which page sent a form.
const HEADERS: [(HeaderName, &str); 7] = [
    (header::CONTENT_SECURITY_POLICY, CONTENT),
    (header::CACHE_CONTROL, "no-store"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "same-origin"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
];

/// A response with the headers that every one has.
pub(crate) fn protected(mut response: Response) -> Response {
    for (name, value) in HEADERS {
        let headers = response.headers_mut();
        if !headers.contains_key(&name) {
            headers.insert(name, HeaderValue::from_static(value));
        }
    }
    response
}
