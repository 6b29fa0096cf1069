//! The gateway as an OAuth 2.0 protected resource (RFC 9728), and its 401.

use axum::http::header;
use axum::response::{IntoResponse, Response};
use wardgate_edge::TokenRefusal;

use super::{not_found, problem};
use crate::Gateway;

/// Where metadata begins; the path of the resource follows (RFC 9728, section 3.1).
pub(super) const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// `GET /.well-known/oauth-protected-resource[/path]`: open to everyone, and to web pages. It is the same for whatever
/// upstream or toolset a path names, so it tells nobody which there are.
pub(super) fn protected_resource(gateway: &Gateway, path: &str) -> Response {
    let Some(resource) = resource_at(path) else {
        return not_found();
    };
    let issuers: Vec<&str> = gateway
        .config
        .auth
        .issuers
        .iter()
        .map(|issuer| issuer.issuer.as_str())
        .collect();
    let document = serde_json::json!({
        "resource": format!("{}{resource}", gateway.public_url()),
        "resource_name": "Wardgate",
        "authorization_servers": issuers,
        "bearer_methods_supported": ["header"],
    });
    let headers = [
        (header::CONTENT_TYPE, "application/json"),
        (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
    ];
    (headers, document.to_string()).into_response()
}

/// 401 with the way to a token (RFC 6750 §3, RFC 9728 §5.1).
pub(super) fn unauthorized(gateway: &Gateway, refusal: &TokenRefusal, path: &str) -> Response {
    // Messages of HTTP+SSE belong to its stream.
    let path = if path.starts_with("/messages") {
        "/sse"
    } else {
        path
    };
    let resource = resource_at(path).unwrap_or("/mcp");
    let metadata = format!("{}{WELL_KNOWN}{resource}", gateway.public_url());
    let mut response = problem(refusal.status(), refusal.reason(), &refusal.description());
    response
        .headers_mut()
        .insert(header::WWW_AUTHENTICATE, refusal.challenge(Some(&metadata)));
    response
}

/// The resource at `path`: one of those that take tokens, by a name that needs no quoting. Without a path it is the
/// caller's whole view.
fn resource_at(path: &str) -> Option<&str> {
    let is_name = |name: &str| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        !name.is_empty() && name.bytes().all(is_plain)
    };
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    match segments.as_slice() {
        [] | [""] => Some("/mcp"),
        ["mcp" | "message" | "sse"] => Some(path),
        ["mcp", name] | ["mcp", "upstream", name] if is_name(name) => Some(path),
        _ => None,
    }
}
