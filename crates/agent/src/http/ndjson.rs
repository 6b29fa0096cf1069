//! Events as newline-delimited JSON: one object per line, sent immediately. An empty line is a keep-alive.

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header;

use super::response_body;
use crate::{AgentEvent, EventStream};

pub(super) fn reply(events: EventStream) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "application/x-ndjson"),
        (header::CACHE_CONTROL, "no-store"),
        response_body::UNBUFFERED,
    ];
    (
        headers,
        response_body::body(events, "\n", |event| line(&event)),
    )
        .into_response()
}

fn line(event: &AgentEvent) -> Bytes {
    // Events contain only texts, numbers and JSON values, so serialization cannot fail.
    let mut line = serde_json::to_vec(event).unwrap_or_default();
    line.push(b'\n');
    line.into()
}
