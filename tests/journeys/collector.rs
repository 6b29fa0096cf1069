//! An OTLP endpoint, to see what traces hold.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use wardgate_testkit::serve;

/// What an OTLP endpoint was sent, as it came.
pub(super) type Traces = Arc<Mutex<Vec<u8>>>;

/// An OTLP endpoint that takes everything. Texts stand in its messages as they are.
pub(super) async fn collector() -> (String, Traces) {
    let traces = Traces::default();
    let kept = Arc::clone(&traces);
    let url = collector_for(move |body| kept.lock().unwrap().extend_from_slice(body)).await;
    (url, traces)
}

/// The same, which hands over each message and keeps nothing.
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
