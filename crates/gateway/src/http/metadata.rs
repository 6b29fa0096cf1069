//! The gateway as an OAuth 2.0 protected resource (RFC 9728), and its 401.

use axum::http::header;
use axum::response::{IntoResponse, Response};
use wardgate_edge::TokenRefusal;

use super::problem;
use crate::Gateway;

/// `GET /.well-known/oauth-protected-resource[/mcp]`: open to everyone, and to web pages.
pub(super) fn protected_resource(gateway: &Gateway) -> Response {
    let issuers: Vec<&str> = gateway
        .config
        .auth
        .issuers
        .iter()
        .map(|issuer| issuer.issuer.as_str())
        .collect();
    let document = serde_json::json!({
        "resource": format!("{}/mcp", gateway.public_url()),
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
pub(super) fn unauthorized(gateway: &Gateway, refusal: &TokenRefusal) -> Response {
    let metadata = format!(
        "{}/.well-known/oauth-protected-resource/mcp",
        gateway.public_url()
    );
    let mut response = problem(refusal.status(), refusal.reason(), &refusal.description());
    response
        .headers_mut()
        .insert(header::WWW_AUTHENTICATE, refusal.challenge(Some(&metadata)));
    response
}
