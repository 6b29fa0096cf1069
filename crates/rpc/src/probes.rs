//! The HTTP endpoints `/health`, `/ready` and `/metrics` of every process.
//!
//! `/metrics` names tools and sources, so it is never served on a client-facing address. Such an address serves [`states`], or
//! only [`alive`], which tells strangers nothing, if the address of the probes is reachable by others as well.

use std::sync::Arc;

use axum::Router;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use tokio::sync::watch;
use wardgate_telemetry::{Exposition, Metrics};

use crate::readiness::Readiness;
use crate::routes::{self, GET, Route, RouteInfo};

/// A component of this process, or a service that it depends on: its name and its readiness.
pub type ProbedComponent = (&'static str, watch::Receiver<Readiness>);

const EVERYBODY: &str = "anyone";

/// Liveness routes.
const ALIVE: &[Route<()>] = &[
    Route {
        info: RouteInfo::new(
            "/health",
            GET,
            EVERYBODY,
            "200 `{\"status\":\"ok\"}`: the process is alive",
        ),
        handler: |(), _| get(alive_now),
    },
    Route {
        info: RouteInfo::new("/healthz", GET, EVERYBODY, "like `/health`"),
        handler: |(), _| get(alive_now),
    },
];

/// Readiness routes.
const READY: &[Route<Arc<Vec<ProbedComponent>>>] = &[
    Route {
        info: RouteInfo::new(
            "/ready",
            GET,
            EVERYBODY,
            "200 or 503 JSON: `status`, and for each of `parts` `ready`, `ready: …` or `not ready`; the log has the cause",
        ),
        handler: |parts, _| ready_route(parts),
    },
    Route {
        info: RouteInfo::new("/readyz", GET, EVERYBODY, "like `/ready`"),
        handler: |parts, _| ready_route(parts),
    },
];

/// The metrics route, which is never served on a client-facing address.
const METRICS: &[Route<Metrics>] = &[Route {
    info: RouteInfo::new(
        "/metrics",
        GET,
        EVERYBODY,
        "200 in Prometheus' text format, or in OpenMetrics if `Accept` requests it; see [Metrics](metrics.md)",
    ),
    handler: |metrics, _| metrics_route(metrics),
}];

/// Returns the descriptions of the probe routes and `/metrics`, for the reference.
pub fn listed_routes() -> Vec<&'static RouteInfo> {
    [
        routes::describe(ALIVE),
        routes::describe(READY),
        routes::describe(METRICS),
    ]
    .concat()
}

/// Builds a router with the probe routes and `/metrics`.
pub fn router(parts: Vec<ProbedComponent>, metrics: &Metrics) -> Router {
    states(parts).merge(routes::build_router(METRICS, metrics))
}

/// Builds a router with the probe routes only. Liveness means that the process responds; readiness, that
/// every component can work.
pub fn states(parts: Vec<ProbedComponent>) -> Router {
    alive().merge(routes::build_router(READY, &Arc::new(parts)))
}

/// Returns whether `path` is a probe route or `/metrics`.
pub fn is_probe(path: &str) -> bool {
    listed_routes().iter().any(|route| route.path == path)
}

/// Builds a router with the liveness routes only.
pub fn alive() -> Router {
    routes::build_router(ALIVE, &())
}

async fn alive_now() -> Response {
    json(StatusCode::OK, r#"{"status":"ok"}"#.to_owned())
}

fn ready_route(parts: &Arc<Vec<ProbedComponent>>) -> MethodRouter {
    let parts = Arc::clone(parts);
    get(move || async move { ready(&parts) })
}

fn metrics_route(metrics: &Metrics) -> MethodRouter {
    let metrics = metrics.clone();
    get(move |headers: HeaderMap| async move {
        let accept = headers.get(header::ACCEPT);
        let accept = accept.and_then(|accept| accept.to_str().ok());
        let Exposition { content_type, text } = metrics.render(accept.unwrap_or_default());
        ([(header::CONTENT_TYPE, content_type)], text)
    })
}

fn ready(parts: &[ProbedComponent]) -> Response {
    let states: serde_json::Map<String, serde_json::Value> = parts
        .iter()
        .map(|(name, readiness)| {
            // The cause is only logged, because anyone may request this path and causes name hosts and users.
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
