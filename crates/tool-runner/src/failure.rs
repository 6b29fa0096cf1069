//! Failures of a call, in words that the client may read.

use std::time::Duration;

use wardgate_domain::{Reason, Status, duration};

use crate::executor_error::{ExecutorError, TimeLimit};
use crate::result;
use crate::store::keyed::KeyedCallState;
use wardgate_resilience::{GuardError, Limit, LimitReached};

/// The facts about a call that its failure message mentions.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FailedCall<'a> {
    /// The time limit of the call.
    pub(crate) limit: Duration,
    /// The name of the source that was called, or `None` if the tool has no source.
    pub(crate) source: Option<&'a str>,
    /// The number of attempts made at calling the source.
    pub(crate) attempts: u32,
}

/// A failure as the client may see it.
pub(crate) struct Failure {
    pub(crate) text: String,
    pub(crate) status: Status,
    pub(crate) kind: Reason,
    /// The time after which the call may be retried, or `None` if it is not known.
    pub(crate) retry_after: Option<Duration>,
    pub(crate) effect: ToolEffect,
}

impl Failure {
    pub(crate) fn new(kind: Reason, text: String) -> Self {
        Self {
            text,
            status: Status::Error,
            kind,
            retry_after: None,
            effect: ToolEffect::Done,
        }
    }

    /// Marks the failure as one that had no effect.
    pub(crate) fn without_effect(self) -> Self {
        Self {
            effect: ToolEffect::None,
            ..self
        }
    }

    /// Marks the failure as one that may have had an effect.
    pub(crate) fn with_possible_effect(self) -> Self {
        Self {
            effect: ToolEffect::Possible,
            ..self
        }
    }

    pub(crate) fn tool(kind: Reason, text: &str) -> Self {
        Self::new(kind, format!("Tool execution failed: {text}"))
    }

    pub(crate) fn invalid(text: String) -> Self {
        Self {
            status: Status::InvalidArguments,
            ..Self::new(Reason::INVALID_ARGUMENTS, text).without_effect()
        }
    }

    pub(crate) fn timeout(limit: Duration) -> Self {
        Self {
            status: Status::Timeout,
            ..Self::new(Reason::TIMEOUT, result::timeout_text(limit)).with_possible_effect()
        }
    }

    /// Creates the failure for the given time limit. The limit of a source applies to each attempt.
    fn timed_out(limit: TimeLimit, call: &FailedCall<'_>) -> Self {
        let source = match call.source {
            Some(name) => format!("the source `{name}`"),
            None => "its source".to_owned(),
        };
        let text = match limit {
            TimeLimit::Call => return Self::timeout(call.limit),
            TimeLimit::Source(limit) => {
                let within = duration::format(limit);
                let attempts = match call.attempts {
                    0 | 1 => String::new(),
                    attempts => format!(", in {attempts} attempts"),
                };
                format!("Timeout: {source} did not answer within {within}{attempts}")
            }
            TimeLimit::Unstated => {
                format!("Timeout: {source} stopped at its own time limit")
            }
        };
        Self {
            text,
            ..Self::timeout(call.limit)
        }
    }

    pub(crate) fn too_large() -> Self {
        Self::tool(
            Reason::RESULT_TOO_LARGE,
            "a single row exceeds the size limit of results",
        )
    }

    pub(crate) fn late_row_rule() -> Self {
        Self::tool(
            Reason::ROW_RULE_TOO_LATE,
            "its database does not apply the rule about the rows that you may read, which this tool requires; it was not run",
        )
        .without_effect()
    }

    /// Creates the failure for a key whose state does not let the call run.
    pub(crate) fn for_key_state(state: &KeyedCallState) -> Self {
        match state {
            KeyedCallState::SameKeyOtherArguments => Self::tool(
                Reason::IDEMPOTENCY_CONFLICT,
                "its idempotency key was used with other arguments; use a new key",
            ),
            KeyedCallState::Running => Self::tool(
                Reason::IDEMPOTENCY_RUNNING,
                "the call with its idempotency key is still running; try again later",
            ),
            KeyedCallState::DoneUnderOtherTerms => Self::tool(
                Reason::IDEMPOTENCY_DONE,
                "it ran before, and the rules for its result have changed since",
            ),
            // The caller of this function handles the other states.
            KeyedCallState::Fresh(_)
            | KeyedCallState::Waiting(_)
            | KeyedCallState::Done(_)
            | KeyedCallState::Unknown => Self::unknown_outcome(),
        }
    }

