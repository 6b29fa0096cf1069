//! A fake OTLP endpoint that captures traces.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use wardgate_testkit::serve;

/// The bytes that an OTLP endpoint received.
pub(super) type Traces = Arc<Mutex<Vec<u8>>>;

/// Starts an OTLP endpoint that accepts everything. Strings are stored unencoded in its messages, so they can be searched for.
pub(super) async fn collector() -> (String, Traces) {
    let traces = Traces::default();
    let kept = Arc::clone(&traces);
    let url = collector_for(move |body| kept.lock().unwrap().extend_from_slice(body)).await;
    (url, traces)
}

/// Starts an OTLP endpoint that passes each message to `take` and keeps nothing.
pub(super) async fn collector_for(take: impl Fn(&[u8]) + Clone + Send + Sync + 'static) -> String {
    let export = move |body: Bytes| {
        take(&body);
        let empty_message = Body::from(vec![0; 5]);
        let answer = Response::builder()
            .header(CONTENT_TYPE, "application/grpc")
            .header("grpc-status", "0");
        std::future::ready(answer.body(empty_message).unwrap())
    };
    format!("http://{}", serve(Router::new().fallback(export)).await)
}
