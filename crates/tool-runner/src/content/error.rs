//! Errors of requests for a prompt, resource or completion.

use wardgate_catalogue::ContentError;
use wardgate_domain::{Reason, Status};

/// The reason why a request for content failed. The message is for the client: it names arguments and rules, never a
/// value, and no internals.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GetError {
    /// No item has that name.
    #[error("no prompt or resource has this name")]
    Unknown,
    /// The arguments are invalid.
    #[error("{0}")]
    Invalid(String),
    /// The client's answers came too late, came twice, or do not belong to the request that asked for them.
    #[error("No request waits for these answers any more. Start the request again.")]
    NotWaiting,
    /// The source answered with a JSON-RPC error.
    #[error("{}", reported_error_text(*.is_about_arguments))]
    Reported {
        /// Whether the error says that the arguments are invalid.
        is_about_arguments: bool,
        /// The error as one JSON object, for a caller who may see everything that the source returns.
        error: String,
    },
    /// The source failed.
    #[error("{words}")]
    Failed {
        status: Status,
        /// The machine-readable reason for the audit record.
        kind: Reason,
        words: &'static str,
    },
}

/// Returns the text of a JSON-RPC error for a caller who may not see everything that the source returns.
fn reported_error_text(is_about_arguments: bool) -> &'static str {
    if is_about_arguments {
        "Invalid arguments: the source does not accept them"
    } else {
        "The source reported an error."
    }
}

impl GetError {
    pub(crate) fn with_reason(kind: Reason, words: &'static str) -> Self {
        Self::Failed {
            status: Status::Error,
            kind,
            words,
        }
    }

    pub(crate) fn too_large() -> Self {
        Self::with_reason(
            Reason::RESULT_TOO_LARGE,
            "The result exceeds the size limit.",
        )
    }

    /// Converts the error of a request that has only a name. A server of MCP 2026-07-28 that reports invalid parameters
    /// for such a request does not know the name.
    pub(crate) fn of_name(self) -> Self {
        match self {
            Self::Reported {
                is_about_arguments: true,
                ..
            } => Self::Unknown,
            error => error,
        }
    }

    /// Returns the status and the kind of error for the audit record.
    pub(crate) fn status_and_reason(&self) -> (Status, Reason) {
        match self {
            Self::Unknown => (Status::InvalidArguments, Reason::UNKNOWN),
            Self::Invalid(_)
            | Self::Reported {
                is_about_arguments: true,
                ..
            } => (Status::InvalidArguments, Reason::INVALID_ARGUMENTS),
            Self::Reported { .. } => (Status::Error, Reason::TOOL_ERROR),
            Self::NotWaiting => (Status::Error, Reason::NOT_WAITING),
            Self::Failed { status, kind, .. } => (*status, *kind),
        }
    }
}

impl From<ContentError> for GetError {
    fn from(error: ContentError) -> Self {
        match error {
            ContentError::Unknown => Self::Unknown,
            ContentError::Invalid(problem) => Self::Invalid(problem),
        }
    }
}