    pub(crate) fn unknown_outcome() -> Self {
        Self::tool(
            Reason::IDEMPOTENCY_UNKNOWN,
            "the call with its idempotency key began, and its outcome is unknown; check its effect before you use a new key",
        )
    }

    pub(crate) fn no_store() -> Self {
        Self::unavailable("idempotency keys cannot be stored now, so nothing was run")
            .without_effect()
    }

    pub(crate) fn from_guard_error(
        error: &GuardError<ExecutorError>,
        call: &FailedCall<'_>,
    ) -> Self {
        match error {
            GuardError::TimedOut => Self::timeout(call.limit),
            GuardError::Limited(LimitReached { limit, retry_after }) => Self {
                retry_after: Some(*retry_after),
                ..match limit {
                    Limit::Rate => {
                        Self::tool(Reason::RATE_LIMITED, "its rate limit is exceeded; wait")
                    }
                    Limit::Concurrency => {
                        Self::tool(Reason::BUSY, "too many of its calls are running")
                    }
                }
                .without_effect()
            },
            GuardError::SourceUnavailable { retry_after } => Self {
                retry_after: Some(*retry_after),
                ..Self::unavailable("the data source failed repeatedly and is not called for now")
                    .without_effect()
            },
            GuardError::Failed(error) => Self::executor(error, call),
        }
    }

    /// Creates the failure for answers of a client that came too late, came twice, or do not belong to the request that
    /// asked for them.
    pub(crate) fn not_waiting() -> Self {
        Self::tool(
            Reason::NOT_WAITING,
            "no call waits for these answers any more, and the call may have run in part; check its effect before you call again",
        )
        .with_possible_effect()
    }

    pub(crate) fn unavailable(text: &str) -> Self {
        Self::tool(Reason::SOURCE_UNAVAILABLE, text)
    }

    pub(crate) fn executor(error: &ExecutorError, call: &FailedCall<'_>) -> Self {
        match error {
            ExecutorError::Timeout(limit) => Self::timed_out(*limit, call),
            ExecutorError::NotConnected { .. } => Self::tool(
                Reason::NOT_CONNECTED,
                "its source acts in your name, and you have not authorized it yet",
            )
            .without_effect(),
            ExecutorError::ToolChanged => Self::tool(
                Reason::TOOL_CHANGED,
                "the upstream server changed this tool after it was approved, so it was not called; `wardgate tools diff` shows the change",
            )
            .without_effect(),
            ExecutorError::Unreachable(_) => {
                Self::unavailable("the data source cannot be reached").without_effect()
            }
            ExecutorError::Busy(_) => Self::unavailable("the data source is busy").without_effect(),
            ExecutorError::Unavailable { text, .. } => Self::unavailable(text).with_possible_effect(),
            ExecutorError::Broken(_) => {
                Self::unavailable("the connection to the data source failed").with_possible_effect()
            }
            ExecutorError::Refused { kind, text, .. } => Self::tool(*kind, text),
            ExecutorError::BadArgument { text } => {
                Self::invalid(format!("Invalid arguments: {text}"))
            }
            ExecutorError::BadResult(_) => Self::tool(
                Reason::BAD_RESULT,
                "the data source returned a result that cannot be shown",
            ),
            ExecutorError::Misshapen(text) => Self::tool(Reason::BAD_RESULT, text),
            ExecutorError::TooLarge => {
                Self::tool(
                    Reason::RESULT_TOO_LARGE,
                    "the result is larger than `max_response_bytes` of its source (1 MiB unless set) or `tool_runner.max_result_bytes` allows",
                )
            }
            ExecutorError::NotWaiting => Self::not_waiting(),
            // [`AdmittedCall::reported_failure`] releases the words of these errors.
            ExecutorError::Reported(_) | ExecutorError::Protocol(_) => {
                Self::tool(Reason::TOOL_ERROR, "the tool reported an error")
            }
        }
    }
}

/// Whether a run may have had an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ToolEffect {
    None,
    Possible,
    Done,
}
