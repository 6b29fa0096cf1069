//! What can keep a request from its answer.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use wardgate_edge::EdgeClientError;

/// Why there is no answer. The texts are fit for people and models; nothing of a request or a token is in them.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(crate) enum GatewayError {
    #[error("the gateway cannot be reached")]
    Unreachable,
    #[error("the gateway did not answer in time")]
    Late,
    #[error("the gateway's answer is larger than is taken")]
    TooLarge,
    #[error("the gateway's answer cannot be read")]
    Unreadable,
    /// The token is no longer, or not here, a caller's.
    #[error("the gateway does not accept the token")]
    Unauthorized,
    /// No such path: the toolset does not exist.
    #[error("the gateway does not know the toolset")]
    UnknownToolset,
    #[error("{0}")]
    Refused(Box<RpcFault>),
}

impl From<EdgeClientError> for GatewayError {
    fn from(error: EdgeClientError) -> Self {
        match error {
            EdgeClientError::Path => Self::UnknownToolset,
            EdgeClientError::Unreachable => Self::Unreachable,
            EdgeClientError::TooLarge => Self::TooLarge,
            EdgeClientError::Unreadable => Self::Unreadable,
        }
    }
}

/// A JSON-RPC error of the gateway.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct RpcFault {
    pub(crate) code: i64,
    /// The gateway's own words.
    pub(crate) message: String,
    pub(crate) data: FaultData,
    /// HTTP 429.
    pub(crate) is_rate_limit: bool,
}

impl RpcFault {
    /// The gateway has no room for it now, or the caller no right to more, and it did nothing of it.
    pub(crate) fn is_busy(&self) -> bool {
        let reason = self.data.reason.as_deref();
        self.is_rate_limit || matches!(reason, Some("overloaded" | "over_share" | "rate_limited"))
    }
}

/// A request for an approval that a policy demands of a call.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ApprovalRequest {
    /// What approvers decide with.
    pub(crate) id: String,
    /// Until when it stands, RFC 3339.
    pub(crate) expires_at: String,
}

/// What the gateway adds to an error.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct FaultData {
    /// The kind, for programs.
    pub(crate) reason: Option<String>,
    #[serde(rename = "dev.wardgate/callId")]
    pub(crate) call_id: Option<String>,
    #[serde(rename = "dev.wardgate/receipt")]
    pub(crate) receipt: Option<Value>,
    /// The request for an approval that a call waits for.
    pub(crate) approval: Option<ApprovalRequest>,
    #[serde(rename = "retryAfterSeconds")]
    retry_after_seconds: Option<u64>,
}

impl FaultData {
    /// Reads what is there; data that has another form says nothing.
    pub(super) fn read(data: Value, retry_after: Option<u64>) -> Self {
        let data: Self = serde_json::from_value(data).unwrap_or_default();
        Self {
            retry_after_seconds: data.retry_after_seconds.or(retry_after),
            ..data
        }
    }

    /// When it may be tried again.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        self.retry_after_seconds.map(Duration::from_secs)
    }
}
