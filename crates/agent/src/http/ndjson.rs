//! Events as newline-delimited JSON: one object a line, sent as it happens; an empty line says that the stream lives.

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header;

use super::outflow;
use crate::{AgentEvent, EventStream};

pub(super) fn reply(events: EventStream) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "application/x-ndjson"),
        (header::CACHE_CONTROL, "no-store"),
        outflow::UNBUFFERED,
    ];
    (headers, outflow::body(events, "\n", |event| line(&event))).into_response()
}

fn line(event: &AgentEvent) -> Bytes {
    // Texts, numbers and JSON values: nothing in an event can fail to be written.
    let mut line = serde_json::to_vec(event).unwrap_or_default();
    line.push(b'\n');
    line.into()
}
