//! What every fake MCP server needs: the message of a request, and answers to it.

use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// The head of a request and its message; null where the body is no JSON.
pub async fn mcp_message(request: Request) -> (Parts, Value) {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await;
    let message = serde_json::from_slice(&body.expect("a body of a test is short"));
    (parts, message.unwrap_or_default())
}

/// What a server of 2026-07-28 with these capabilities says of itself.
pub fn mcp_discovery(capabilities: &Value) -> Value {
    json!({ "supportedVersions": ["2026-07-28"], "capabilities": capabilities })
}

/// The response with this result of `message`.
pub fn mcp_result(message: &Value, result: &Value) -> Response {
    let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result });
    json_response(answer.to_string())
}

/// A response of JSON.
pub fn json_response(json: impl Into<Body>) -> Response {
    ([("content-type", "application/json")], json.into()).into_response()
}
