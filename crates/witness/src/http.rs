//! The HTTP interface of the witness, according to tlog-witness.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, post};
use http::header::CONTENT_TYPE;
use http::{Request, StatusCode};
use wardgate_edge::BodyLimits;
use wardgate_edge::routes::{self, POST, Route, RouteInfo};

use crate::{Refusal, Witness};

/// Limits of a request body, which is a note of 64 KiB after 63 hashes.
const BODY: BodyLimits = BodyLimits {
    bytes: 72 * 1_024,
    seconds: 10,
};

/// Content type of a response with the size of a tree.
const TREE_SIZE: &str = "text/x.tlog.size";

const ROUTES: &[Route<Arc<Witness>>] = &[Route {
    info: RouteInfo::new(
        "/add-checkpoint",
        POST,
        "logs with keys in `witness.logs`",
        "200 a signature line: the checkpoint is cosigned; 400, 403 (not signed by the log), 404 (unknown log), 409 with the last seen size, 422 (inconsistent with the last seen tree), according to [tlog-witness](https://c2sp.org/tlog-witness); 500: the state cannot be stored",
    ),
    handler: |witness, _| add_checkpoint(witness),
}];

/// Returns the descriptions of the routes, for the reference.
pub fn listed_routes() -> Vec<&'static RouteInfo> {
    routes::describe(ROUTES)
}

/// Creates the router of a witness.
pub fn router(witness: &Arc<Witness>) -> Router {
    routes::build_router(ROUTES, witness)
}

fn add_checkpoint(witness: &Arc<Witness>) -> MethodRouter {
    let witness = Arc::clone(witness);
    post(move |request: Request<Body>| {
        let witness = Arc::clone(&witness);
        async move { answer(witness, request.into_body()).await }
    })
}

async fn answer(witness: Arc<Witness>, mut body: Body) -> Response {
    let submission = match wardgate_edge::read_body(&mut body, BODY).await {
        Ok(bytes) => String::from_utf8(bytes.into()),
        Err(refusal) => return (refusal.status(), refusal.description()).into_response(),
    };
    let Ok(submission) = submission else {
        return (StatusCode::BAD_REQUEST, "the body is not UTF-8\n").into_response();
    };
    // The witness blocks the thread until the disk has stored the checkpoint.
    let cosigned = tokio::task::spawn_blocking(move || witness.cosign(&submission)).await;
    match cosigned {
        Ok(Ok(cosignature)) => format!("{cosignature}\n").into_response(),
        Ok(Err(refusal)) => refuse(&refusal),
        Err(_panicked) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

fn refuse(refusal: &Refusal) -> Response {
    let status = match refusal {
        Refusal::Malformed(_) => StatusCode::BAD_REQUEST,
        Refusal::NotSigned(_) => StatusCode::FORBIDDEN,
        Refusal::UnknownLog(_) => StatusCode::NOT_FOUND,
        Refusal::Conflict(size) => {
            let kind = [(CONTENT_TYPE, TREE_SIZE)];
            return (StatusCode::CONFLICT, kind, format!("{size}\n")).into_response();
        }
        Refusal::Inconsistent(_) => StatusCode::UNPROCESSABLE_ENTITY,
        Refusal::NotStored => StatusCode::INTERNAL_SERVER_ERROR,
    };
    (status, format!("{refusal}\n")).into_response()
}
