//! Why there is nothing to give.

use std::borrow::Cow;
use std::time::Duration;

use wardgate_domain::{AgentRefusal, DecisionId, DenialReason, Status};

use crate::dialogue::{Interrupted, Unanswered, Unaskable};
use crate::reply::RpcError;

/// Why nothing is given.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Nobody offers it.
    Unknown,
    /// It is switched off for the caller.
    Disabled,
    Denied {
        reason: DenialReason,
        decision: DecisionId,
        /// The caller may know that it is there.
        visible: bool,
    },
    /// The agent that sends the call does not make it.
    RefusedByAgent(AgentRefusal),
    /// The caller may, but not by this token.
    Scope(RpcError),
    /// The headers say something else than the arguments.
    Misrepeated(RpcError),
    /// A neighbour did nothing of it: it had too much to do, or did not decide.
    NotTaken(RpcError),
    /// The tool-runner or what is run failed.
    Failed {
        kind: &'static str,
        message: &'static str,
    },
    /// The tool-runner failed while what may write was perhaps running.
    Lost,
    /// The time limit passed.
    Late(Duration),
    /// The client went away.
    Cancelled,
    /// What had to be on record first is not.
    NotRecorded,
    /// What it was to go on with has been used.
    UsedUp,
    /// It needs a client with these capabilities, a JSON object.
    Undeclared(Cow<'static, str>),
    /// Its server shows it only to clients that can do more, and in the client's version it is one that there is not.
    NotForClient,
    /// It waits for the client, and would go on waiting.
    Unanswered(Unanswered),
}

impl Stop {
    /// It asks, but not in a way that a client could be asked.
    pub(super) const BAD_QUESTIONS: Self = Self::Failed {
        kind: "bad_input_requests",
        message: "It asks for input in a way that cannot be passed on.",
    };

    /// Whether the caller is not to know that there is such a thing.
    pub(super) fn is_hidden(&self) -> bool {
        matches!(
            self,
            Self::Unknown | Self::Disabled | Self::Denied { visible: false, .. }
        )
    }

    /// What the record says of it. What there is not has another name wherever it is not.
    pub(super) fn on_record(&self) -> (Status, &'static str) {
        match self {
            Self::Unknown => (Status::UnknownTool, "unknown"),
            Self::Disabled => (Status::Denied, "disabled"),
            Self::Denied { reason, .. } => (Status::Denied, reason.as_str()),
            Self::RefusedByAgent(refusal) => (refusal.status(), refusal.as_str()),
            Self::Scope(error) => (Status::Denied, error.reason()),
            Self::Misrepeated(_) => (Status::InvalidArguments, "header_mismatch"),
            Self::NotTaken(error) => (Status::Error, error.reason()),
            Self::Failed { kind, .. } => (Status::Error, *kind),
            Self::Lost => (Status::Unknown, "tool_runner_unavailable"),
            Self::Late(_) => (Status::Timeout, "timeout"),
            Self::Cancelled => (Status::Cancelled, "cancelled"),
            Self::NotRecorded => (Status::Error, "not_durable"),
            Self::UsedUp => (Status::InvalidArguments, "unknown_state"),
            Self::Undeclared(_) | Self::NotForClient => (Status::Error, "missing_capability"),
            Self::Unanswered(unanswered) => (Status::Error, unanswered.as_str()),
        }
    }

    /// What a client is told; `not_there` of what there is not.
    pub(super) fn error(&self, not_there: impl FnOnce() -> RpcError) -> RpcError {
        let (_, kind) = self.on_record();
        match self {
            // The same words for all: what you may not have you do not see.
            Self::Unknown | Self::Disabled | Self::Denied { .. } | Self::NotForClient => {
                not_there()
            }
            Self::RefusedByAgent(_) => RpcError::refused_by_agent(),
            Self::Scope(error) | Self::Misrepeated(error) | Self::NotTaken(error) => error.clone(),
            Self::Failed { message, .. } => RpcError::internal(kind, *message),
            Self::Lost => RpcError::internal(
                "unknown",
                "It is not known whether the tool ran; check before you repeat the call.",
            ),
            Self::Late(limit) => {
                RpcError::internal(kind, format!("Timeout after {}s", limit.as_secs_f64()))
            }
            Self::Cancelled => RpcError::internal(kind, "The call was cancelled."),
            Self::NotRecorded => RpcError::internal(
                kind,
                "The call cannot be recorded durably, so nothing is released. Try again later.",
            ),
            Self::UsedUp => RpcError::unknown_state(),
            Self::Undeclared(required) => RpcError::missing_capability(required.clone()),
            Self::Unanswered(unanswered) => RpcError::internal(kind, unanswered.in_words()),
        }
    }
}

impl From<Unaskable> for Stop {
    fn from(unaskable: Unaskable) -> Self {
        match unaskable {
            Unaskable::Malformed => Self::BAD_QUESTIONS,
            Unaskable::Undeclared(required) => Self::Undeclared(required.into()),
        }
    }
}

/// Why a run gave nothing.
#[derive(Debug)]
pub(crate) enum Ran {
    PermitRefused,
    Stopped(Stop),
}

impl From<Stop> for Ran {
    fn from(stop: Stop) -> Self {
        Self::Stopped(stop)
    }
}

impl From<Interrupted> for Ran {
    fn from(interrupted: Interrupted) -> Self {
        Self::Stopped(match interrupted {
            Interrupted::Cancelled => Stop::Cancelled,
            Interrupted::Panicked => Stop::Failed {
                kind: "panic",
                message: "Internal error.",
            },
        })
    }
}

impl From<Ran> for Stop {
    fn from(ran: Ran) -> Self {
        match ran {
            Ran::PermitRefused => Self::Failed {
                kind: "permit_refused",
                message: "The tool-runner refused the call's permit. Try again.",
            },
            Ran::Stopped(stop) => stop,
        }
    }
}
