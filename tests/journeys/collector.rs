//! An OTLP endpoint, to see what traces hold.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use wardgate_testkit::serve;

/// What an OTLP endpoint was sent, as it came.
pub(super) type Traces = Arc<Mutex<Vec<u8>>>;

/// An OTLP endpoint that takes everything. Texts stand in its messages as they are.
pub(super) async fn collector() -> (String, Traces) {
    async fn export(State(traces): State<Traces>, body: Bytes) -> Response {
        traces.lock().unwrap().extend_from_slice(&body);
        let empty_message = Body::from(vec![0; 5]);
        let answer = Response::builder()
            .header(CONTENT_TYPE, "application/grpc")
            .header("grpc-status", "0");
        answer.body(empty_message).unwrap()
    }
    let traces = Traces::default();
    let router = Router::new()
        .fallback(export)
        .with_state(Arc::clone(&traces));
    let url = format!("http://{}", serve(router).await);
    (url, traces)
}
