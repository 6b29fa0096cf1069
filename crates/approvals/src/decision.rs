//! What somebody decides about a call: by the policy service's leave, and on record before it counts.

use std::sync::Arc;
use std::time::Instant;

use wardgate_domain::{
    ApprovalDecision, ApprovalId, ApproverRefusal, CallFacts, CallId, CallToApprove, Caller,
    Digest, Outcome, Reason, SignedApproval, Status,
};

use crate::{ApprovalError, ApprovalMethod, Approvals, PendingApproval};

/// Who decides, and from where.
#[derive(Debug, Clone)]
pub struct Approver {
    /// Whose token it is.
    pub caller: Arc<Caller>,
    /// The address of their client, as text; empty where it is not known.
    pub client_ip: String,
    /// The protocol version of their request, for the record.
    pub protocol: String,
}

impl Approvals {
    /// Decides about the pending request `id`. The refusal of an approver who may not decide is on record too.
    pub(crate) async fn decide_request(
        &self,
        approver: &Approver,
        id: ApprovalId,
        approves: bool,
    ) -> Result<PendingApproval, ApprovalError> {
        let pending = self.get(&approver.caller, id).await?;
        let call = (&pending.call, pending.policy_hash);
        let approval = self.decide(approver, call, approves).await?;
        if !self.settle(&pending, approval.as_ref()).await? {
            return Err(ApprovalError::Unknown);
        }
        Ok(pending)
    }

    /// Decides about `call` as it was shown under the policies of `policy_hash`, whether or not there is a request for it: its
    /// approval, or none where the approver refuses.
    pub async fn decide(
        &self,
        approver: &Approver,
        (call, policy_hash): (&CallToApprove, Digest),
        approves: bool,
    ) -> Result<Option<SignedApproval>, ApprovalError> {
        let started = Instant::now();
        let decision = self.policy.approve(&approver.caller, call, approves).await;
        let mut decision = decision.map_err(ApprovalError::Policy)?;
        if decision.policy_hash != policy_hash {
            decision.outcome = Err(ApproverRefusal::NotApprovable);
        }
        let outcome = self.outcome(approver, call, &decision, approves, started);
        let recorded = self.recorder.record_outcome(outcome, true).await;
        recorded.map_err(|_| ApprovalError::NotRecorded)?;
        Ok(decision.outcome?)
    }

    /// The record of a decision: whose, about which call, by which policies.
    fn outcome(
        &self,
        approver: &Approver,
        call: &CallToApprove,
        decision: &ApprovalDecision,
        approves: bool,
        started: Instant,
    ) -> Outcome {
        let facts = CallFacts::without_tool(
            CallId::new(&self.ambient),
            &approver.caller,
            approver.client_ip.clone(),
            &approver.protocol,
            &call.arguments,
        );
        let method = if approves {
            ApprovalMethod::Approve
        } else {
            ApprovalMethod::Refuse
        };
        let (status, reason) = match decision.outcome {
            Ok(_) => (Status::Ok, ""),
            Err(_) => (Status::Denied, Reason::APPROVER_REFUSED.as_str()),
        };
        Outcome {
            call: CallFacts {
                tool: Some(call.tool.name.clone()),
                definition_digest: Some(call.tool.definition_digest),
                decision_id: Some(decision.id),
                policy_hash: Some(decision.policy_hash),
                policies: decision.policies.clone(),
                approval_id: Some(call.id),
                ..facts.by_method(method.as_str())
            },
            status,
            reason: reason.to_owned(),
            rows: 0,
            rows_withheld: 0,
            fields_redacted: 0,
            phi: false,
            result_digest: None,
            duration: started.elapsed(),
            details: None,
        }
    }
}
