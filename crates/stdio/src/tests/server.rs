//! A gateway that answers as a test specifies.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use futures::future::BoxFuture;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::client::PATIENCE;

/// A request that the server received.
#[derive(Debug, Clone)]
pub(super) struct ReceivedRequest {
    pub(super) method: Method,
    pub(super) headers: HeaderMap,
    /// The body as JSON, or null if there is none.
    pub(super) body: Value,
}

impl ReceivedRequest {
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }

    pub(super) fn rpc_method(&self) -> &str {
        self.body["method"].as_str().unwrap_or_default()
    }

    /// Returns a response with this result, given as JSON.
    pub(super) fn result(&self, result: &str) -> Response {
        json(&format!(
            r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#,
            self.body["id"]
        ))
    }
}

pub(super) struct Server {
    pub(super) url: String,
    arrivals: mpsc::UnboundedReceiver<ReceivedRequest>,
    _serving: AbortOnDropHandle<()>,
}

impl Server {
    pub(super) async fn start<F>(script: F) -> Self
    where
        F: Fn(ReceivedRequest) -> BoxFuture<'static, Response> + Send + Sync + 'static,
    {
        let script = Arc::new(script);
        let (sender, arrivals) = mpsc::unbounded_channel();
        let handler = move |method: Method, headers: HeaderMap, body: Bytes| {
            let arrived = ReceivedRequest {
                method,
                headers,
                body: serde_json::from_slice(&body).unwrap_or_default(),
            };
            let _ = sender.send(arrived.clone());
            script(arrived)
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().route("/mcp", axum::routing::any(handler));
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self {
            url,
            arrivals,
            _serving: AbortOnDropHandle::new(serving),
        }
    }

    /// Returns the next request.
    pub(super) async fn arrival(&mut self) -> ReceivedRequest {
        let arrived = tokio::time::timeout(PATIENCE, self.arrivals.recv()).await;
        arrived.expect("something arrives").unwrap()
    }

    /// Returns the next request with this HTTP method.
    pub(super) async fn arrival_by(&mut self, method: &Method) -> ReceivedRequest {
        loop {
            let arrived = self.arrival().await;
            if arrived.method == *method {
                return arrived;
            }
        }
    }
}

pub(super) fn json(text: &str) -> Response {
    (
        [(header::CONTENT_TYPE, "application/json")],
        text.to_owned(),
    )
        .into_response()
}

/// Returns a response with these events, after which the stream ends.
pub(super) fn events(events: &str) -> Response {
    stream(Body::from(events.to_owned()))
}

/// Returns a response with these events, after which the stream stays open.
pub(super) fn open_events(events: &str) -> Response {
    let events = Bytes::from(events.to_owned());
    let first = futures::stream::once(async { Ok::<_, std::io::Error>(events) });
    stream(Body::from_stream(first.chain(futures::stream::pending())))
}

fn stream(body: Body) -> Response {
    ([(header::CONTENT_TYPE, "text/event-stream")], body).into_response()
}

pub(super) fn status(code: u16) -> Response {
    StatusCode::from_u16(code).unwrap().into_response()
}
