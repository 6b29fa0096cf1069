//! HTTP: every path in one list, and what each request passes before it is read.

mod listener;
mod metadata;
mod origin;
mod post;

use std::sync::Arc;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use wardgate_rpc::probes;

use crate::Gateway;
use crate::mcp::Door;

pub use listener::Bound;

/// Every path.
fn router(gateway: &Arc<Gateway>) -> Router {
    let door = |door: Door| {
        let gateway = Arc::clone(gateway);
        any(move |request| post::handle(gateway, door, request))
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

/// A refusal below JSON-RPC: the status, a kind and a sentence (the shape of RFC 6749 errors).
fn problem(status: StatusCode, error: &str, description: &str) -> Response {
    let body = serde_json::json!({ "error": error, "error_description": description }).to_string();
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}
