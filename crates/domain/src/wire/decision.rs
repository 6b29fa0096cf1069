//! Conversions of decisions, permits and row rules, and of decisions about conversations and operators.

use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use wardgate_proto::{common, memory, policy};

use super::{optional_digest, parse, parse_optional, require_field};
use crate::{
    AttributeType, BundleReference, CallReference, ColumnClass, ColumnTier, ConversationFacts,
    Decision, DenialReason, Digest, InvalidMessage, OperatorAction, PermitTerms, ReadDecision,
    RowRule, SignedPermit, Verdict,
};

impl TryFrom<policy::v1::SignedPermit> for SignedPermit {
    type Error = InvalidMessage;

    fn try_from(signed: policy::v1::SignedPermit) -> Result<Self, Self::Error> {
        if signed.permit.is_empty() {
            return Err(InvalidMessage::field("permit", "is empty"));
        }
        Ok(Self {
            permit: signed.permit,
            signature: signed.signature,
        })
    }
}

impl From<&SignedPermit> for policy::v1::SignedPermit {
    fn from(signed: &SignedPermit) -> Self {
        Self {
            permit: signed.permit.clone(),
            signature: signed.signature.clone(),
        }
    }
}

/// Returns the bytes that the policy service signs.
pub(crate) fn encode_permit(terms: &PermitTerms) -> Bytes {
    policy::v1::Permit::from(terms).encode_to_vec().into()
}

impl SignedPermit {
    /// Returns the terms without verifying the signature. This is sufficient to decide whether to send the permit
    /// again, but never to run a tool.
    pub fn unverified_terms(&self) -> Result<PermitTerms, InvalidMessage> {
        policy::v1::Permit::decode(self.permit.clone())
            .map_err(|_| InvalidMessage::field("permit", "cannot be decoded"))?
            .try_into()
    }
}

impl TryFrom<policy::v1::Permit> for PermitTerms {
    type Error = InvalidMessage;

    fn try_from(permit: policy::v1::Permit) -> Result<Self, Self::Error> {
        let column_tiers = permit
            .column_tiers
            .iter()
            .map(|(class, tier)| {
                let tier = common::v1::ColumnTier::try_from(*tier).map_err(|_| {
                    InvalidMessage::field("column_tiers", "contains an unknown tier")
                })?;
                Ok((
                    parse::<ColumnClass>(class, "column_tiers")?,
                    ColumnTier::try_from(tier)?,
                ))
            })
            .collect::<Result<_, InvalidMessage>>()?;
        Ok(Self {
            id: parse(&permit.permit_id, "permit_id")?,
            decision_id: parse(&permit.decision_id, "decision_id")?,
            caller_digest: Digest::from_wire(&permit.caller_digest, "caller_digest")?,
            tool: parse(&permit.tool, "tool")?,
            definition_digest: Digest::from_wire(&permit.definition_digest, "definition_digest")?,
            arguments_digest: optional_digest(&permit.arguments_digest, "arguments_digest")?,
            policy_hash: Digest::from_wire(&permit.policy_hash, "policy_hash")?,
            bundle: permit.bundle.map(BundleReference::try_from).transpose()?,
            not_before: require_field(permit.not_before, "not_before")?.try_into()?,
            expires_at: require_field(permit.expires_at, "expires_at")?.try_into()?,
            row_rule: permit.row_rule.map(RowRule::try_from).transpose()?,
            column_tiers,
        })
    }
}

impl From<&PermitTerms> for policy::v1::Permit {
    fn from(terms: &PermitTerms) -> Self {
        Self {
            permit_id: terms.id.to_string(),
            decision_id: terms.decision_id.to_string(),
            caller_digest: terms.caller_digest.to_wire(),
            tool: terms.tool.to_string(),
            definition_digest: terms.definition_digest.to_wire(),
            arguments_digest: terms
                .arguments_digest
                .map(Digest::to_wire)
                .unwrap_or_default(),
            policy_hash: terms.policy_hash.to_wire(),
            bundle: terms.bundle.map(Into::into),
            not_before: Some(terms.not_before.into()),
            expires_at: Some(terms.expires_at.into()),
            row_rule: terms.row_rule.as_ref().map(Into::into),
            column_tiers: terms
                .column_tiers
                .iter()
                .map(|(class, tier)| {
                    (
                        class.to_string(),
                        common::v1::ColumnTier::from(*tier).into(),
                    )
                })
                .collect(),
        }
    }
}

impl TryFrom<policy::v1::RowRule> for RowRule {
    type Error = InvalidMessage;

    fn try_from(rule: policy::v1::RowRule) -> Result<Self, Self::Error> {
        use policy::v1::AttributeType as Wire;
        let attribute = |(name, kind): (String, i32)| {
            let kind = match Wire::try_from(kind) {
                Ok(Wire::Text) => AttributeType::Text,
                Ok(Wire::Integer) => AttributeType::Integer,
                Ok(Wire::Boolean) => AttributeType::Boolean,
                Ok(Wire::Unspecified) | Err(_) => {
                    return Err(InvalidMessage::field(
                        "row_rule.attributes",
                        "contains an unknown type",
                    ));
                }
            };
            Ok((name, kind))
        };
        Ok(Self {
            entity: rule.entity,
            policies_json: rule.policies_json,
            all: rule.all,
            attributes: rule
                .attributes
                .into_iter()
                .map(attribute)
                .collect::<Result<_, _>>()?,
        })
    }
}

