//! A call that waits for input of an older client, stored so that another replica can resume it if this one is gone.
//!
//! While the call waits, nothing runs at the server, so a resumed call continues as if it had not moved. It is authorized again
//! with the token of the client that resumes the stream, and gets a separate record.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use wardgate_domain::SignedApproval;

use super::description::SealedOperation;
use super::request_state::{AwaitedInput, ResumePoint};
use crate::client_interaction::PendingInput;

/// The state of a call that another replica needs to resume it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SuspendedCall {
    #[serde(rename = "work")]
    pub(crate) operation: SealedOperation,
    #[serde(rename = "asked")]
    pending: PendingInput,
    /// The state of the tool-runner, in base64.
    state: String,
    rounds: usize,
    /// The approval with which the call continues, in base64.
    #[serde(default)]
    approval: Option<String>,
}

impl SuspendedCall {
    pub(super) fn new(
        operation: SealedOperation,
        pending: &PendingInput,
        state: &[u8],
        rounds: usize,
        approval: Option<&SignedApproval>,
    ) -> Self {
        Self {
            operation,
            pending: pending.clone(),
            state: URL_SAFE_NO_PAD.encode(state),
            rounds,
            approval: approval.map(SignedApproval::to_base64),
        }
    }
    /// Returns the point at which the call continues, or `None` if its state cannot be read.
    pub(super) fn into_resume_point(self) -> Option<ResumePoint> {
        let awaited = AwaitedInput {
            pending: self.pending,
            state: URL_SAFE_NO_PAD.decode(&self.state).ok()?.into(),
        };
        let approval = self.approval.as_deref();
        let approval = approval.and_then(SignedApproval::from_base64);
        Some(ResumePoint::for_input(awaited, self.rounds, approval))
    }
}
