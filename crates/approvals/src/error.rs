//! Why nothing was decided, and how a client hears of it.

use std::time::Duration;

use wardgate_domain::{ApproverRefusal, Reason};
use wardgate_gateway_store::StoreError;
use wardgate_mcp_server::{RpcError, sentence};
use wardgate_rpc::client::CallError;

/// How long whoever has too many pending requests should wait.
const PAUSE: Duration = Duration::from_mins(1);

/// Why an approval was neither asked for nor given nor refused.
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
    /// By the policies the approver may not decide.
    #[error(transparent)]
    Approver(#[from] ApproverRefusal),
    /// There is no such request, or none that waits for this approver.
    #[error("no request of this id waits for your approval")]
    Unknown,
    /// The caller has as many pending requests as one may have.
    #[error("too many of your calls wait for an approval")]
    TooMany,
    /// The arguments are longer than an approver is shown.
    #[error("the arguments are longer than an approver can be shown, {} bytes", .0)]
    TooLong(usize),
    /// What was stored cannot be read, or what is to be stored cannot be sealed.
    #[error("the request cannot be sealed or opened")]
    Sealing,
}

impl ApprovalError {
    /// The error for the client.
    pub fn to_rpc_error(&self) -> RpcError {
        match self {
            Self::Store(_) | Self::Sealing => RpcError::internal(
                Reason::STORE_UNAVAILABLE,
                "Approvals cannot be looked up now. Try again later.",
            ),
            Self::Policy(_) => RpcError::not_decided(),
            Self::NotRecorded => RpcError::internal(
                Reason::NOT_DURABLE,
                "This cannot be recorded durably now. Look whether the call still waits, and try again later.",
            ),
            Self::Approver(refusal) => {
                RpcError::invalid_params(sentence(refusal)).because(Reason::APPROVER_REFUSED)
            }
            Self::Unknown => {
                RpcError::invalid_params(sentence(self)).because(Reason::UNKNOWN_APPROVAL)
            }
            Self::TooMany => RpcError::overloaded(true, PAUSE),
            Self::TooLong(_) => RpcError::invalid_params(sentence(self)),
        }
    }
}