impl From<&RowRule> for policy::v1::RowRule {
    fn from(rule: &RowRule) -> Self {
        use policy::v1::AttributeType as Wire;
        let attribute = |(name, kind): (&String, &AttributeType)| {
            let kind = match kind {
                AttributeType::Text => Wire::Text,
                AttributeType::Integer => Wire::Integer,
                AttributeType::Boolean => Wire::Boolean,
            };
            (name.clone(), kind.into())
        };
        Self {
            entity: rule.entity.clone(),
            policies_json: rule.policies_json.clone(),
            all: rule.all,
            attributes: rule.attributes.iter().map(attribute).collect(),
        }
    }
}

impl TryFrom<policy::v1::Decision> for Decision {
    type Error = InvalidMessage;

    fn try_from(decision: policy::v1::Decision) -> Result<Self, Self::Error> {
        use policy::v1::{DenialReason as Reason, Effect};
        let verdict = match decision.effect() {
            Effect::Unspecified => {
                return Err(InvalidMessage::field("decision.effect", "is unspecified"));
            }
            Effect::Allow => Verdict::Allow(
                require_field(decision.permit.clone(), "decision.permit")?.try_into()?,
            ),
            Effect::NeedsApproval => Verdict::NeedsApproval {
                approvers: require_field(decision.approvers.clone(), "decision.approvers")?.into(),
                lifetime: Duration::from_secs(decision.approval_seconds.into()),
            },
            Effect::NeedsIntent => Verdict::NeedsIntent,
            Effect::Deny => Verdict::Deny {
                reason: match decision.reason() {
                    Reason::Unspecified => {
                        return Err(InvalidMessage::field("decision.reason", "is unspecified"));
                    }
                    Reason::NotPermitted => DenialReason::NotPermitted,
                    Reason::Forbidden => DenialReason::Forbidden,
                    Reason::PolicyError => DenialReason::PolicyError,
                    Reason::HistoryUnavailable => DenialReason::HistoryUnavailable,
                },
                visible: decision.visible,
            },
        };
        Ok(Self {
            id: parse(&decision.decision_id, "decision.decision_id")?,
            verdict,
            policies: decision.policies,
            policy_hash: Digest::from_wire(&decision.policy_hash, "decision.policy_hash")?,
            bundle: decision.bundle.map(BundleReference::try_from).transpose()?,
            approval: parse_optional(&decision.approval_id, "decision.approval_id")?,
        })
    }
}

impl From<&Decision> for policy::v1::Decision {
    fn from(decision: &Decision) -> Self {
        use policy::v1::{DenialReason as Reason, Effect};
        let (mut approvers, mut approval_seconds) = (None, 0);
        let (effect, reason, permit, visible) = match &decision.verdict {
            Verdict::Allow(permit) => (
                Effect::Allow,
                Reason::Unspecified,
                Some(permit.into()),
                true,
            ),
            Verdict::NeedsApproval {
                approvers: these,
                lifetime,
            } => {
                approvers = Some(these.into());
                approval_seconds = u32::try_from(lifetime.as_secs()).unwrap_or(u32::MAX);
                (Effect::NeedsApproval, Reason::Unspecified, None, true)
            }
            Verdict::NeedsIntent => (Effect::NeedsIntent, Reason::Unspecified, None, true),
            Verdict::Deny { reason, visible } => {
                let reason = match reason {
                    DenialReason::NotPermitted => Reason::NotPermitted,
                    DenialReason::Forbidden => Reason::Forbidden,
                    DenialReason::PolicyError => Reason::PolicyError,
                    DenialReason::HistoryUnavailable => Reason::HistoryUnavailable,
                };
                (Effect::Deny, reason, None, *visible)
            }
        };
        Self {
            decision_id: decision.id.to_string(),
            effect: effect.into(),
            reason: reason.into(),
            policies: decision.policies.clone(),
            policy_hash: decision.policy_hash.to_wire(),
            bundle: decision.bundle.map(Into::into),
            permit,
            visible,
            approvers,
            approval_seconds,
            approval_id: (decision.approval).map_or_else(String::new, |id| id.to_string()),
        }
    }
}

impl TryFrom<common::v1::PolicyBundle> for BundleReference {
    type Error = InvalidMessage;

    fn try_from(bundle: common::v1::PolicyBundle) -> Result<Self, Self::Error> {
        if bundle.version == 0 {
            return Err(InvalidMessage::field("bundle.version", "is 0"));
        }
        Ok(Self {
            version: bundle.version,
            digest: Digest::from_wire(&bundle.digest, "bundle.digest")?,
        })
    }
}

