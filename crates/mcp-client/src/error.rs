//! Errors of requests to upstream servers. Their messages never contain text from a server.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use wardgate_egress::{AuthError, EgressError};
use wardgate_json::has_unique_members;
use wardgate_mcp::error_code::{HEADER_MISMATCH, INTERNAL_ERROR, UNSUPPORTED_VERSION};
use wardgate_mcp::meta;

use super::members::members_except;

/// The reason why a request to an upstream server has no result.
#[derive(Debug, Clone, thiserror::Error)]
pub enum UpstreamError {
    /// The server is unreachable, and nothing was sent.
    #[error("the upstream server cannot be reached: {0}")]
    Unreachable(String),
    /// The connection had ended, or the server no longer knows the session, so it did not process the request. The request can be
    /// retried over a new connection.
    #[error("the connection to the upstream server is closed")]
    Gone,
    /// The user has to grant a connection first, and the server did nothing. If the server specifies scopes, the
    /// grant has to include them.
    #[error("the caller has not authorized the upstream server yet")]
    NotConnected {
        /// The scopes that the server requires in addition to the granted ones, separated by spaces.
        scope: Option<String>,
    },
    /// The source needs the caller's token, which is missing.
    #[error("the caller's token was not sent with the call")]
    NoCallerToken,
    /// The server offers a different tool than the approved one under this name, or none. Nothing was sent.
    #[error("the definition of the tool at the upstream server differs from the approved one")]
    ToolChanged,
    /// There are too many open requests, and nothing was sent.
    #[error("too many requests to the upstream server are pending")]
    Busy,
    /// The deadline passed. It is unknown whether the server acted.
    #[error("the upstream server did not answer in time")]
    Timeout,
    /// The time limit of the source passed. It is unknown whether the request had an effect.
    #[error("the upstream server did not answer within {0:?}; see `timeout` of the source")]
    SourceTimeout(Duration),
    /// The connection broke. It is unknown whether the request had an effect.
    #[error("the connection to the upstream server failed: {0}")]
    Broken(String),
    /// The server responded with an HTTP status that is neither a success nor accompanied by a JSON-RPC error.
    #[error("the upstream server answered with HTTP status {0}")]
    Status(u16),
    /// The server responded with a JSON-RPC error.
    #[error("the upstream server answered with JSON-RPC error {}", .0.code)]
    Rpc(UpstreamRpcError),
    /// The server acted, but its result is invalid.
    #[error("the upstream server returned a response that cannot be used: {0}")]
    BadResult(&'static str),
    /// The server acted, and its result is larger than the limit.
    #[error("the upstream server returned a response that is too large")]
    TooLarge,
    /// The server sent a request to its client during a request, in a version of MCP in which it cannot get a response.
    #[error("the upstream server sends requests to its client during a request of 2026-07-28")]
    AsksOutOfTurn,
    /// The server requires input from the user, and cannot ask for it.
    #[error(
        "the upstream server requires input during a request, and its client may not be asked for it"
    )]
    InputRequired,
}

impl UpstreamError {
    /// Converts an error that occurred while connecting, when no request of a caller had been sent yet.
    pub(super) fn before_any_request(self) -> Self {
        match self {
            Self::Unreachable(_)
            | Self::Busy
            | Self::NotConnected { .. }
            | Self::NoCallerToken
            | Self::ToolChanged
            | Self::Status(401 | 403) => self,
            other => Self::Unreachable(other.to_string()),
        }
    }

    /// Converts an error that occurred after the server had accepted the request, or an earlier request of the same call. The
    /// call may have had an effect, and an error that excludes this would cause a retry.
    #[must_use]
    pub fn after_acceptance(self) -> Self {
        match self {
            Self::Unreachable(_)
            | Self::Gone
            | Self::NotConnected { .. }
            | Self::NoCallerToken
            | Self::ToolChanged => Self::Broken(self.to_string()),
            other => other,
        }
    }
}

