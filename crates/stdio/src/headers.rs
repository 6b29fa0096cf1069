//! The headers in which 2026-07-28 repeats what a body says.

use reqwest::header::HeaderMap;
use wardgate_mcp::header::{self, encode_value};

use crate::message::ClientRequest;

/// Those of a request that speaks `version`.
pub(crate) fn of_modern(request: &ClientRequest, version: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(header::PROTOCOL_VERSION, encode_value(version));
    headers.insert(header::METHOD, encode_value(&request.method));
    if let Some(subject) = &request.subject {
        headers.insert(header::NAME, encode_value(subject));
    }
    headers
}
