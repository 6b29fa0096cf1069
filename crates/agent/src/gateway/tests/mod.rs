//! Tests of the client with a scripted gateway, in process and over HTTP.

mod answers;
mod calls;
mod changes;
mod listeners;
mod lists;
mod turns;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::Request as HttpRequest;
use axum::response::{IntoResponse, Response};
use futures::future::BoxFuture;
use http::{HeaderMap, StatusCode};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::*;
use listeners::{ListenerBehaviour, Listeners};
use wardgate_testkit::{event_stream, json_response, mcp_result, serve};

/// A request that the gateway received.
#[derive(Debug, Clone)]
struct ReceivedRequest {
    path: String,
    headers: HeaderMap,
    /// The caller's address, as set by a listener.
    peer: Option<SocketAddr>,
    text: String,
    body: Value,
}

impl ReceivedRequest {
    fn header(&self, name: &str) -> &str {
        self.headers[name].to_str().unwrap()
    }

    /// Returns a response to this request with `members` as its result.
    fn result(&self, members: &Value) -> Response {
        mcp_result(&self.body, members)
    }

    fn error(&self, status: u16, code: i64, message: &str, data: &Value) -> Response {
        let error = json!({ "code": code, "message": message, "data": data });
        let answer = json!({ "jsonrpc": "2.0", "id": self.body["id"], "error": error });
        let status = StatusCode::from_u16(status).unwrap();
        (status, json_response(answer.to_string())).into_response()
    }
}

/// A gateway with scripted responses that records the requests.
#[derive(Clone)]
struct ScriptedGateway {
    router: Router,
    /// The requests, except those that open streams.
    seen: Arc<Mutex<Vec<ReceivedRequest>>>,
    listeners: Listeners,
}

impl ScriptedGateway {
    fn new(answer: impl Fn(&ReceivedRequest) -> Response + Send + Sync + 'static) -> Self {
        Self::slow(move |seen| {
            let answer = answer(&seen);
            Box::pin(async move { answer })
        })
    }

    /// Creates a gateway whose responses may take time.
    fn slow(
        answer: impl Fn(ReceivedRequest) -> BoxFuture<'static, Response> + Send + Sync + 'static,
    ) -> Self {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let listeners = Listeners::default();
        let (remembered, streams) = (Arc::clone(&seen), listeners.clone());
        let answer = Arc::new(answer);
        let router = Router::new().fallback(move |request: HttpRequest| {
            let (remembered, answer) = (Arc::clone(&remembered), Arc::clone(&answer));
            let streams = streams.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
                let text = String::from_utf8(body.to_vec()).unwrap();
                let request = ReceivedRequest {
                    path: head.uri.path().to_owned(),
                    peer: head.extensions.get().copied(),
                    headers: head.headers,
                    body: serde_json::from_str(&text).unwrap(),
                    text,
                };
                if request.body["method"] == "subscriptions/listen" {
                    return streams.open(&request);
                }
                remembered.lock().unwrap().push(request.clone());
                answer(request).await
            }
        });
        Self {
            router,
            seen,
            listeners,
        }
    }

    /// Sets the response to requests for streams.
    fn with_listener_behaviour(self, how: ListenerBehaviour) -> Self {
        self.listeners.set(how);
        self
    }

    fn in_process(&self) -> GatewayEndpoint {
        GatewayEndpoint::in_process(self.router.clone())
    }

    /// Returns two clients of the gateway: one in process and one over HTTP.
    async fn doors(&self) -> [GatewayEndpoint; 2] {
        let router = self.router.clone();
        let url = format!("http://{}/", serve(router).await);
        let over_http = GatewayEndpoint::over_http(&url.parse().unwrap(), None).unwrap();
        [self.in_process(), over_http]
    }

    fn requests(&self) -> Vec<ReceivedRequest> {
        self.seen.lock().unwrap().clone()
    }
}

fn token(text: &str) -> BearerToken {
    BearerToken::new(text)
}

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

/// Calls `name` with a token that is never cancelled.
async fn call(gateway: &GatewayEndpoint, name: &str) -> Result<CallOutcome, GatewayError> {
    let call = ToolCall {
        name,
        arguments: &raw("{}"),
        idempotency_key: "k",
        conversation: "c-1",
        cancel: &CancellationToken::new(),
    };
    gateway.call_tool(&token("t"), &call).await
}
