//! `/health`, `/ready` and `/metrics` over HTTP, for every process alike.
//!
//! `/metrics` names tools and sources, so it is never served where clients are. There stand [`states`], or where the probes'
//! own address is one that others reach as well, [`alive`] alone: it tells strangers nothing.

use std::sync::Arc;

use axum::Router;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::sync::watch;
use wardgate_telemetry::{Exposition, Metrics};

use crate::readiness::Readiness;

/// The name and the readiness of a part of this process, or of a service that it depends on.
pub type ProbedComponent = (&'static str, watch::Receiver<Readiness>);

/// The probe routes and `/metrics`.
pub fn router(parts: Vec<ProbedComponent>, metrics: Metrics) -> Router {
    let render = move |headers: HeaderMap| {
        let metrics = metrics.clone();
        async move {
            let accept = headers.get(header::ACCEPT);
            let accept = accept.and_then(|accept| accept.to_str().ok());
            let Exposition { content_type, text } = metrics.render(accept.unwrap_or_default());
            ([(header::CONTENT_TYPE, content_type)], text)
        }
    };
    states(parts).route("/metrics", get(render))
}

/// The probe routes alone. Alive means that the process answers; ready, that every part can do its work.
pub fn states(parts: Vec<ProbedComponent>) -> Router {
    let parts = Arc::new(parts);
    let ready = move || {
        let parts = Arc::clone(&parts);
        async move { ready(&parts) }
    };
    alive()
        .route("/ready", get(ready.clone()))
        .route("/readyz", get(ready))
}

/// Whether a probe is served at `path`.
pub fn is_probe(path: &str) -> bool {
    ["/health", "/healthz", "/ready", "/readyz", "/metrics"].contains(&path)
}

/// Whether the process answers, and nothing else.
pub fn alive() -> Router {
    let alive = || async { json(StatusCode::OK, r#"{"status":"ok"}"#.to_owned()) };
    Router::new()
        .route("/health", get(alive))
        .route("/healthz", get(alive))
}

fn ready(parts: &[ProbedComponent]) -> Response {
    let states: serde_json::Map<String, serde_json::Value> = parts
        .iter()
        .map(|(name, readiness)| {
            // Why is for the log: anyone may ask here, and causes name hosts and users.
            let state = match &*readiness.borrow() {
                Readiness::Ready => "ready".to_owned(),
                Readiness::Outdated(what) => format!("ready: {what}"),
                Readiness::NotReady(_) => "not ready".to_owned(),
            };
            ((*name).to_owned(), state.into())
        })
        .collect();
    let all = parts
        .iter()
        .all(|(_, readiness)| readiness.borrow().is_ready());
    let (code, status) = if all {
        (StatusCode::OK, "ready")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not_ready")
    };
    json(
        code,
        serde_json::json!({ "status": status, "parts": states }).to_string(),
    )
}

fn json(code: StatusCode, body: String) -> Response {
    (code, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}
