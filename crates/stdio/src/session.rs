//! The session that a legacy client and the gateway agree on with `initialize`.

use std::sync::atomic::{AtomicBool, Ordering};

use reqwest::header::{HeaderMap, HeaderValue};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;
use wardgate_json::parse_object;
use wardgate_mcp::header;

/// First protocol version whose requests name the version in a header.
const HEADER_SINCE: &str = "2025-06-18";

/// A session. If the gateway keeps no sessions, only the version is known.
#[derive(Debug)]
pub(crate) struct McpSession {
    version: String,
    id: Option<HeaderValue>,
    listens: AtomicBool,
    /// Cancelled when the session has ended.
    pub(crate) over: CancellationToken,
}

#[derive(Deserialize)]
struct InitializeResponse {
    result: InitializeResult,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InitializeResult {
    protocol_version: String,
}

impl McpSession {
    /// Returns the session that the response `answer` with these headers opens, or `None` if the response is an error.
    pub(crate) fn from_response(answer: &[u8], headers: &HeaderMap) -> Option<Self> {
        let InitializeResponse { result } = parse_object(std::str::from_utf8(answer).ok()?)?;
        let id = headers.get(header::SESSION_ID).cloned().map(|mut id| {
            id.set_sensitive(true);
            id
        });
        Some(Self {
            version: result.protocol_version,
            id,
            listens: AtomicBool::new(false),
            over: CancellationToken::new(),
        })
    }

    /// Returns the headers of every request in the session.
    pub(crate) fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if *self.version >= *HEADER_SINCE {
            headers.insert(
                header::PROTOCOL_VERSION,
                header::encode_value(&self.version),
            );
        }
        if let Some(id) = &self.id {
            headers.insert(header::SESSION_ID, id.clone());
        }
        headers
    }

    /// Returns whether the gateway keeps the session.
    pub(crate) fn is_kept(&self) -> bool {
        self.id.is_some()
    }

    /// Returns `true` on the first call and `false` afterwards, because a session has only one stream.
    pub(crate) fn begins_to_listen(&self) -> bool {
        !self.listens.swap(true, Ordering::Relaxed)
    }
}
