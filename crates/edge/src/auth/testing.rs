//! A small server of key sets.

use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::extract::State;
use axum::http::{Response, StatusCode};
use tokio::sync::watch;
use wardgate_testkit::serve;

/// 2027-01-15T08:00:00Z.
pub(super) const NOW: i64 = 1_800_000_000;

/// An HTTP server on loopback that answers every request as it was told.
pub(super) struct KeyServer {
    pub(super) url: String,
    state: Arc<KeyServerState>,
}

/// The answer of a key server, and the requests it received.
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

    /// Requests so far.
    pub(super) fn requests(&self) -> usize {
        *self.state.requests.borrow()
    }

    /// Waits until there were so many requests.
    pub(super) async fn requests_reach(&self, count: usize) {
        self.state
            .requests
            .subscribe()
            .wait_for(|requests| *requests >= count)
            .await
            .unwrap();
    }

    /// Lets requests wait for [`KeyServer::release`].
    pub(super) fn hold(&self) {
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
