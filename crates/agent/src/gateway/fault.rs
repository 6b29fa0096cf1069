//! Errors of requests to the gateway.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use wardgate_edge::EdgeClientError;

/// The reason why there is no result. The texts may be shown to users and models; they contain nothing of a request or a token.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(crate) enum GatewayError {
    #[error("the gateway cannot be reached")]
    Unreachable,
    #[error("the gateway did not answer in time")]
    Late,
    #[error("the gateway's answer exceeds the size limit")]
    TooLarge,
    #[error("the gateway's answer cannot be read")]
    Unreadable,
    /// The token has expired or is not valid at the gateway.
    #[error("the gateway does not accept the token")]
    Unauthorized,
    /// The path is unknown: the toolset does not exist.
    #[error("the gateway does not have the toolset")]
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
    /// The gateway's error message.
    pub(crate) message: String,
    pub(crate) data: FaultData,
    /// Whether the HTTP status is 429.
    pub(crate) is_rate_limit: bool,
}

impl RpcFault {
    /// Returns whether the gateway has no capacity or the caller's quota is exhausted. In both cases nothing ran.
    pub(crate) fn is_busy(&self) -> bool {
        let reason = self.data.reason.as_deref();
        self.is_rate_limit || matches!(reason, Some("overloaded" | "over_share" | "rate_limited"))
    }
}

/// A request for an approval that a policy requires of a call.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ApprovalRequest {
    /// The id that approvers use to decide.
    pub(crate) id: String,
    /// The expiry time, in RFC 3339 format.
    pub(crate) expires_at: String,
}

/// The `data` of a JSON-RPC error.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct FaultData {
    /// The machine-readable error kind.
    pub(crate) reason: Option<String>,
    #[serde(rename = "dev.wardgate/callId")]
    pub(crate) call_id: Option<String>,
    #[serde(rename = "dev.wardgate/receipt")]
    pub(crate) receipt: Option<Value>,
    /// The approval request that the call waits for, if any.
    pub(crate) approval: Option<ApprovalRequest>,
    #[serde(rename = "retryAfterSeconds")]
    retry_after_seconds: Option<u64>,
}

impl FaultData {
    /// Parses the data of an error. Data of an unexpected form is ignored.
    pub(super) fn from_value(data: Value, retry_after: Option<u64>) -> Self {
        let data: Self = serde_json::from_value(data).unwrap_or_default();
        Self {
            retry_after_seconds: data.retry_after_seconds.or(retry_after),
            ..data
        }
    }

    /// Returns how long to wait before a retry, or `None` if the gateway did not state it.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        self.retry_after_seconds.map(Duration::from_secs)
    }
}
