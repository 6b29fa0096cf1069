//! Conversions of approvals.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use prost::Message as _;
use wardgate_proto::policy::v1 as pb;

use super::{parse, require_field};
use crate::{
    ApprovalDecision, ApprovalTerms, ApproverRefusal, Approvers, BundleReference, CallToApprove,
    Digest, InvalidMessage, SignedApproval,
};

/// Returns the bytes that the policy service signs.
pub(crate) fn encode_approval(terms: &ApprovalTerms) -> Bytes {
    let approval = pb::Approval {
        approval_id: terms.id.to_string(),
        caller_digest: terms.caller_digest.to_wire(),
        tool: terms.tool.to_string(),
        definition_digest: terms.definition_digest.to_wire(),
        arguments_digest: terms.arguments_digest.to_wire(),
        policy_hash: terms.policy_hash.to_wire(),
        approver_issuer: terms.approver_issuer.clone(),
        approver_subject: terms.approver_subject.clone(),
        approved_as: Some((&terms.approved_as).into()),
        expires_at: Some(terms.expires_at.into()),
    };
    approval.encode_to_vec().into()
}

impl SignedApproval {
    /// Encodes the signed approval for [`Self::from_bytes`].
    pub fn to_bytes(&self) -> Bytes {
        pb::SignedApproval::from(self).encode_to_vec().into()
    }

    /// Decodes the output of [`Self::to_bytes`].
    pub fn from_bytes(bytes: Bytes) -> Result<Self, InvalidMessage> {
        let signed = pb::SignedApproval::decode(bytes).map_err(|_| unreadable())?;
        signed.try_into()
    }

    /// Encodes the signed approval in base64, for [`Self::from_base64`].
    pub fn to_base64(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.to_bytes())
    }

    /// Decodes the output of [`Self::to_base64`]. Returns `None` for any other text.
    pub fn from_base64(text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        Self::from_bytes(bytes.into()).ok()
    }

    /// Returns the terms without verifying the signature. This is sufficient to know how long to keep the approval.
    pub fn unverified_terms(&self) -> Result<ApprovalTerms, InvalidMessage> {
        let approval = pb::Approval::decode(self.approval.clone()).map_err(|_| unreadable())?;
        Ok(ApprovalTerms {
            id: parse(&approval.approval_id, "approval.approval_id")?,
            caller_digest: Digest::from_wire(&approval.caller_digest, "approval.caller_digest")?,
            tool: parse(&approval.tool, "approval.tool")?,
            definition_digest: Digest::from_wire(
                &approval.definition_digest,
                "approval.definition_digest",
            )?,
            arguments_digest: Digest::from_wire(
                &approval.arguments_digest,
                "approval.arguments_digest",
            )?,
            policy_hash: Digest::from_wire(&approval.policy_hash, "approval.policy_hash")?,
            approver_issuer: approval.approver_issuer,
            approver_subject: approval.approver_subject,
            approved_as: require_field(approval.approved_as, "approval.approved_as")?.into(),
            expires_at: require_field(approval.expires_at, "approval.expires_at")?.try_into()?,
        })
    }
}

impl CallToApprove {
    /// Encodes the call for [`Self::from_bytes`].
    pub fn to_bytes(&self) -> Bytes {
        pb::CallToApprove::from(self).encode_to_vec().into()
    }

    /// Decodes the output of [`Self::to_bytes`].
    pub fn from_bytes(bytes: Bytes) -> Result<Self, InvalidMessage> {
        let call = pb::CallToApprove::decode(bytes);
        call.map_err(|_| InvalidMessage::field("call", "cannot be decoded"))?
            .try_into()
    }
}

fn unreadable() -> InvalidMessage {
    InvalidMessage::field("approval", "cannot be decoded")
}

impl TryFrom<pb::SignedApproval> for SignedApproval {
    type Error = InvalidMessage;

    fn try_from(signed: pb::SignedApproval) -> Result<Self, Self::Error> {
        if signed.approval.is_empty() {
            return Err(InvalidMessage::field("approval", "is empty"));
        }
        Ok(Self {
            approval: signed.approval,
            signature: signed.signature,
        })
    }
}

impl From<&SignedApproval> for pb::SignedApproval {
    fn from(signed: &SignedApproval) -> Self {
        Self {
            approval: signed.approval.clone(),
            signature: signed.signature.clone(),
        }
    }
}

impl TryFrom<pb::CallToApprove> for CallToApprove {
    type Error = InvalidMessage;

    fn try_from(call: pb::CallToApprove) -> Result<Self, Self::Error> {
        Ok(Self {
            id: parse(&call.approval_id, "call.approval_id")?,
            caller: require_field(call.caller, "call.caller")?.try_into()?,
            tool: require_field(call.tool, "call.tool")?.try_into()?,
            arguments: call.arguments_json,
            client_ip: call.client_ip,
        })
    }
}

impl From<&CallToApprove> for pb::CallToApprove {
    fn from(call: &CallToApprove) -> Self {
        Self {
            approval_id: call.id.to_string(),
            caller: Some((&call.caller).into()),
            tool: Some((&call.tool).into()),
            arguments_json: call.arguments.clone(),
            client_ip: call.client_ip.clone(),
        }
    }
}

impl From<pb::Approvers> for Approvers {
    fn from(approvers: pb::Approvers) -> Self {
        Self {
            roles: approvers.roles.into_iter().collect(),
            caller: approvers.caller,
        }
    }
}

impl From<&Approvers> for pb::Approvers {
    fn from(approvers: &Approvers) -> Self {
        Self {
            roles: approvers.roles.iter().cloned().collect(),
            caller: approvers.caller,
        }
    }
}

impl TryFrom<pb::ApproveResponse> for ApprovalDecision {
    type Error = InvalidMessage;

    fn try_from(decision: pb::ApproveResponse) -> Result<Self, Self::Error> {
        use pb::ApproverRefusal as Wire;
        let outcome = match decision.refusal() {
            Wire::Unspecified => Ok(decision.approval.map(TryInto::try_into).transpose()?),
            Wire::NoApprover => Err(ApproverRefusal::NoApprover),
            Wire::OwnCall => Err(ApproverRefusal::OwnCall),
            Wire::NotApprovable => Err(ApproverRefusal::NotApprovable),
        };
        Ok(Self {
            id: parse(&decision.decision_id, "decision_id")?,
            policies: decision.policies,
            policy_hash: Digest::from_wire(&decision.policy_hash, "policy_hash")?,
            bundle: decision.bundle.map(BundleReference::try_from).transpose()?,
            outcome,
        })
    }
}

impl From<&ApprovalDecision> for pb::ApproveResponse {
    fn from(decision: &ApprovalDecision) -> Self {
        use pb::ApproverRefusal as Wire;
        let (approval, refusal) = match &decision.outcome {
            Ok(approval) => (approval.as_ref().map(Into::into), Wire::Unspecified),
            Err(ApproverRefusal::NoApprover) => (None, Wire::NoApprover),
            Err(ApproverRefusal::OwnCall) => (None, Wire::OwnCall),
            Err(ApproverRefusal::NotApprovable) => (None, Wire::NotApprovable),
        };
        Self {
            decision_id: decision.id.to_string(),
            policies: decision.policies.clone(),
            policy_hash: decision.policy_hash.to_wire(),
            bundle: decision.bundle.map(Into::into),
            approval,
            refusal: refusal.into(),
        }
    }
}
