//! Why a prompt, resource or completion cannot be given.

use wardgate_catalogue::ContentError;
use wardgate_domain::{Reason, Status};

/// Its message is for the client: it names arguments and rules, never a value, and no internals.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GetError {
    /// There is none of that name.
    #[error("there is none of that name")]
    Unknown,
    /// The arguments do not fit.
    #[error("{0}")]
    Invalid(String),
    /// What a client answered comes too late, twice, or to something else than what asked.
    #[error("Nothing waits for these answers any more. Ask again from the start.")]
    NotWaiting,
    /// The source answered with a JSON-RPC error.
    #[error("{}", reported_error_text(*.is_about_arguments))]
    Reported {
        /// It says that the arguments do not fit.
        is_about_arguments: bool,
        /// The error for a caller who may see all that the source says: one JSON object.
        error: String,
    },
    /// The source failed.
    #[error("{words}")]
    Failed {
        status: Status,
        /// Machine-readable, for the record.
        kind: Reason,
        words: &'static str,
    },
}

/// What a caller hears of a JSON-RPC error who may not see all that the source says.
fn reported_error_text(is_about_arguments: bool) -> &'static str {
    if is_about_arguments {
        "Invalid arguments: the source does not take them"
    } else {
        "The source reported an error."
    }
}

impl GetError {
    pub(crate) fn failed(kind: Reason, words: &'static str) -> Self {
        Self::Failed {
            status: Status::Error,
            kind,
            words,
        }
    }

    pub(crate) fn too_large() -> Self {
        Self::failed(
            Reason::RESULT_TOO_LARGE,
            "It is larger than a result may be.",
        )
    }

    /// The same of a request by a name alone: a server of 2026-07-28 that does not take it knows no such name.
    pub(crate) fn of_name(self) -> Self {
        match self {
            Self::Reported {
                is_about_arguments: true,
                ..
            } => Self::Unknown,
            error => error,
        }
    }

    /// The status and the kind of error, for the record.
    pub(crate) fn recorded(&self) -> (Status, Reason) {
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
