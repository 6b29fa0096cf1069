//! A fake gateway and a fake agent that record the requests they receive.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use wardgate_testkit::json_response;

/// The tools and responses of the fake gateway, and the requests it received.
#[derive(Clone, Default)]
pub(crate) struct FakeGateway(Arc<Mutex<FakeGatewayState>>);

#[derive(Default)]
struct FakeGatewayState {
    tools: Vec<Value>,
    answer: Value,
    status: Option<StatusCode>,
    requests: Vec<(HeaderMap, Value)>,
    said: Vec<String>,
}

impl FakeGateway {
    pub(crate) fn has(&self, tool: Value) {
        self.0.lock().unwrap().tools.push(tool);
    }

    /// Sets the `result` or `error` of the next calls.
    pub(crate) fn answers(&self, answer: Value) {
        self.0.lock().unwrap().answer = answer;
    }

    pub(crate) fn fails_with(&self, status: StatusCode) {
        self.0.lock().unwrap().status = Some(status);
    }

    /// Returns the requests for tool calls.
    pub(crate) fn calls(&self) -> Vec<(HeaderMap, Value)> {
        let gateway = self.0.lock().unwrap();
        let calls = gateway
            .requests
            .iter()
            .filter(|(_, body)| body["method"] == "tools/call");
        calls.cloned().collect()
    }

    /// Returns the messages that the agent received.
    pub(crate) fn chat_messages(&self) -> Vec<String> {
        self.0.lock().unwrap().said.clone()
    }

    pub(crate) fn router(&self) -> Router {
        let here = self.clone();
        let answer =
            move |headers: HeaderMap, body: Bytes| async move { here.answer(headers, &body) };
        Router::new().route("/mcp", post(answer))
    }

    fn answer(&self, headers: HeaderMap, body: &[u8]) -> Response {
        let body: Value = serde_json::from_slice(body).unwrap();
        let mut gateway = self.0.lock().unwrap();
        gateway.requests.push((headers, body.clone()));
        if let Some(status) = gateway.status {
            return status.into_response();
        }
        let mut answer = match body["method"].as_str() {
            Some("tools/list") => json!({ "result": { "tools": gateway.tools } }),
            _ => gateway.answer.clone(),
        };
        answer["jsonrpc"] = json!("2.0");
        answer["id"] = body["id"].clone();
        json_response(answer.to_string())
    }

    pub(crate) fn agent(&self) -> Router {
        let answer = |body: String, here: &Self| {
            here.0.lock().unwrap().said.push(body);
            let headers = [("content-type", "application/x-ndjson"), ("x-secret", "s")];
            (headers, "{}\n").into_response()
        };
        let (chat, decisions) = (self.clone(), self.clone());
        let message = move |body: String| async move { answer(body, &chat) };
        let decide = move |Path(id): Path<String>, body: String| async move {
            answer(format!("{id}: {body}"), &decisions)
        };
        let models =
            json!({ "data": [{ "id": "clinic", "wardgate": { "missing": ["LLM_BASE_URL"] } }] });
        Router::new()
            .route("/api/chat/message/", post(message))
            .route("/api/chat/approvals/{id}", post(decide))
            .route("/v1/models", get(|| async move { models.to_string() }))
    }
}
