//! Errors of calls to other services, whether they are function calls or gRPC calls.

use tonic::Status;
use wardgate_domain::InvalidMessage;
use wardgate_proto::common::v1::ErrorReason;

use crate::status::{ServiceError, reason_of, status, with_reason};

/// The error of a call to another service.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct CallError {
    reason: ErrorReason,
    message: String,
}

impl CallError {
    /// Returns the reason, for programs to act on.
    pub fn reason(&self) -> ErrorReason {
        self.reason
    }

    /// Creates an error with `reason` and a description for people.
    pub(crate) fn new(reason: ErrorReason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }

    /// Creates the error for a call whose deadline passed.
    pub(crate) fn late() -> Self {
        Self::new(
            ErrorReason::DeadlineExceeded,
            "the deadline of the call was exceeded",
        )
    }
}

/// Converts an error of a service to the form that its callers get, in this process or another one. Causes of internal faults are
/// logged here and left out.
impl<E: ServiceError + 'static> From<&E> for CallError {
    fn from(error: &E) -> Self {
        status(error).into()
    }
}

impl From<CallError> for Status {
    fn from(error: CallError) -> Self {
        with_reason(error.reason, &error.message)
    }
}

impl From<Status> for CallError {
    fn from(status: Status) -> Self {
        Self {
            reason: reason_of(&status),
            message: status.message().to_owned(),
        }
    }
}

impl From<InvalidMessage> for CallError {
    fn from(error: InvalidMessage) -> Self {
        Self {
            reason: ErrorReason::InvalidMessage,
            message: error.to_string(),
        }
    }
}
