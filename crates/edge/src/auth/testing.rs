//! A small server of key sets for tests.

use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::extract::State;
use axum::http::{Response, StatusCode};
use tokio::sync::watch;
use wardgate_testkit::serve;

/// 2027-01-15T08:00:00Z.
pub(super) const NOW: i64 = 1_800_000_000;

/// An HTTP server on loopback that sends the same configurable response to every request.
pub(super) struct KeyServer {
    pub(super) url: String,
    state: Arc<KeyServerState>,
}

/// The response of a key server, and the number of requests that it received.
struct KeyServerState {
    answer: Mutex<(StatusCode, String)>,
    requests: watch::Sender<usize>,
    open: watch::Sender<bool>,
}

impl KeyServer {
    pub(super) async fn start(status: StatusCode, body: impl Into<String>) -> Self {
        let state = Arc::new(KeyServerState {
            answer: Mutex::new((status, body.into())),
            requests: watch::Sender::new(0),
            open: watch::Sender::new(true),
        });
        let router = axum::Router::new()
            .fallback(answer)
            .with_state(Arc::clone(&state));
        let url = format!("http://{}/keys", serve(router).await);
        Self { url, state }
    }

    pub(super) fn answer_with(&self, status: StatusCode, body: impl Into<String>) {
        *self.state.answer.lock().unwrap() = (status, body.into());
    }

    /// Returns the number of requests so far.
    pub(super) fn requests(&self) -> usize {
        *self.state.requests.borrow()
    }

    /// Waits until the server has received `count` requests.
    pub(super) async fn requests_reach(&self, count: usize) {
        self.state
            .requests
            .subscribe()
            .wait_for(|requests| *requests >= count)
            .await
            .unwrap();
    }

    /// Delays responses until [`KeyServer::release`] is called.
    pub(super) fn hold_responses(&self) {
        self.state.open.send_replace(false);
    }

    pub(super) fn release(&self) {
        self.state.open.send_replace(true);
    }
}

async fn answer(State(state): State<Arc<KeyServerState>>) -> Response<Body> {
    state.requests.send_modify(|requests| *requests += 1);
    state.open.subscribe().wait_for(|open| *open).await.unwrap();
    let (status, body) = state.answer.lock().unwrap().clone();
    Response::builder()
        .status(status)
        .header("location", "/elsewhere")
        .body(Body::from(body))
        .unwrap()
}
