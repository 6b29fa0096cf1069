//! Tests of tools against a server that records its requests.

mod faults;
mod requests;
mod responses;

use std::sync::Mutex;

use axum::Router;
use axum::extract::Request as Incoming;
use axum::response::IntoResponse;
use http::header::HeaderMap;
use http::{Method, StatusCode};
use serde_json::json;
use wardgate_testkit::serve;

use super::*;
use crate::executor::testing::TestTool;

/// A request that the server received.
#[derive(Debug, Clone)]
struct ReceivedRequest {
    method: Method,
    /// The path and query as they were on the wire.
    target: String,
    headers: HeaderMap,
    body: String,
}

/// A server that gives the same answer to every request, and records the requests.
struct Recorder {
    port: u16,
    seen: Arc<Mutex<Vec<ReceivedRequest>>>,
}

impl Recorder {
    async fn start_with_response(
        status: u16,
        content_type: &'static str,
        body: impl Into<String>,
    ) -> Self {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let body = body.into();
        let record = Arc::clone(&seen);
        let router = Router::new().fallback(async move |incoming: Incoming| {
            let (head, incoming) = incoming.into_parts();
            let bytes = axum::body::to_bytes(incoming, usize::MAX).await.unwrap();
            record.lock().unwrap().push(ReceivedRequest {
                method: head.method,
                target: head.uri.to_string(),
                headers: head.headers,
                body: String::from_utf8(bytes.to_vec()).unwrap(),
            });
            let status = StatusCode::from_u16(status).unwrap();
            (status, [("content-type", content_type)], body).into_response()
        });
        let port = serve(router).await.port();
        Self { port, seen }
    }

    async fn json(document: Value) -> Self {
        Self::start_with_response(200, "application/json", document.to_string()).await
    }

    fn tool(&self, execute: &str, result: &str) -> TestTool {
        TestTool::new(&self.sources(), execute, result)
    }

    fn sources(&self) -> String {
        format!(
            "{{ api: {{ type: http, base_url: 'http://127.0.0.1:{}/base/', private: true, headers: {{ X-Api-Version: '2' }} }} }}",
            self.port
        )
    }

    fn last(&self) -> ReceivedRequest {
        self.seen.lock().unwrap().last().unwrap().clone()
    }

    fn count(&self) -> usize {
        self.seen.lock().unwrap().len()
    }
}
