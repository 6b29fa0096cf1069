//! The reasons for which a call has no output.

use std::borrow::Cow;
use std::time::Duration;

use wardgate_domain::{AgentRefusal, DecisionId, DenialReason, Reason, Status};
use wardgate_mcp_server::{InputRequestError, RpcError};

use crate::authority::ApprovalNeed;
use crate::client_interaction::{InputError, Interruption};

/// The reason for which a call has no output.
#[derive(Debug)]
pub(crate) enum Rejection {
    /// No source offers the entry.
    Unknown,
    /// The entry is switched off for the caller.
    Disabled,
    /// The policy denied the call.
    Denied {
        reason: DenialReason,
        decision: DecisionId,
        /// Whether the caller may know that the entry exists.
        visible: bool,
        /// The approval with which the call would be allowed, or `None` if no approval would help.
        need: Option<Box<ApprovalNeed>>,
    },
    /// The call waits for an approval.
    ApprovalRequired(RpcError),
    /// An approval that the call needs was refused.
    ApprovalRefused,
    /// The agent that sent the call refuses it itself.
    RefusedByAgent(AgentRefusal),
    /// The caller has the right, but the token lacks a scope.
    Scope(RpcError),
    /// A mirrored header differs from the argument in the body.
    HeaderMismatch(RpcError),
    /// The call was refused before anything ran: a quota is used up, or a neighbouring service was overloaded or did not decide.
    NotAttempted(RpcError),
    /// The tool-runner failed, or the tool that it ran.
    Failed { kind: Reason, message: &'static str },
    /// The tool-runner failed, and the operation, which may write, has possibly run.
    OutcomeUnknown,
    /// The time limit expired.
    TimedOut(Duration),
    /// The client cancelled the call or disconnected.
    Cancelled,
    /// The call did not complete before the process exits.
    Exiting,
    /// A record that the call requires could not be made durable.
    NotRecorded,
    /// The `requestState` was used before.
    StateAlreadyUsed,
    /// The client lacks these capabilities, a JSON object.
    MissingCapability(Cow<'static, str>),
    /// The server offers the tool only to clients with more capabilities. For an older client the tool is unknown.
    NotForClient,
    /// The client did not provide the input that was requested.
    InputError(InputError),
}

impl Rejection {
    /// The rejection of a call whose server requests input in a form that cannot be passed on to a client.
    pub(super) const BAD_INPUT_REQUESTS: Self = Self::Failed {
        kind: Reason::BAD_INPUT_REQUESTS,
        message: "The source requests input in a form that cannot be forwarded.",
    };

    /// Returns whether the existence of the entry is hidden from the caller.
    pub(super) fn is_hidden(&self) -> bool {
        matches!(
            self,
            Self::Unknown | Self::Disabled | Self::Denied { visible: false, .. }
        )
    }

    /// Returns the status and the reason for the record. For [`Self::Unknown`],
    /// [`Description::unknown_reason`](super::Description::unknown_reason) replaces the reason.
    pub(super) fn record_status(&self) -> (Status, Reason) {
        match self {
            Self::Unknown => (Status::UnknownTool, Reason::UNKNOWN),
            Self::Disabled => (Status::Denied, Reason::DISABLED),
            Self::Denied { reason, .. } => (Status::Denied, reason.reason()),
            Self::ApprovalRequired(_) => (Status::Denied, Reason::APPROVAL_REQUIRED),
            Self::ApprovalRefused => (Status::Denied, Reason::APPROVAL_REFUSED),
            Self::RefusedByAgent(refusal) => (refusal.status(), refusal.reason()),
            Self::Scope(error) => (Status::Denied, error.reason()),
            Self::HeaderMismatch(_) => (Status::InvalidArguments, Reason::HEADER_MISMATCH),
            Self::NotAttempted(error) => (Status::Error, error.reason()),
            Self::Failed { kind, .. } => (Status::Error, *kind),
            Self::OutcomeUnknown => (Status::Unknown, Reason::TOOL_RUNNER_UNAVAILABLE),
            Self::TimedOut(_) => (Status::Timeout, Reason::TIMEOUT),
            Self::Cancelled => (Status::Cancelled, Reason::CANCELLED),
            Self::Exiting => (Status::Error, Reason::GATEWAY_STOPPING),
            Self::NotRecorded => (Status::Error, Reason::NOT_DURABLE),
            Self::StateAlreadyUsed => (Status::InvalidArguments, Reason::UNKNOWN_STATE),
            Self::MissingCapability(_) | Self::NotForClient => {
                (Status::Error, Reason::MISSING_CAPABILITY)
            }
            Self::InputError(error) => (Status::Error, error.reason()),
        }
    }

    /// Returns the error for the client, which is `not_found_error` for an entry that is unknown or hidden.
    pub(super) fn error(&self, not_found_error: impl FnOnce() -> RpcError) -> RpcError {
        let (_, kind) = self.record_status();
        match self {
            // All of these share one error, so that a hidden entry cannot be told from an unknown one.
            Self::Unknown | Self::Disabled | Self::Denied { .. } | Self::NotForClient => {
                not_found_error()
            }
            Self::RefusedByAgent(_) => RpcError::refused_by_agent(),
            Self::ApprovalRefused => {
                RpcError::internal(kind, "An approval that this call requires was refused.")
            }
            Self::ApprovalRequired(error)
            | Self::Scope(error)
            | Self::HeaderMismatch(error)
            | Self::NotAttempted(error) => error.clone(),
            Self::Failed { message, .. } => RpcError::internal(kind, *message),
            Self::OutcomeUnknown => RpcError::internal(
                Reason::UNKNOWN,
                "It is not known whether the tool ran; check before you repeat the call.",
            ),
            Self::TimedOut(limit) => {
                RpcError::internal(kind, format!("Timeout after {}s", limit.as_secs_f64()))
            }
            Self::Cancelled => RpcError::internal(kind, "The call was cancelled."),
            Self::Exiting => {
                let message = "The gateway is shutting down. Check whether the tool ran before you repeat the call.";
                RpcError::internal(kind, message)
            }
            Self::NotRecorded => RpcError::internal(
                kind,
                "The call cannot be recorded durably, so its result is not released. Try again later.",
            ),
            Self::StateAlreadyUsed => RpcError::unknown_state(),
            Self::MissingCapability(required) => RpcError::missing_capability(required.clone()),
            Self::InputError(error) => RpcError::internal(kind, error.in_words()),
        }
    }
}

impl From<InputError> for Rejection {
    fn from(error: InputError) -> Self {
        match error {
            InputError::Cancelled => Self::Cancelled,
            error => Self::InputError(error),
        }
    }
}

impl From<InputRequestError> for Rejection {
    fn from(error: InputRequestError) -> Self {
        match error {
            InputRequestError::Malformed => Self::BAD_INPUT_REQUESTS,
            InputRequestError::Undeclared(required) => Self::MissingCapability(required.into()),
        }
    }
}

/// The reason for which a run has no output.
#[derive(Debug)]
pub(crate) enum RunError {
    /// The tool-runner refused the permit. The call is authorized again, once.
    PermitRefused,
    Rejected(Rejection),
}

impl From<Rejection> for RunError {
    fn from(rejection: Rejection) -> Self {
        Self::Rejected(rejection)
    }
}

impl From<Interruption> for RunError {
    fn from(interruption: Interruption) -> Self {
        Self::Rejected(match interruption {
            Interruption::Cancelled => Rejection::Cancelled,
            Interruption::Exiting => Rejection::Exiting,
            Interruption::Panicked => Rejection::Failed {
                kind: Reason::PANIC,
                message: "Internal error.",
            },
        })
    }
}

impl From<RunError> for Rejection {
    fn from(error: RunError) -> Self {
        match error {
            RunError::PermitRefused => Self::Failed {
                kind: Reason::PERMIT_REFUSED,
                message: "The tool-runner refused the call's permit. Try again.",
            },
            RunError::Rejected(rejection) => rejection,
        }
    }
}
