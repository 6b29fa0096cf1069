//! Errors of a tool that ran without giving a result.

use std::time::Duration;

use wardgate_domain::Reason;
use wardgate_egress::{AuthError, EgressError};

use wardgate_catalogue::UnfitValue;
use wardgate_mcp_client::UpstreamRpcError;
use wardgate_resilience::Health;
use wardgate_sql::SourceError;

/// The time limit that was exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TimeLimit {
    /// The limit of the call, which is the limit of its tool.
    #[error("the time limit of the call was exceeded")]
    Call,
    /// The limit of the source for one attempt.
    #[error("the source did not answer within {0:?}")]
    Source(Duration),
    /// A limit that the source itself sets.
    #[error("the source stopped at its own time limit")]
    Unstated,
}

/// The failure of one run. The texts for the log contain no value of a row or an argument; the texts for the caller
/// contain no internals either.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExecutorError {
    /// The source cannot be reached. Nothing was sent, so nothing can have happened.
    #[error("the source cannot be reached: {0}")]
    Unreachable(String),
    /// The source has no capacity for another call now, and asks for a pause of this length.
    #[error("the source is busy, and requests a pause of {0:?}")]
    Busy(Duration),
    /// The caller has to let this source act in their name first, so nothing was done. `scope` holds the scopes that
    /// the source requires in addition to those that the caller granted, if it names any.
    #[error("the caller has not authorized the source yet")]
    NotConnected { scope: Option<String> },
    /// A time limit was exceeded.
    #[error("{0}")]
    Timeout(TimeLimit),
    /// The MCP server offers another tool under this name than the one that was approved, so nothing was sent.
    #[error("the definition of the tool at the upstream server differs from the approved one")]
    ToolChanged,
    /// The source failed midway. Whether anything happened is not known.
    #[error("the source failed during the call: {0}")]
    Broken(String),
    /// The source refused the request.
    #[error("the source refused: {cause}")]
    Refused {
        /// The machine-readable reason for the audit record.
        kind: Reason,
        /// The text for the caller.
        text: String,
        /// The text for the log.
        cause: String,
    },
    /// The source answered that it cannot process requests now.
    #[error("the source is unavailable: {text}")]
    Unavailable {
        /// The text for the caller and the log.
        text: String,
        /// The pause that the source asks for, if it reports no other problem.
        pause: Option<Duration>,
    },
    /// The target does not accept a value. The text names the argument, never the value.
    #[error("{text}")]
    BadArgument { text: String },
    /// The result cannot be shown.
    #[error("the result cannot be shown: {0}")]
    BadResult(String),
    /// The result does not have the shape that the tool's configuration states. The text is also shown to the caller:
    /// it names columns and places in the configuration, never a value.
    #[error("{0}")]
    Misshapen(String),
    /// The result exceeds the maximum size.
    #[error("the result exceeds the size limit of results")]
    TooLarge,
    /// No suspended exchange waits for the client's answers. Whether the call ran in part is not known.
    #[error("no call waits for these answers")]
    NotWaiting,
    /// The source reported an error in its own words. The message may contain anything, so it is governed like the
    /// column `error` of a row and is never logged.
    #[error("the source reported an error")]
    Reported(String),
    /// An MCP server answered with a JSON-RPC error. Its message is governed like that of [`Self::Reported`].
    #[error("the upstream server answered with JSON-RPC error {}", .0.code)]
    Protocol(UpstreamRpcError),
}

impl From<SourceError> for ExecutorError {
    fn from(error: SourceError) -> Self {
        let cause = error.to_string();
        match error {
            SourceError::Unreachable(_) => Self::Unreachable(cause),
            // The pool has already waited for a connection, so no further pause is requested.
            SourceError::Busy(_) => Self::Busy(Duration::ZERO),
            SourceError::Timeout => Self::Timeout(TimeLimit::Unstated),
            SourceError::Broken(_) => Self::Broken(cause),
            SourceError::Refused(_) => Self::Refused {
                kind: Reason::SQL_ERROR,
                text: "the data source refused the query".to_owned(),
                cause,
            },
            SourceError::ColumnType { .. }
            | SourceError::Value { .. }
            | SourceError::UnknownType
            | SourceError::DuplicateColumn(_) => Self::Misshapen(cause),
        }
    }
}

impl ExecutorError {
    /// Returns what the error implies for the health of the source.
    pub(crate) fn health(&self) -> Health {
        match self {
            Self::Unreachable(_) | Self::Broken(_) => Health::Down,
            Self::Timeout(_) => Health::TimedOut,
            Self::Busy(pause) => Health::Busy(*pause),
            Self::Unavailable { pause, .. } => pause.map_or(Health::Down, Health::Busy),
            Self::Refused { .. }
            | Self::NotConnected { .. }
            | Self::ToolChanged
            | Self::BadArgument { .. }
            | Self::BadResult(_)
            | Self::Misshapen(_)
            | Self::TooLarge
            | Self::NotWaiting
            | Self::Reported(_)
            | Self::Protocol(_) => Health::Up,
        }
    }
}

impl From<UnfitValue> for ExecutorError {
    fn from(unfit: UnfitValue) -> Self {
        Self::BadArgument {
            text: unfit.to_string(),
        }
    }
}

/// Gives the caller only a general text; the full cause goes to the log.
impl From<EgressError> for ExecutorError {
    fn from(error: EgressError) -> Self {
        let cause = error.to_string();
        let refused = |kind, text: &str| Self::Refused {
            kind,
            text: text.to_owned(),
            cause: cause.clone(),
        };
        match error {
            EgressError::Unreachable(_) | EgressError::Auth(AuthError::Endpoint(_)) => {
                Self::Unreachable(cause)
            }
            EgressError::Timeout(limit) => Self::Timeout(TimeLimit::Source(limit)),
            EgressError::Broken(_) => Self::Broken(cause),
            EgressError::TooLarge(_) => Self::TooLarge,
            EgressError::Encoded => Self::BadResult(cause),
            EgressError::Auth(AuthError::NotConnected { scope }) => Self::NotConnected { scope },
            EgressError::Auth(AuthError::NoStore) => Self::Unavailable {
                text: cause,
                pause: None,
            },
            EgressError::Auth(AuthError::NoCallerToken) => refused(
                Reason::NO_CREDENTIALS,
                "the service requires the caller's token, which was not sent with the call",
            ),
            EgressError::Auth(_) => refused(
                Reason::NO_CREDENTIALS,
                "no credentials for the service were granted",
            ),
            EgressError::NotHttp
            | EgressError::HostNotListed(_)
            | EgressError::AddressRefused(_)
            | EgressError::Downgrade
            | EgressError::TooManyRedirects(_)
            | EgressError::Setup(_) => refused(
                Reason::EGRESS_REFUSED,
                "the service leads to an address that is not allowed for this tool",
            ),
        }
    }
}
