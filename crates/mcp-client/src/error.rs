//! What can go wrong with an upstream server. No text of the server's is ever part of a message.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use wardgate_egress::{AuthError, EgressError};
use wardgate_json::has_unique_members;
use wardgate_mcp::error_code::{HEADER_MISMATCH, INTERNAL_ERROR, UNSUPPORTED_VERSION};
use wardgate_mcp::meta;

use super::members::members_except;

/// Why a request to an upstream server has no result.
#[derive(Debug, Clone, thiserror::Error)]
pub enum UpstreamError {
    /// Nothing was sent.
    #[error("the upstream server cannot be reached: {0}")]
    Unreachable(String),
    /// Nothing was done: the connection had ended, or the server no longer knows our session, and so took nothing of
    /// the request. A new connection may do.
    #[error("the connection to the upstream server has ended")]
    Gone,
    /// Nothing was done: the person has to grant that first; where the server says so, these scopes besides those they
    /// granted.
    #[error("the caller has not connected the upstream server yet")]
    NotConnected {
        /// What the server wants besides what was granted, separated by spaces.
        scope: Option<String>,
    },
    /// The source needs the caller's own token.
    #[error("the caller's token did not come with the call")]
    NoCallerToken,
    /// Nothing was sent: the server offers another tool under that name than was approved, or none.
    #[error("the upstream server offers another tool under this name than was approved")]
    ToolChanged,
    /// Nothing was sent; there are too many requests already.
    #[error("too many requests wait for the upstream server")]
    Busy,
    /// Whether the server acted is open.
    #[error("the upstream server did not answer in time")]
    Timeout,
    /// The time limit of the source ended; whether the request had an effect is open.
    #[error("the upstream server did not answer within {0:?}; see `timeout` of the source")]
    SourceTimeout(Duration),
    /// Whether the request had an effect is open.
    #[error("the connection to the upstream server broke: {0}")]
    Broken(String),
    /// An HTTP status that is neither success nor a JSON-RPC error.
    #[error("the upstream server answered with HTTP status {0}")]
    Status(u16),
    /// The server's own answer.
    #[error("the upstream server answered with JSON-RPC error {}", .0.code)]
    Rpc(UpstreamRpcError),
    /// The server acted, and its result is of no use.
    #[error("the upstream server gave an answer that cannot be used: {0}")]
    BadResult(&'static str),
    /// The server acted, and its result is larger than the limit.
    #[error("the upstream server gave an answer that is too large")]
    TooLarge,
    /// The server asks its client in the middle of a request, in a version of MCP in which it gets no answer.
    #[error("the upstream server asks its client in the middle of a request of 2026-07-28")]
    AsksOutOfTurn,
    /// The server wants something of the user's before it goes on.
    #[error(
        "the upstream server asks for input in the middle of a request, and its client may not be asked"
    )]
    InputRequired,
}

impl UpstreamError {
    /// What it means when it came up before there was a connection: nothing of a caller's was sent.
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

    /// What it means when it came up after the server had taken the request, or one before it of the same call: then
    /// something may have been done, and what says otherwise would have the call made again.
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
            EgressError::Encoded => Self::BadResult("it is compressed, though nobody asked for it"),
            unsent => Self::Unreachable(unsent.to_string()),
        }
    }
}

/// The result of a request, as the server wrote it.
pub(super) type RequestResult = Result<Box<RawValue>, UpstreamError>;

/// A JSON-RPC error of an upstream server. Its words are the server's: for the caller, by the policy; never for the log.
#[derive(Clone, Deserialize)]
pub struct UpstreamRpcError {
    /// Of JSON-RPC, of MCP, or the server's own.
    pub code: i64,
    /// In the server's words.
    #[serde(default)]
    pub message: String,
    /// As it was sent.
    #[serde(default)]
    pub data: Option<Box<RawValue>>,
}

impl UpstreamRpcError {
    /// Its code, unless that is about our own request.
    pub fn code_for_clients(&self) -> i64 {
        match self.code {
            HEADER_MISMATCH | UNSUPPORTED_VERSION => INTERNAL_ERROR,
            code => code,
        }
    }
}

impl UpstreamRpcError {
    /// The error as one JSON object, byte for byte but for what is about our own request or for the gateway alone to say.
    /// `data` that readers could take for different things is left out.
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

/// The `data` of a JSON-RPC error as it is for the client; none where nothing is left of it.
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
