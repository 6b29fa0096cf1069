//! The headers in which MCP 2026-07-28 repeats parts of the body.

use reqwest::header::HeaderMap;
use wardgate_mcp::header::{self, encode_value};

use crate::message::ClientRequest;

/// Returns the headers of a request with the protocol version `version`.
pub(crate) fn of_modern(request: &ClientRequest, version: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(header::PROTOCOL_VERSION, encode_value(version));
    headers.insert(header::METHOD, encode_value(&request.method));
    if let Some(subject) = &request.subject {
        headers.insert(header::NAME, encode_value(subject));
    }
    headers
}
