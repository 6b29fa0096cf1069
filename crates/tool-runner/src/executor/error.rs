//! Why a tool that ran gave nothing.

use std::time::Duration;

use crate::catalogue::UnfitValue;

/// A failure of one run. What is meant for the log holds no value of a row or an argument; what the caller
/// reads besides holds no internals.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExecutorError {
    /// Nothing was sent, so nothing can have happened.
    #[error("the source cannot be reached: {0}")]
    Unreachable(String),
    /// The source has no room for another call now.
    #[error("the source was busy for {0:?}")]
    Busy(Duration),
    /// The source gave up at the time limit.
    #[error("the source stopped at its time limit")]
    Timeout,
    /// It failed midway: whether anything happened is open.
    #[error("the source failed midway: {0}")]
    Broken(String),
    /// The source answered, and the answer is no.
    #[error("the source refused: {cause}")]
    Refused {
        /// Machine-readable, for the record.
        kind: &'static str,
        /// For the caller.
        text: String,
        /// For the log.
        cause: String,
    },
    /// A value that the target cannot take; the text names the argument, never the value.
    #[error("{text}")]
    BadArgument { text: String },
    /// What came back cannot be shown.
    #[error("the result cannot be shown: {0}")]
    BadResult(String),
    /// What came back is larger than a result may be.
    #[error("the result is larger than a result may be")]
    TooLarge,
    /// The source failed in words of its own. They may hold anything, so they are governed like the column
    /// `error` of a row, and never logged.
    #[error("the source reported an error")]
    Reported(String),
}

impl ExecutorError {
    /// The kind of a refusal that is no answer to the call: the source is in trouble, and says so.
    pub(crate) const UNAVAILABLE: &'static str = "source_unavailable";

    /// The source itself is in trouble, so it counts against it, and another try may do.
    pub(crate) fn is_outage(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::Busy(_) | Self::Timeout | Self::Broken(_) => true,
            Self::Refused { kind, .. } => *kind == Self::UNAVAILABLE,
            _ => false,
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
