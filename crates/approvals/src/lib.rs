//! Calls that wait for an approval, and the decisions of approvers about them.
//!
//! ```text
//!  a call that needs an approval ─▶ find ─┬─ approved ─▶ authorized with it, used up, run
//!                                         ├─ refused ──▶ refused
//!                                         └─ request ──▶ pending in the store ◀─ approvals/list · get · approve · refuse
//!  its caller, asked by elicitation ─▶ decide ──────────▶ authorized, run
//! ```
//!
//! The crate connects the policy service, which decides who may approve and signs approvals, with the store, which
//! ensures that an approval is given once and used once. Every decision is recorded before it takes effect.

mod answer;
mod decision;
mod error;
mod form;
mod method;
mod request;

use std::sync::Arc;

use wardgate_domain::Ambient;
use wardgate_gateway_record::CallRecorder;
use wardgate_gateway_store::{Sealer, Store};
use wardgate_rpc::client::PolicyClient;

pub use decision::Approver;
pub use error::ApprovalError;
pub use form::{ApprovalAnswer, approval_form};
pub use method::ApprovalMethod;
pub use request::{FoundApproval, PendingApproval, call_digest};

/// The service that stores requests for approvals and decides about them.
pub struct Approvals {
    store: Arc<Store>,
    sealer: Arc<Sealer>,
    policy: PolicyClient,
    recorder: Arc<CallRecorder>,
    ambient: Ambient,
}

impl Approvals {
    /// Creates the service from the gateway's shared store, sealing key, policy client and call recorder.
    pub fn new(
        store: &Arc<Store>,
        sealer: &Arc<Sealer>,
        policy: PolicyClient,
        recorder: &Arc<CallRecorder>,
        ambient: &Ambient,
    ) -> Self {
        Self {
            store: Arc::clone(store),
            sealer: Arc::clone(sealer),
            policy,
            recorder: Arc::clone(recorder),
            ambient: ambient.clone(),
        }
    }
}
