//! Helpers of fake MCP servers: the message of a request, and responses to it.

use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// Returns the head of a request and its message, which is null if the body is not JSON.
pub async fn mcp_message(request: Request) -> (Parts, Value) {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await;
    let message = serde_json::from_slice(&body.expect("a body of a test is short"));
    (parts, message.unwrap_or_default())
}

/// Returns the discovery result of a 2026-07-28 server with these capabilities.
pub fn mcp_discovery(capabilities: &Value) -> Value {
    json!({ "supportedVersions": ["2026-07-28"], "capabilities": capabilities })
}

/// Returns the response to `message` with this result.
pub fn mcp_result(message: &Value, result: &Value) -> Response {
    let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result });
    json_response(answer.to_string())
}

/// Returns a response that is a stream of these events.
pub fn event_stream(events: impl Into<Body>) -> Response {
    ([("content-type", "text/event-stream")], events.into()).into_response()
}

/// Returns a response with this JSON body.
pub fn json_response(json: impl Into<Body>) -> Response {
    ([("content-type", "application/json")], json.into()).into_response()
}
