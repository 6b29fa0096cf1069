//! The errors of revocations, and their JSON-RPC errors.

use wardgate_domain::Reason;
use wardgate_gateway_store::StoreError;
use wardgate_mcp_server::{RpcError, sentence};
use wardgate_rpc::client::CallError;

/// The reason why revocations were neither listed nor changed.
#[derive(Debug, thiserror::Error)]
pub enum RevocationError {
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The policy service did not decide.
    #[error(transparent)]
    Policy(CallError),
    /// The policies do not permit it.
    #[error("the policies do not permit you `revoke_access`")]
    Denied,
    /// The change could not be recorded and was not made.
    #[error("the change could not be recorded")]
    NotRecorded,
    /// The maximum number of revocations is reached.
    #[error("the limit of revocations is reached; lift those of tokens that have expired")]
    TooMany,
    /// The revocation to remove does not exist.
    #[error("no revocation has this kind, name and issuer")]
    Unknown,
}

impl RevocationError {
    /// Returns the JSON-RPC error for the client.
    pub fn to_rpc_error(&self) -> RpcError {
        match self {
            Self::Store(_) => RpcError::internal(
                Reason::STORE_UNAVAILABLE,
                "Revocations cannot be read or changed now. Try again later.",
            ),
            Self::Policy(_) => RpcError::not_decided(),
            Self::NotRecorded => RpcError::not_recorded(),
            Self::Denied => RpcError::invalid_params(sentence(self)).because(Reason::DENIED),
            Self::TooMany | Self::Unknown => RpcError::invalid_params(sentence(self)),
        }
    }
}
