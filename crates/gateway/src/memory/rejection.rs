//! The reasons for which a memory operation has no result, with the status for the record and the error for the client.

use wardgate_domain::{Reason, Status};
use wardgate_mcp_server::RpcError;
use wardgate_proto::common::v1::ErrorReason;
use wardgate_rpc::client::CallError;

use wardgate_limits::NEIGHBOUR_PAUSE;

/// The reason for which a memory operation has no result.
#[derive(Debug)]
pub(crate) struct MemoryRejection {
    pub(super) status: Status,
    pub(super) reason: Reason,
    pub(crate) error: RpcError,
}

impl MemoryRejection {
    pub(super) fn new(status: Status, reason: Reason, error: RpcError) -> Self {
        Self {
            status,
            reason,
            error,
        }
    }

    /// Creates the rejection for a tool that does not exist or is hidden from the caller. Only the record has the reason.
    pub(super) fn unknown_tool(status: Status, reason: Reason, name: &str) -> Self {
        Self::new(status, reason, RpcError::unknown_tool(name))
    }

    /// Creates the rejection for a neighbouring service that did not carry out the request.
    pub(super) fn neighbour(error: RpcError) -> Self {
        Self::new(Status::Error, error.reason(), error)
    }

    /// Creates the rejection for a memory or policy service that does not answer.
    pub(super) fn unavailable(reason: Reason) -> Self {
        let words = "The memory service cannot be reached. Try again later; a message with the same `message_id` is added only once.";
        Self::new(Status::Error, reason, RpcError::internal(reason, words))
    }
}

impl From<CallError> for MemoryRejection {
    fn from(error: CallError) -> Self {
        let refused = |status, reason| {
            // A client decides by the reason whether to give up or to try again.
            let error = RpcError::invalid_params(error.to_string()).because(reason);
            Self::new(status, reason, error)
        };
        match error.reason() {
            ErrorReason::UnknownConversation => Self::new(
                Status::InvalidArguments,
                Reason::UNKNOWN_CONVERSATION,
                RpcError::invalid_params("Unknown conversation")
                    .because(Reason::UNKNOWN_CONVERSATION),
            ),
            ErrorReason::Overloaded => {
                Self::neighbour(RpcError::for_overload(false, NEIGHBOUR_PAUSE))
            }
            ErrorReason::InvalidMessage => {
                refused(Status::InvalidArguments, Reason::INVALID_PARAMS)
            }
            ErrorReason::Conflict => refused(Status::InvalidArguments, Reason::CONFLICT),
            ErrorReason::Held => refused(Status::Error, Reason::HELD),
            ErrorReason::Denied => refused(Status::Denied, Reason::DENIED),
            ErrorReason::TokenRefused => Self::new(
                Status::Denied,
                Reason::TOKEN_REFUSED,
                RpcError::token_refused(),
            ),
            ErrorReason::DeadlineExceeded => Self {
                status: Status::Timeout,
                ..Self::unavailable(Reason::TIMEOUT)
            },
            _ => {
                tracing::warn!(%error, "the memory service did not answer");
                Self::unavailable(Reason::MEMORY_UNAVAILABLE)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use wardgate_rpc::{ServiceError, status};

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("refused")]
    struct TestRefusal(ErrorReason);

    impl ServiceError for TestRefusal {
        fn reason(&self) -> ErrorReason {
            self.0
        }
    }

    #[test]
    fn a_client_hears_the_reason_that_the_record_says() {
        for (reason, word) in [
            (ErrorReason::UnknownConversation, "unknown_conversation"),
            (ErrorReason::InvalidMessage, "invalid_params"),
            (ErrorReason::Conflict, "conflict"),
            (ErrorReason::Held, "held"),
            (ErrorReason::Denied, "denied"),
            (ErrorReason::TokenRefused, "token_refused"),
            (ErrorReason::Unavailable, "memory_unavailable"),
        ] {
            let rejection = MemoryRejection::from(CallError::from(status(&TestRefusal(reason))));
            let reasons = [rejection.reason, rejection.error.reason()];
            assert_eq!(reasons.map(Reason::as_str), [word, word]);
        }
    }
}
