//! Errors of approvals, and their JSON-RPC form for clients.

use std::time::Duration;

use wardgate_domain::{ApproverRefusal, Reason};
use wardgate_gateway_store::StoreError;
use wardgate_mcp_server::{RpcError, sentence};
use wardgate_rpc::client::CallError;

/// Retry delay for a caller who has too many pending requests.
const PAUSE: Duration = Duration::from_mins(1);

/// The reason why an approval was not requested, given or refused.
#[derive(Debug, thiserror::Error)]
pub enum ApprovalError {
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The policy service did not decide.
    #[error(transparent)]
    Policy(CallError),
    /// The decision could not be recorded.
    #[error("the decision could not be recorded")]
    NotRecorded,
    /// The policies do not allow the approver to decide.
    #[error(transparent)]
    Approver(#[from] ApproverRefusal),
    /// The request does not exist, or does not wait for this approver.
    #[error("no request with this id waits for your approval")]
    Unknown,
    /// The caller has the maximum number of pending requests.
    #[error("too many of your calls wait for an approval")]
    TooMany,
    /// The arguments are longer than an approver is shown.
    #[error("the arguments exceed the limit for a display to an approver, {} bytes", .0)]
    TooLong(usize),
    /// Stored data could not be opened, or data to be stored could not be sealed.
    #[error("the request cannot be encrypted or decrypted")]
    Sealing,
}

impl ApprovalError {
    /// Returns the error for the client.
    pub fn to_rpc_error(&self) -> RpcError {
        match self {
            Self::Store(_) | Self::Sealing => RpcError::internal(
                Reason::STORE_UNAVAILABLE,
                "Approvals cannot be looked up now. Try again later.",
            ),
            Self::Policy(_) => RpcError::not_decided(),
            Self::NotRecorded => RpcError::internal(
                Reason::NOT_DURABLE,
                "This cannot be recorded durably now. Check whether the call still waits, and try again later.",
            ),
            Self::Approver(refusal) => {
                RpcError::invalid_params(sentence(refusal)).because(Reason::APPROVER_REFUSED)
            }
            Self::Unknown => {
                RpcError::invalid_params(sentence(self)).because(Reason::UNKNOWN_APPROVAL)
            }
            Self::TooMany => RpcError::for_overload(true, PAUSE),
            Self::TooLong(_) => RpcError::invalid_params(sentence(self)),
        }
    }
}