impl From<EgressError> for UpstreamError {
    fn from(error: EgressError) -> Self {
        match error {
            EgressError::Auth(AuthError::NotConnected { scope }) => Self::NotConnected { scope },
            EgressError::Auth(AuthError::NoCallerToken) => Self::NoCallerToken,
            EgressError::Timeout(limit) => Self::SourceTimeout(limit),
            EgressError::Broken(cause) => Self::Broken(cause),
            EgressError::TooLarge(_) => Self::TooLarge,
            EgressError::Encoded => Self::BadResult("it is compressed, which was not requested"),
            unsent => Self::Unreachable(unsent.to_string()),
        }
    }
}

/// The result of a request, as the server sent it.
pub(super) type RequestResult = Result<Box<RawValue>, UpstreamError>;

/// A JSON-RPC error of an upstream server. Its text may be shown to the caller, if the policy permits it, but is never logged.
#[derive(Clone, Deserialize)]
pub struct UpstreamRpcError {
    /// The error code: one of JSON-RPC, of MCP, or one that the server defines.
    pub code: i64,
    /// The error message of the server.
    #[serde(default)]
    pub message: String,
    /// Additional data of the server, as it was sent.
    #[serde(default)]
    pub data: Option<Box<RawValue>>,
}

impl UpstreamRpcError {
    /// Returns the code for clients. A code that concerns the gateway's own request becomes an internal error.
    pub fn code_for_clients(&self) -> i64 {
        match self.code {
            HEADER_MISMATCH | UNSUPPORTED_VERSION => INTERNAL_ERROR,
            code => code,
        }
    }
}

impl UpstreamRpcError {
    /// Returns the error as a JSON object for clients. Members that concern the gateway's own request, or that only the gateway
    /// may set, are removed; the others are byte for byte as sent. Ambiguous `data` is left out.
    pub fn for_clients(&self) -> String {
        let code = self.code_for_clients();
        let message = Value::from(self.message.as_str());
        let data = self.data.as_ref();
        let data = data.filter(|data| has_unique_members(data.get()));
        let data = data.and_then(|data| data_for_client(data));
        let data = data.map(|data| format!(r#","data":{data}"#));
        let data = data.unwrap_or_default();
        format!(r#"{{"code":{code},"message":{message}{data}}}"#)
    }
}

impl std::fmt::Debug for UpstreamRpcError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UpstreamRpcError")
            .field("code", &self.code)
            .finish_non_exhaustive()
    }
}

/// Returns the `data` of a JSON-RPC error for the client, or `None` if nothing is left of it.
fn data_for_client(data: &RawValue) -> Option<String> {
    if data.get().starts_with('{') {
        return members_except(data, |name| name.starts_with(meta::GATEWAY_PREFIX)).ok()?;
    }
    Some(data.get().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_goes_on_as_it_is_but_for_what_is_not_the_servers_to_say() {
        let for_clients = |text: &str| {
            let error: UpstreamRpcError = serde_json::from_str(text).unwrap();
            error.for_clients()
        };
        let whole = r#"{"code":-32002,"message":"n\"o","data":{"uri":"a:b","n":1.10}}"#;
        assert_eq!(for_clients(whole), whole);
        let forged = r#"{"code":7,"message":"","data":{"dev.wardgate/receipt":1,"n":1.0}}"#;
        assert_eq!(
            for_clients(forged),
            r#"{"code":7,"message":"","data":{"n":1.0}}"#
        );
        for (hop, expected) in [
            (
                r#"{"code":-32022,"message":"m","data":{"supported":[]}}"#,
                r#"{"code":-32603,"message":"m","data":{"supported":[]}}"#,
            ),
            (
                r#"{"code":1,"message":"m","data":{"a":1,"a":2}}"#,
                r#"{"code":1,"message":"m"}"#,
            ),
            (
                r#"{"code":1,"data":"text"}"#,
                r#"{"code":1,"message":"","data":"text"}"#,
            ),
        ] {
            assert_eq!(for_clients(hop), expected);
        }
    }
}
