//! Events as newline-delimited JSON: one object a line, sent as it happens; an empty line says that the stream lives.

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
    // Texts, numbers and JSON values: nothing in an event can fail to be written.
    let mut line = serde_json::to_vec(event).unwrap_or_default();
    line.push(b'\n');
    line.into()
}
