//! HTTP: every path in one list, and what each request passes before it is read.

mod metadata;
mod post;

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use wardgate_edge::Grants;
use wardgate_mcp::header::PARAM_PREFIX;
use wardgate_mcp_server::{Answer, RpcError};

use crate::Gateway;
use crate::post::Transport;

/// Methods, request headers and response headers of MCP.
const GRANTS: Grants = Grants {
    methods: "GET, POST, DELETE",
    request_headers: "authorization, content-type, accept, mcp-protocol-version, mcp-method, mcp-name, mcp-session-id, last-event-id, idempotency-key",
    // Mirrored headers; each tool says which it has.
    request_prefix: Some(PARAM_PREFIX),
    response_headers: "www-authenticate, mcp-session-id, retry-after",
};

/// The kind of endpoint that a path leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Endpoint {
    /// Messages that the gateway answers itself.
    Messages(Transport),
    /// The beginning of an HTTP+SSE stream.
    Sse,
}

/// Every path that takes tokens, and nothing else.
const ENDPOINTS: [(&str, Endpoint); 7] = [
    ("/mcp", Endpoint::Messages(Transport::Mcp)),
    ("/mcp/{toolset}", Endpoint::Messages(Transport::Mcp)),
    ("/mcp/upstream/{source}", Endpoint::Messages(Transport::Mcp)),
    ("/message", Endpoint::Messages(Transport::Message)),
    ("/sse", Endpoint::Sse),
    ("/messages/", Endpoint::Messages(Transport::Sse)),
    ("/messages", Endpoint::Messages(Transport::Sse)),
];

/// Every path for clients.
pub(crate) fn router(gateway: &Arc<Gateway>) -> Router {
    let route = |endpoint: Endpoint| {
        let gateway = Arc::clone(gateway);
        let preflight = {
            let gateway = Arc::clone(&gateway);
            move |request: Parts| async move {
                GRANTS
                    .preflight(&gateway.origins, &request)
                    .unwrap_or_else(|what| problem(StatusCode::FORBIDDEN, "origin_refused", &what))
            }
        };
        any(move |request| post::handle(gateway, endpoint, request)).options(preflight)
    };
    let metadata = {
        let gateway = Arc::clone(gateway);
        get(move |request: Parts| async move {
            let path = request.uri.path();
            let path = path.strip_prefix(metadata::WELL_KNOWN);
            metadata::protected_resource(&gateway, path.unwrap_or_default())
        })
        .options(|| async { metadata::preflight() })
    };
    let authorization_server = {
        let gateway = Arc::clone(gateway);
        get(move || async move { metadata::authorization_server(&gateway) })
            .options(|| async { metadata::preflight() })
    };
    let endpoints = ENDPOINTS.into_iter();
    endpoints
        .fold(Router::new(), |router, (path, endpoint)| {
            router.route(path, route(endpoint))
        })
        .route(metadata::WELL_KNOWN, metadata.clone())
        .route("/.well-known/oauth-protected-resource/{*path}", metadata)
        .merge(wardgate_connect::router(&gateway.connect_pages))
        .route(metadata::AUTHORIZATION_SERVER, authorization_server)
        .fallback(|| async { not_found() })
}

/// A refusal before the message was read: an HTTP status, and a JSON-RPC error that says why, because that
/// is what clients show.
fn problem(status: StatusCode, reason: &'static str, description: &str) -> Response {
    Answer::error(None, &RpcError::unread(status, reason, description)).into_response()
}

/// A path that nobody serves.
fn not_found() -> Response {
    problem(
        StatusCode::NOT_FOUND,
        "not_found",
        "No such path; MCP is served at /mcp.",
    )
}
