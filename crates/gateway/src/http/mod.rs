//! HTTP: every path in one list, and what each request passes before it is read.

mod cors;
mod listener;
mod metadata;
mod origin;
mod post;

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use wardgate_rpc::probes;

use crate::Gateway;
use crate::mcp::Door;
use crate::reply::{Answer, RpcError};

pub use listener::Bound;

/// Every path.
fn router(gateway: &Arc<Gateway>) -> Router {
    let door = |door: Door| {
        let gateway = Arc::clone(gateway);
        let preflight = {
            let gateway = Arc::clone(&gateway);
            move |request: Parts| async move { cors::preflight(&gateway.config, &request) }
        };
        any(move |request| post::handle(gateway, door, request)).options(preflight)
    };
    let metadata = {
        let gateway = Arc::clone(gateway);
        get(move || async move { metadata::protected_resource(&gateway) })
    };
    Router::new()
        .route("/mcp", door(Door::Mcp))
        .route("/message", door(Door::Message))
        .route("/.well-known/oauth-protected-resource", metadata.clone())
        .route("/.well-known/oauth-protected-resource/mcp", metadata)
        .merge(probes::router(
            gateway.parts.clone(),
            gateway.metrics.clone(),
        ))
        .fallback(|| async {
            problem(
                StatusCode::NOT_FOUND,
                "not_found",
                "No such path; MCP is served at /mcp.",
            )
        })
}

/// A refusal before the message was read: an HTTP status, and a JSON-RPC error that says why, because that
/// is what clients show.
fn problem(status: StatusCode, reason: &'static str, description: &str) -> Response {
    Answer::error(None, &RpcError::unread(status, reason, description)).into_response()
}
