//! Decisions of approvers about calls. The policy service must permit each decision, and it is recorded before it takes
//! effect.

use std::sync::Arc;
use std::time::{Duration, Instant};

use wardgate_domain::{
    ApprovalDecision, ApprovalId, ApproverRefusal, CallFacts, CallId, CallToApprove, Caller,
    Digest, Event, Outcome, Reason, SignedApproval, Status,
};

use crate::{ApprovalError, ApprovalMethod, Approvals, PendingApproval};

/// The person who decides, and the client they use.
#[derive(Debug, Clone)]
pub struct Approver {
    /// The person of the token.
    pub caller: Arc<Caller>,
    /// The address of the person's client as text. Empty if it is not known.
    pub client_ip: String,
    /// The protocol version of the request, for the audit record.
    pub protocol: String,
}

impl Approvals {
    /// Decides about the pending request `id`. The intent is recorded before the decision takes effect, and afterwards
    /// whether it did, because another approver may have decided first. The refusal of an approver who may not decide
    /// is recorded too.
    pub(crate) async fn decide_request(
        &self,
        approver: &Approver,
        id: ApprovalId,
        approves: bool,
    ) -> Result<PendingApproval, ApprovalError> {
        let started = Instant::now();
        let pending = self.get(&approver.caller, id).await?;
        let call = &pending.call;
        let mut decision = self
            .ask_policy(approver, call, pending.policy_hash, approves)
            .await?;
        let facts = self.facts(approver, call, method_of(approves));
        let facts = with_decision(facts, &decision);
        let outcome = std::mem::replace(&mut decision.outcome, Ok(None));
        let approval = match outcome {
            Ok(approval) => approval,
            Err(refusal) => {
                let reason = Reason::APPROVER_REFUSED.as_str();
                self.record(facts, Status::Denied, reason, started.elapsed())
                    .await?;
                return Err(refusal.into());
            }
        };
        let intent = Event::Intent(facts.clone());
        let intent = self.recorder.audit_log().append(intent).await;
        intent.map_err(|_| ApprovalError::NotRecorded)?;
        let settled = match self.settle(&pending, approval.as_ref()).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(ApprovalError::Unknown),
            Err(error) => Err(error),
        };
        let (status, reason) = match &settled {
            Ok(()) => (Status::Ok, ""),
            Err(ApprovalError::Unknown) => (Status::Error, Reason::UNKNOWN_APPROVAL.as_str()),
            Err(_) => (Status::Error, Reason::STORE_UNAVAILABLE.as_str()),
        };
        self.record(facts, status, reason, started.elapsed())
            .await?;
        settled.map(|()| pending)
    }

    /// Returns the pending request `id` with its arguments. That the approver sees them is recorded first.
    pub(crate) async fn show_request(
        &self,
        approver: &Approver,
        id: ApprovalId,
    ) -> Result<PendingApproval, ApprovalError> {
        let started = Instant::now();
        let pending = self.get(&approver.caller, id).await?;
        let facts = self.facts(approver, &pending.call, ApprovalMethod::Get);
        self.record(facts, Status::Ok, "", started.elapsed())
            .await?;
        Ok(pending)
    }

    /// Decides about `call` as it was shown under the policies of `policy_hash`, whether or not a request for it is
    /// stored. Returns the approval, or `None` if the approver refuses.
    pub async fn decide(
        &self,
        approver: &Approver,
        call: &CallToApprove,
        policy_hash: Digest,
        approves: bool,
    ) -> Result<Option<SignedApproval>, ApprovalError> {
        let started = Instant::now();
        let decision = self
            .ask_policy(approver, call, policy_hash, approves)
            .await?;
        let facts = self.facts(approver, call, method_of(approves));
        let (status, reason) = match decision.outcome {
            Ok(_) => (Status::Ok, ""),
            Err(_) => (Status::Denied, Reason::APPROVER_REFUSED.as_str()),
        };
        let facts = with_decision(facts, &decision);
        self.record(facts, status, reason, started.elapsed())
            .await?;
        Ok(decision.outcome?)
    }

    /// Asks the policy service to decide about `call`, which was shown under the policies of `policy_hash`.
    async fn ask_policy(
        &self,
        approver: &Approver,
        call: &CallToApprove,
        policy_hash: Digest,
        approves: bool,
    ) -> Result<ApprovalDecision, ApprovalError> {
        let decision = self.policy.approve(&approver.caller, call, approves).await;
        let mut decision = decision.map_err(ApprovalError::Policy)?;
        if decision.policy_hash != policy_hash {
            decision.outcome = Err(ApproverRefusal::NotApprovable);
        }
        Ok(decision)
    }

    /// Returns the facts for the audit record of `approver` using `method` on `call`.
    fn facts(
        &self,
        approver: &Approver,
        call: &CallToApprove,
        method: ApprovalMethod,
    ) -> CallFacts {
        let facts = CallFacts::without_tool(
            CallId::new(&self.ambient),
            &approver.caller,
            approver.client_ip.clone(),
            &approver.protocol,
            &call.arguments,
        );
        CallFacts {
            tool: Some(call.tool.name.clone()),
            definition_digest: Some(call.tool.definition_digest),
            tags: Some(Arc::clone(&call.tool.tags)),
            approval_id: Some(call.id),
            ..facts.by_method(method.as_str())
        }
    }

    /// Records the outcome.
    async fn record(
        &self,
        call: CallFacts,
        status: Status,
        reason: &str,
        duration: Duration,
    ) -> Result<(), ApprovalError> {
        let outcome = Outcome {
            call,
            status,
            reason: reason.to_owned(),
            rows: 0,
            rows_withheld: 0,
            fields_redacted: 0,
            phi: false,
            result_digest: None,
            duration,
            details: None,
        };
        let recorded = self.recorder.record_outcome(outcome, false).await;
        recorded.map(drop).map_err(|_| ApprovalError::NotRecorded)
    }
}

fn method_of(approves: bool) -> ApprovalMethod {
    if approves {
        ApprovalMethod::Approve
    } else {
        ApprovalMethod::Refuse
    }
}

fn with_decision(facts: CallFacts, decision: &ApprovalDecision) -> CallFacts {
    CallFacts {
        decision_id: Some(decision.id),
        policy_hash: Some(decision.policy_hash),
        bundle: decision.bundle,
        policies: decision.policies.clone(),
        ..facts
    }
}
