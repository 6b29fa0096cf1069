//! Why a tool that ran gave nothing.

use std::time::Duration;

use wardgate_domain::Reason;
use wardgate_egress::{AuthError, EgressError};

use wardgate_catalogue::UnfitValue;
use wardgate_mcp_client::UpstreamRpcError;
use wardgate_resilience::Health;
use wardgate_sql::SourceError;

/// The time limit that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TimeLimit {
    /// That of the call, which is its tool's.
    #[error("the time limit of the call ended")]
    Call,
    /// That of the source, for one attempt.
    #[error("the source did not answer within {0:?}")]
    Source(Duration),
    /// One that the source sets itself.
    #[error("the source stopped at a time limit of its own")]
    Unstated,
}

/// A failure of one run. What is meant for the log holds no value of a row or an argument; what the caller
/// reads besides holds no internals.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExecutorError {
    /// Nothing was sent, so nothing can have happened.
    #[error("the source cannot be reached: {0}")]
    Unreachable(String),
    /// The source has no room for another call now; it asks to be left alone for so long.
    #[error("the source is busy, and asks for a pause of {0:?}")]
    Busy(Duration),
    /// Nothing was done: the caller has to let this source act in their name first. Where the source says so, with
    /// these scopes besides those they granted.
    #[error("the caller has not connected the source yet")]
    NotConnected { scope: Option<String> },
    /// It took too long.
    #[error("{0}")]
    Timeout(TimeLimit),
    /// Nothing was sent: the MCP server offers another tool under this name than the one that was approved.
    #[error("the upstream server offers another tool under this name than was approved")]
    ToolChanged,
    /// It failed midway: whether anything happened is open.
    #[error("the source failed midway: {0}")]
    Broken(String),
    /// The source answered, and the answer is no.
    #[error("the source refused: {cause}")]
    Refused {
        /// Machine-readable, for the record.
        kind: Reason,
        /// For the caller.
        text: String,
        /// For the log.
        cause: String,
    },
    /// The source answered that it cannot do its work now.
    #[error("the source is unavailable: {text}")]
    Unavailable {
        /// For the caller and the log.
        text: String,
        /// For how long it asks to be left alone, where that is all it says.
        pause: Option<Duration>,
    },
    /// A value that the target cannot take; the text names the argument, never the value.
    #[error("{text}")]
    BadArgument { text: String },
    /// What came back cannot be shown.
    #[error("the result cannot be shown: {0}")]
    BadResult(String),
    /// What came back is not what the tool's configuration says of it. The text is for the caller too: it names columns
    /// and places of the configuration, never a value.
    #[error("{0}")]
    Misshapen(String),
    /// What came back is larger than a result may be.
    #[error("the result is larger than a result may be")]
    TooLarge,
    /// What was to go on waits for nobody any more; whether it happened in part is open.
    #[error("nothing waits for these answers")]
    NotWaiting,
    /// The source failed in words of its own. They may hold anything, so they are governed like the column
    /// `error` of a row, and never logged.
    #[error("the source reported an error")]
    Reported(String),
    /// An MCP server answered with a JSON-RPC error. Its words are governed like those of [`Self::Reported`].
    #[error("the upstream server answered with JSON-RPC error {}", .0.code)]
    Protocol(UpstreamRpcError),
}

impl From<SourceError> for ExecutorError {
    fn from(error: SourceError) -> Self {
        let cause = error.to_string();
        match error {
            SourceError::Unreachable(_) => Self::Unreachable(cause),
            // It has waited already.
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
    /// What it says of the source.
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

/// What the caller of a tool reads; the log gets all of it.
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
                "the service needs the caller's token, which did not come with the call",
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
                "the service leads to where this tool may not go",
            ),
        }
    }
}
