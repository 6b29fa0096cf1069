//! What a response begins with, and the status that goes on to the client.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use wardgate_mcp::header::SESSION_ID;
use wardgate_rpc::client::RelayHead;

use crate::reply::Answer;

/// The beginning of a stream of events.
pub(super) fn stream(head: &RelayHead, session: Option<&str>, events: Body) -> Response {
    let mut response = (status(head), Answer::events(events)).into_response();
    name_session(&mut response, session);
    response
}

/// A whole answer.
pub(super) fn whole(head: &RelayHead, session: Option<&str>, body: Option<String>) -> Response {
    let mut response = match body {
        Some(body) => {
            let json = HeaderValue::from_static("application/json");
            (status(head), [(header::CONTENT_TYPE, json)], body).into_response()
        }
        None => status(head).into_response(),
    };
    name_session(&mut response, session);
    let wait = head.retry_after.as_deref();
    if let Some(wait) = wait.and_then(|wait| HeaderValue::from_str(wait).ok()) {
        response.headers_mut().insert(header::RETRY_AFTER, wait);
    }
    response
}

/// The upstream's own status. What it says of the gateway's credentials is not for the client.
fn status(head: &RelayHead) -> StatusCode {
    match StatusCode::from_u16(head.status) {
        Ok(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) | Err(_) => StatusCode::BAD_GATEWAY,
        Ok(status) => status,
    }
}

fn name_session(response: &mut Response, session: Option<&str>) {
    if let Some(id) = session.and_then(|id| HeaderValue::from_str(id).ok()) {
        response.headers_mut().insert(SESSION_ID, id);
    }
}
