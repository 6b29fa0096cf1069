//! Calls that wait for somebody's approval, and what approvers decide about them.
//!
//! ```text
//!  a call that needs an approval ─▶ find ─┬─ approved ─▶ authorized with it, used up, run
//!                                         ├─ refused ──▶ refused
//!                                         └─ request ──▶ pending in the store ◀─ approvals/list · get · approve · refuse
//!  its caller, asked by elicitation ─▶ decide ──────────▶ authorized, run
//! ```
//!
//! One job: between the policy service, which says who may approve and signs what they approve, and the store, in which an
//! approval is given once and used once. Whoever decides is on record before it counts.

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

/// Requests for approvals.
pub struct Approvals {
    store: Arc<Store>,
    sealer: Arc<Sealer>,
    policy: PolicyClient,
    recorder: Arc<CallRecorder>,
    ambient: Ambient,
}

impl Approvals {
    /// Over what the gateway shares.
    pub fn new(
        (store, sealer): (&Arc<Store>, &Arc<Sealer>),
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
