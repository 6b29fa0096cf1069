//! What a legacy client and the gateway agreed on with `initialize`.

use std::sync::atomic::{AtomicBool, Ordering};

use reqwest::header::{HeaderMap, HeaderValue};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;
use wardgate_json::parse_object;
use wardgate_mcp::header;

/// The first version whose requests name it in a header.
const HEADER_SINCE: &str = "2025-06-18";

/// One session; the gateway may keep none, then it is only the version.
#[derive(Debug)]
pub(crate) struct McpSession {
    version: String,
    id: Option<HeaderValue>,
    listens: AtomicBool,
    /// Cancelled when it is over.
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
    /// The session that `answer`, with these headers, opens; none when it is an error.
    pub(crate) fn opened(answer: &[u8], headers: &HeaderMap) -> Option<Self> {
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

    /// Those of every request in it.
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

    /// Whether the gateway knows of it.
    pub(crate) fn is_kept(&self) -> bool {
        self.id.is_some()
    }

    /// Whether this is the first to ask; there is one stream.
    pub(crate) fn begins_to_listen(&self) -> bool {
        !self.listens.swap(true, Ordering::Relaxed)
    }
}
