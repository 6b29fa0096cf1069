//! The request that a governed call serves.

use std::sync::Arc;

use serde_json::value::RawValue;
use wardgate_domain::Caller;
use wardgate_mcp::Version;
use wardgate_resilience::LimitReport;
use wardgate_resilience::concurrency::Slot;

use crate::catalogue::View;
use crate::scopes::TokenAccess;

/// The request that a call serves: who makes it, from where, in which version and view.
#[derive(Debug)]
pub(crate) struct RequestContext {
    /// The place among the requests that are worked on. None once it is given back.
    pub(crate) slot: Option<Slot>,
    /// The JSON-RPC id, as the client wrote it.
    pub(crate) id: Box<RawValue>,
    pub(crate) version: Version,
    pub(crate) caller: Arc<Caller>,
    pub(crate) client_ip: String,
    /// The part of the catalogue that the path shows.
    pub(crate) view: View,
    /// The scopes of the token.
    pub(crate) access: TokenAccess,
    /// For the headers of the answer. None where no limit is configured, or no HTTP response waits.
    pub(crate) limit_report: Option<Arc<LimitReport>>,
}

impl RequestContext {
    /// Releases the slot while waiting for `input`.
    pub(crate) async fn wait_without_slot<T>(&mut self, input: impl Future<Output = T>) -> T {
        if let Some(slot) = &mut self.slot {
            slot.pause();
        }
        let received = input.await;
        if let Some(slot) = &mut self.slot {
            slot.resume();
        }
        received
    }
}