impl From<BundleReference> for common::v1::PolicyBundle {
    fn from(bundle: BundleReference) -> Self {
        Self {
            version: bundle.version,
            digest: bundle.digest.to_wire(),
        }
    }
}

impl TryFrom<policy::v1::CallReference> for CallReference {
    type Error = InvalidMessage;

    fn try_from(call: policy::v1::CallReference) -> Result<Self, Self::Error> {
        Ok(Self {
            call_id: parse(&call.call_id, "call.call_id")?,
            has_intent: call.has_intent,
            conversation: optional_digest(&call.conversation_digest, "call.conversation_digest")?,
        })
    }
}

impl From<CallReference> for policy::v1::CallReference {
    fn from(call: CallReference) -> Self {
        Self {
            call_id: call.call_id.to_string(),
            has_intent: call.has_intent,
            conversation_digest: call.conversation.map(Digest::to_wire).unwrap_or_default(),
        }
    }
}

impl TryFrom<policy::v1::ConversationFacts> for ConversationFacts {
    type Error = InvalidMessage;

    fn try_from(facts: policy::v1::ConversationFacts) -> Result<Self, Self::Error> {
        if facts.owner.is_empty() {
            return Err(InvalidMessage::field("conversation.owner", "is empty"));
        }
        Ok(Self {
            key: parse(&facts.key, "conversation.key")?,
            owner: facts.owner,
            tenant: facts.tenant,
        })
    }
}

impl From<&ConversationFacts> for policy::v1::ConversationFacts {
    fn from(facts: &ConversationFacts) -> Self {
        Self {
            key: facts.key.to_string(),
            owner: facts.owner.clone(),
            tenant: facts.tenant.clone(),
        }
    }
}

impl TryFrom<policy::v1::OperatorAction> for OperatorAction {
    type Error = InvalidMessage;

    fn try_from(action: policy::v1::OperatorAction) -> Result<Self, Self::Error> {
        match action {
            policy::v1::OperatorAction::ReadRecord => Ok(Self::ReadRecord),
            policy::v1::OperatorAction::ReadOwnRecord => Ok(Self::ReadOwnRecord),
            policy::v1::OperatorAction::ManageRecord => Ok(Self::ManageRecord),
            policy::v1::OperatorAction::RevokeAccess => Ok(Self::RevokeAccess),
            policy::v1::OperatorAction::ManageTools => Ok(Self::ManageTools),
            policy::v1::OperatorAction::Unspecified => {
                Err(InvalidMessage::field("action", "is missing"))
            }
        }
    }
}

impl From<OperatorAction> for policy::v1::OperatorAction {
    fn from(action: OperatorAction) -> Self {
        match action {
            OperatorAction::ReadRecord => Self::ReadRecord,
            OperatorAction::ReadOwnRecord => Self::ReadOwnRecord,
            OperatorAction::ManageRecord => Self::ManageRecord,
            OperatorAction::RevokeAccess => Self::RevokeAccess,
            OperatorAction::ManageTools => Self::ManageTools,
        }
    }
}

/// Implements the conversions of a response that is not about a tool. Both such responses have the same fields.
macro_rules! read_decision {
    ($answer:ident) => {
        impl TryFrom<policy::v1::$answer> for ReadDecision {
            type Error = InvalidMessage;

            fn try_from(decision: policy::v1::$answer) -> Result<Self, Self::Error> {
                Ok(Self {
                    id: parse(&decision.decision_id, "decision_id")?,
                    allowed: decision.allowed,
                    policy_hash: Digest::from_wire(&decision.policy_hash, "policy_hash")?,
                    bundle: decision.bundle.map(BundleReference::try_from).transpose()?,
                })
            }
        }

        impl From<&ReadDecision> for policy::v1::$answer {
            fn from(decision: &ReadDecision) -> Self {
                Self {
                    allowed: decision.allowed,
                    decision_id: decision.id.to_string(),
                    policy_hash: decision.policy_hash.to_wire(),
                    bundle: decision.bundle.map(Into::into),
                }
            }
        }
    };
}

impl TryFrom<memory::v1::RecallDecision> for ReadDecision {
    type Error = InvalidMessage;

    fn try_from(decision: memory::v1::RecallDecision) -> Result<Self, Self::Error> {
        Ok(Self {
            id: parse(&decision.decision_id, "recall.decision_id")?,
            allowed: true,
            policy_hash: Digest::from_wire(&decision.policy_hash, "recall.policy_hash")?,
            bundle: decision.bundle.map(BundleReference::try_from).transpose()?,
        })
    }
}

impl From<&ReadDecision> for memory::v1::RecallDecision {
    /// Converts a decision that allows the read. The message has no field for a denial.
    fn from(decision: &ReadDecision) -> Self {
        Self {
            decision_id: decision.id.to_string(),
            policy_hash: decision.policy_hash.to_wire(),
            bundle: decision.bundle.map(Into::into),
        }
    }
}

read_decision!(AuthorizeRecallResponse);
read_decision!(AuthorizeOperatorResponse);
