//! Where a request that is work finds its place among the others, or hears to come back later: before anything of it is
//! begun or on record.
//!
//! Probes, sessions, cancellations, answers of clients and streams that only listen are no such work: they pass.

use std::time::Duration;

use wardgate_domain::Caller;
use wardgate_proto::common::v1::ErrorReason;
use wardgate_resilience::concurrency::Slot;
use wardgate_rpc::client::CallError;

use crate::Gateway;
use crate::reply::RpcError;

/// When to come back where a neighbour had too much to do.
pub(crate) const NEIGHBOUR_PAUSE: Duration = Duration::from_secs(1);

impl Gateway {
    /// A place for a request of `caller`, after a short wait at most, if the caller may make one more now.
    pub(crate) async fn admit(&self, caller: &Caller) -> Result<Slot, RpcError> {
        let spent = self.request_rates.take(caller.person(), self.request_rate);
        spent.map_err(RpcError::too_many_requests)?;
        self.wait_for_slot(caller).await
    }

    /// A place for what the gateway does for `caller` by itself, after a short wait at most.
    pub(crate) async fn wait_for_slot(&self, caller: &Caller) -> Result<Slot, RpcError> {
        let entered = self.limiter().enter(caller.tenant(), caller.subject());
        entered
            .await
            .map_err(|refused| RpcError::overloaded(refused.is_over_share, refused.retry_after))
    }

    /// A place for what another gateway let in.
    pub(crate) fn admit_resumed(&self, caller: &Caller) -> Slot {
        self.limiter().take(caller.tenant(), caller.subject())
    }

    /// A neighbour turned a request away.
    pub(crate) fn neighbour_overloaded(&self) -> RpcError {
        self.limiter().turned_away();
        RpcError::overloaded(false, NEIGHBOUR_PAUSE)
    }

    /// The policy service did not decide, on a call or on what of a list is to be seen.
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
