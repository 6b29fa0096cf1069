//! Why a call of another service failed, whether it was a function call or came over a wire.

use tonic::Status;
use wardgate_domain::InvalidMessage;
use wardgate_proto::common::v1::ErrorReason;

use crate::status::{ServiceError, reason_of, status, with_reason};

/// A call to another service that failed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct CallError {
    reason: ErrorReason,
    message: String,
}

impl CallError {
    /// What a program should make of it.
    pub fn reason(&self) -> ErrorReason {
        self.reason
    }

    pub(crate) fn late() -> Self {
        Self {
            reason: ErrorReason::DeadlineExceeded,
            message: "the deadline of the call passed".to_owned(),
        }
    }
}

/// As the callers of a service get it, in whichever process they are: without the causes of internal faults, which are
/// logged here.
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
