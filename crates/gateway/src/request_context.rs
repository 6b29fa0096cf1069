//! The request that a governed call serves.

use std::sync::Arc;

use serde_json::value::RawValue;
use wardgate_domain::Caller;
use wardgate_mcp::Version;
use wardgate_resilience::LimitReport;
use wardgate_resilience::concurrency::Slot;

use crate::catalogue::View;
use crate::scopes::TokenAccess;

/// The request that a call serves: its caller, address, version and view.
#[derive(Debug)]
pub(crate) struct RequestContext {
    /// The slot of the request among those that are processed at once, or `None` once it is released.
    pub(crate) slot: Option<Slot>,
    /// The JSON-RPC id, as the client wrote it.
    pub(crate) id: Box<RawValue>,
    pub(crate) version: Version,
    pub(crate) caller: Arc<Caller>,
    pub(crate) client_ip: String,
    /// The part of the catalogue that the path serves.
    pub(crate) view: View,
    /// The scopes of the token.
    pub(crate) access: TokenAccess,
    /// The limits for the headers of the response, or `None` if no limit is configured or no HTTP response waits.
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
