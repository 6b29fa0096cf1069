//! The approval of a call whose policy demands one: found in the store, or requested from the caller or other people.

use std::sync::Arc;

use wardgate_approvals::{
    ApprovalAnswer, ApprovalError, Approvals, Approver, FoundApproval, approval_form, call_digest,
};
use wardgate_domain::{ApprovalId, CallToApprove, Digest, Reason, SignedApproval};
use wardgate_mcp_server::{InputRecipient, InputRequests, RpcError};

use super::description::{CALL_TOOL, CatalogueEntry, Description, EntryUse};
use super::rejection::Rejection;
use super::request_state::RequestState;
use super::{GovernedCall, PreparedCall};
use crate::authority::ApprovalNeed;

/// The approval of one call.
pub(super) struct CallApproval {
    /// The approval that the call is authorized with.
    pub(super) given: Option<SignedApproval>,
    /// The id by which the approval is used once, or `None` if it was given in this very call.
    id: Option<ApprovalId>,
}

impl CallApproval {
    /// Returns the approval that an earlier step of the call used up.
    pub(super) fn from_earlier_step(given: Option<SignedApproval>) -> Self {
        Self { given, id: None }
    }

    /// Uses the approval up, so that no other call can use it.
    pub(super) async fn use_up(&mut self, approvals: &Approvals) -> Result<(), Rejection> {
        let Some(id) = self.id.take() else {
            return Ok(());
        };
        match approvals.use_up(id).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(too_late(
                "The approval of this call was used by another call. Call again to request a new one.",
            )),
            Err(error) => Err(ApprovalError::from(error).into()),
        }
    }
}

impl From<ApprovalError> for Rejection {
    fn from(error: ApprovalError) -> Self {
        tracing::warn!(%error, "an approval could not be requested or granted");
        Self::NotAttempted(error.to_rpc_error())
    }
}

impl GovernedCall {
    /// Obtains the approval of the call: one that was given before, or one by the caller, who is asked now. Otherwise the call
    /// is rejected with the id of its pending request for approval.
    pub(super) async fn obtain_approval<'d, E: CatalogueEntry>(
        &mut self,
        description: &'d Description<'_, E>,
        entry_use: &'d EntryUse<E>,
        ApprovalNeed {
            approvers,
            lifetime,
            policy_hash,
        }: ApprovalNeed,
    ) -> Result<PreparedCall<'d, E>, Rejection> {
        // A later step of an approved call can only continue with the approval that it began with.
        if description.method != CALL_TOOL || !self.resume_point.is_beginning() {
            return Err(too_late(
                "The approval of this call has expired. Call again.",
            ));
        }
        let approvals = Arc::clone(&self.pipeline.approvals);
        let call = CallToApprove {
            id: ApprovalId::new(&self.pipeline.services.ambient),
            caller: (*self.context.caller).clone(),
            tool: entry_use.entry.facts().clone(),
            arguments: entry_use.policy_arguments.clone(),
            client_ip: self.context.client_ip.clone(),
        };
        let shown = call_digest(&call, policy_hash, &approvers);
        let answer = self.resume_point.answer.as_ref();
        if let Some((answer, _)) = answer.filter(|(_, about)| *about == shown.to_string()) {
            let answer = *answer;
            self.use_up_state().await?;
            return self
                .approve_own(entry_use, &call, policy_hash, answer)
                .await;
        }
        self.end_if_refused().await?;
        // The digest covers the definition and the policies: an approval of others is not found.
        match approvals.find(shown).await? {
            Some(FoundApproval::Approved(id, approval)) => {
                self.approval = CallApproval {
                    given: Some(approval),
                    id: Some(id),
                };
                match self.authorizer().authorize(entry_use).await {
                    // The approval no longer covers the call, for example after a change of the signing key.
                    Err(Rejection::Denied { need: Some(_), .. }) => {
                        self.approval.use_up(&approvals).await?;
                        self.approval.given = None;
                    }
                    authorized => return Ok(PreparedCall::Ready(entry_use, authorized?)),
                }
            }
            Some(FoundApproval::Refused(id)) => {
                self.record.facts.approval_id = Some(id);
                return Err(Rejection::ApprovalRefused);
            }
            None => {}
        }
        let form = approval_form(&call);
        let capabilities = self.client.capabilities();
        let recipient = InputRecipient {
            version: self.context.version,
            capabilities: capabilities.as_deref(),
            label: None,
            ambient: &self.pipeline.services.ambient,
        };
        let form = InputRequests::parse(&form, recipient).ok();
        // A request without a binding cannot be repeated with an answer.
        let binding = description.binding;
        let asked = form.zip(binding).filter(|_| approvers.caller);
        if let Some((form, binding)) = asked {
            if !self.client.is_legacy() {
                let ambient = &self.pipeline.services.ambient;
                let shown = shown.to_string();
                let state = RequestState::asking_approval(ambient, form.keys(), shown);
                let sealer = &self.pipeline.services.sealer;
                let state = state.seal(sealer, &self.context, binding);
                let state = state.ok_or(Rejection::BAD_INPUT_REQUESTS)?;
                return Ok(PreparedCall::InputRequired(form, state));
            }
            let answers = self.client.request_input(form.as_json(), |_| None);
            let answers = self.context.wait_without_slot(answers).await?;
            let answer = ApprovalAnswer::from_responses(&answers);
            return self
                .approve_own(entry_use, &call, policy_hash, answer)
                .await;
        }
        let pending = approvals
            .request(call, policy_hash, &approvers, lifetime)
            .await?;
        self.record.facts.approval_id = Some(pending.call.id);
        Err(Rejection::ApprovalRequired(pending.to_rpc_error()))
    }

    /// Ends a call that its caller refused to approve, even if the policies no longer demand an approval.
    pub(super) async fn end_if_refused(&mut self) -> Result<(), Rejection> {
        match self.resume_point.answer {
            Some((ApprovalAnswer::Refused, _)) => {
                self.use_up_state().await?;
                Err(Rejection::ApprovalRefused)
            }
            Some((ApprovalAnswer::Approved, _)) | None => Ok(()),
        }
    }

    /// Carries out the caller's decision about their own call.
    async fn approve_own<'d, E: CatalogueEntry>(
        &mut self,
        entry_use: &'d EntryUse<E>,
        call: &CallToApprove,
        policy_hash: Digest,
        answer: ApprovalAnswer,
    ) -> Result<PreparedCall<'d, E>, Rejection> {
        let approver = Approver {
            caller: Arc::clone(&self.context.caller),
            client_ip: self.context.client_ip.clone(),
            protocol: self.record.facts.protocol.clone(),
        };
        let approves = answer == ApprovalAnswer::Approved;
        let approvals = &self.pipeline.approvals;
        let decided = approvals.decide(&approver, call, policy_hash, approves);
        let given = decided.await?;
        self.record.facts.approval_id = Some(call.id);
        self.approval.given = Some(given.ok_or(Rejection::ApprovalRefused)?);
        let grant = self.authorizer().authorize(entry_use).await?;
        Ok(PreparedCall::Ready(entry_use, grant))
    }
}

/// Returns the rejection of a call whose approval is no longer valid.
fn too_late(message: &str) -> Rejection {
    Rejection::ApprovalRequired(RpcError::internal(Reason::APPROVAL_REQUIRED, message))
}
