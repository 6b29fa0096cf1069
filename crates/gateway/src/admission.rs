//! Admission of requests: each gets a place, or is told to come back later, before anything of it is begun or recorded.
//!
//! Probes, sessions, cancellations, responses of clients and streams of changes need no place.

use std::time::Duration;

use wardgate_domain::Caller;
use wardgate_mcp_server::RpcError;
use wardgate_proto::common::v1::ErrorReason;
use wardgate_resilience::concurrency::Slot;
use wardgate_rpc::client::CallError;

use crate::Gateway;

/// The `Retry-After` where a neighbouring service is overloaded.
pub(crate) const NEIGHBOUR_PAUSE: Duration = Duration::from_secs(1);

impl Gateway {
    /// A place for a request of `caller`, within the rate limit of the caller, after a short wait at most.
    pub(crate) async fn admit(&self, caller: &Caller) -> Result<Slot, RpcError> {
        let spent = self.request_rates.take(caller.person(), self.request_rate);
        spent.map_err(RpcError::too_many_requests)?;
        self.wait_for_slot(caller).await
    }

    /// A place for work of the gateway on behalf of `caller`, outside the rate limit, after a short wait at most.
    pub(crate) async fn wait_for_slot(&self, caller: &Caller) -> Result<Slot, RpcError> {
        let entered = self.limiter().enter(caller.tenant(), caller.subject());
        entered
            .await
            .map_err(|refused| RpcError::overloaded(refused.is_over_share, refused.retry_after))
    }

    /// A place for a call that another replica admitted.
    pub(crate) fn admit_resumed(&self, caller: &Caller) -> Slot {
        self.limiter().take(caller.tenant(), caller.subject())
    }

    /// The error where a neighbouring service turned a request away.
    pub(crate) fn neighbour_overloaded(&self) -> RpcError {
        self.limiter().turned_away();
        RpcError::overloaded(false, NEIGHBOUR_PAUSE)
    }

    /// The error where the policy service did not decide.
    pub(crate) fn undecided(&self, error: &CallError) -> RpcError {
        match error.reason() {
            ErrorReason::Overloaded => self.neighbour_overloaded(),
            ErrorReason::TokenRefused => RpcError::token_refused(),
            _ => {
                tracing::warn!(%error, "the policy service did not decide");
                RpcError::not_decided()
            }
        }
    }
}
