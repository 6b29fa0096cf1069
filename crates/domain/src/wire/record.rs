//! Conversions of records and receipts.

use std::time::Duration;

use wardgate_proto::audit;

use super::{optional_digest, parse, parse_optional, require_field, wire_duration};
use crate::{
    AdminChange, BundleReference, CallFacts, CallId, Digest, Event, InvalidMessage, OperatorFacts,
    Outcome, ReadDecision, Receipt, Record, RefusalCount, Refusals, Status,
};

impl TryFrom<audit::v1::Receipt> for Receipt {
    type Error = InvalidMessage;

    fn try_from(receipt: audit::v1::Receipt) -> Result<Self, Self::Error> {
        let leaf_hash = Digest::from_wire(&receipt.leaf_hash, "receipt.leaf_hash")?;
        Ok(Self::for_durable(receipt.sequence, leaf_hash))
    }
}

impl From<Receipt> for audit::v1::Receipt {
    fn from(receipt: Receipt) -> Self {
        Self {
            sequence: receipt.sequence(),
            leaf_hash: receipt.leaf_hash().to_wire(),
        }
    }
}

impl TryFrom<audit::v1::Status> for Status {
    type Error = InvalidMessage;

    fn try_from(status: audit::v1::Status) -> Result<Self, InvalidMessage> {
        use audit::v1::Status as Wire;
        Ok(match status {
            Wire::Unspecified => return Err(InvalidMessage::field("status", "is unspecified")),
            Wire::Ok => Self::Ok,
            Wire::Denied => Self::Denied,
            Wire::UnknownTool => Self::UnknownTool,
            Wire::InvalidArguments => Self::InvalidArguments,
            Wire::Error => Self::Error,
            Wire::Timeout => Self::Timeout,
            Wire::Cancelled => Self::Cancelled,
            Wire::Unknown => Self::Unknown,
        })
    }
}

impl From<Status> for audit::v1::Status {
    fn from(status: Status) -> Self {
        match status {
            Status::Ok => Self::Ok,
            Status::Denied => Self::Denied,
            Status::UnknownTool => Self::UnknownTool,
            Status::InvalidArguments => Self::InvalidArguments,
            Status::Error => Self::Error,
            Status::Timeout => Self::Timeout,
            Status::Cancelled => Self::Cancelled,
            Status::Unknown => Self::Unknown,
        }
    }
}

impl TryFrom<audit::v1::CallFacts> for CallFacts {
    type Error = InvalidMessage;

    fn try_from(call: audit::v1::CallFacts) -> Result<Self, Self::Error> {
        let call_id: CallId = parse(&call.call_id, "call.call_id")?;
        Ok(Self {
            call_id,
            tool: parse_optional(&call.tool, "call.tool")?,
            definition_digest: optional_digest(&call.definition_digest, "call.definition_digest")?,
            tags: call.tool_tags.map(|it| it.tags.into()),
            arguments_digest: Digest::from_wire(&call.arguments_digest, "call.arguments_digest")?,
            decision_id: parse_optional(&call.decision_id, "call.decision_id")?,
            policy_hash: optional_digest(&call.policy_hash, "call.policy_hash")?,
            bundle: call.bundle.map(BundleReference::try_from).transpose()?,
            permit_id: parse_optional(&call.permit_id, "call.permit_id")?,
            approval_id: parse_optional(&call.approval_id, "call.approval_id")?,
            conversation: optional_digest(&call.conversation_digest, "call.conversation_digest")?,
            issuer: call.issuer,
            subject: call.subject,
            tenant: call.tenant,
            roles: call.roles,
            token_id: call.token_id,
            client_ip: call.client_ip,
            protocol: call.protocol,
            requested_tool: call.requested_tool,
            policies: call.policies,
            method: call.method,
        })
    }
}

impl From<&CallFacts> for audit::v1::CallFacts {
    fn from(call: &CallFacts) -> Self {
        fn text(value: Option<impl ToString>) -> String {
            value.map(|value| value.to_string()).unwrap_or_default()
        }
        Self {
            call_id: call.call_id.to_string(),
            issuer: call.issuer.clone(),
            subject: call.subject.clone(),
            tenant: call.tenant.clone(),
            roles: call.roles.clone(),
            token_id: call.token_id.clone(),
            client_ip: call.client_ip.clone(),
            protocol: call.protocol.clone(),
            requested_tool: call.requested_tool.clone(),
            tool: text(call.tool.as_ref()),
            definition_digest: call
                .definition_digest
                .map(Digest::to_wire)
                .unwrap_or_default(),
            arguments_digest: call.arguments_digest.to_wire(),
            decision_id: text(call.decision_id),
            policy_hash: call.policy_hash.map(Digest::to_wire).unwrap_or_default(),
            bundle: call.bundle.map(Into::into),
            policies: call.policies.clone(),
            permit_id: text(call.permit_id),
            method: call.method.clone(),
            approval_id: text(call.approval_id),
            conversation_digest: call.conversation.map(Digest::to_wire).unwrap_or_default(),
            tool_tags: call.tags.as_deref().map(|tags| audit::v1::ToolTags {
                tags: tags.to_vec(),
            }),
        }
    }
}

impl TryFrom<audit::v1::Record> for Record {
    type Error = InvalidMessage;

    fn try_from(record: audit::v1::Record) -> Result<Self, Self::Error> {
        use audit::v1::record::Event as Wire;
        let event = match require_field(record.event, "record.event")? {
            Wire::Intent(intent) => {
                Event::Intent(require_field(intent.call, "intent.call")?.try_into()?)
            }
            Wire::Outcome(outcome) => Event::Outcome(outcome.try_into()?),
            Wire::Refusals(refusals) => Event::Refusals(refusals.try_into()?),
            Wire::AdminChange(change) => Event::AdminChange(change.try_into()?),
            Wire::MemoryAccess(access) => Event::MemoryAccess(access.try_into()?),
            Wire::Execution(execution) => {
                Event::Execution(require_field(execution.call, "execution.call")?.try_into()?)
            }
        };
        Ok(Self {
            time: require_field(record.time, "record.time")?.try_into()?,
            event,
        })
    }
}

impl From<&Record> for audit::v1::Record {
    fn from(record: &Record) -> Self {
        use audit::v1::record::Event as Wire;
        let event = match &record.event {
            Event::Intent(call) => Wire::Intent(audit::v1::Intent {
                call: Some(call.into()),
            }),
            Event::Outcome(outcome) => Wire::Outcome(outcome.into()),
            Event::Refusals(refusals) => Wire::Refusals(refusals.into()),
            Event::AdminChange(change) => Wire::AdminChange(change.into()),
            Event::MemoryAccess(access) => Wire::MemoryAccess(access.into()),
            Event::Execution(call) => Wire::Execution(audit::v1::Execution {
                call: Some(call.into()),
            }),
        };
        Self {
            time: Some(record.time.into()),
            event: Some(event),
        }
    }
}

impl TryFrom<audit::v1::Outcome> for Outcome {
    type Error = InvalidMessage;

    fn try_from(outcome: audit::v1::Outcome) -> Result<Self, Self::Error> {
        Ok(Self {
            status: outcome.status().try_into()?,
            call: require_field(outcome.call, "outcome.call")?.try_into()?,
            reason: outcome.reason,
            rows: outcome.rows,
            rows_withheld: outcome.rows_withheld,
            fields_redacted: outcome.fields_redacted,
            phi: outcome.phi,
            result_digest: optional_digest(&outcome.result_digest, "outcome.result_digest")?,
            duration: Duration::try_from(require_field(outcome.duration, "outcome.duration")?)
                .map_err(|_| InvalidMessage::field("outcome.duration", "is negative"))?,
            details: (outcome.details)
                .map(|details| details.try_into().map(Box::new))
                .transpose()?,
        })
    }
}

impl From<&Outcome> for audit::v1::Outcome {
    fn from(outcome: &Outcome) -> Self {
        Self {
            call: Some((&outcome.call).into()),
            status: audit::v1::Status::from(outcome.status).into(),
            reason: outcome.reason.clone(),
            rows: outcome.rows,
            rows_withheld: outcome.rows_withheld,
            fields_redacted: outcome.fields_redacted,
            phi: outcome.phi,
            result_digest: outcome
                .result_digest
                .map(Digest::to_wire)
                .unwrap_or_default(),
            duration: Some(wire_duration(outcome.duration)),
            details: outcome.details.as_deref().map(Into::into),
        }
    }
}

impl TryFrom<audit::v1::Refusals> for Refusals {
    type Error = InvalidMessage;

    fn try_from(refusals: audit::v1::Refusals) -> Result<Self, Self::Error> {
        Ok(Self {
            window_start: require_field(refusals.window_start, "refusals.window_start")?
                .try_into()?,
            counts: refusals
                .counts
                .into_iter()
                .map(|count| RefusalCount {
                    reason: count.reason,
                    client_ip: count.client_ip,
                    subject: count.subject,
                    count: count.count,
                })
                .collect(),
        })
    }
}

impl From<&Refusals> for audit::v1::Refusals {
    fn from(refusals: &Refusals) -> Self {
        Self {
            window_start: Some(refusals.window_start.into()),
            counts: refusals
                .counts
                .iter()
                .map(|count| audit::v1::RefusalCount {
                    reason: count.reason.clone(),
                    client_ip: count.client_ip.clone(),
                    subject: count.subject.clone(),
                    count: count.count,
                })
                .collect(),
        }
    }
}

impl TryFrom<audit::v1::AdminChange> for AdminChange {
    type Error = InvalidMessage;

    fn try_from(change: audit::v1::AdminChange) -> Result<Self, Self::Error> {
        let named = |text: String, field| {
            if text.is_empty() {
                return Err(InvalidMessage::field(field, "is missing"));
            }
            Ok(text)
        };
        Ok(Self {
            actor: named(change.actor, "admin_change.actor")?,
            action: named(change.action, "admin_change.action")?,
            target: named(change.target, "admin_change.target")?,
            scope: change.scope,
            detail_digest: optional_digest(&change.detail_digest, "admin_change.detail_digest")?,
            failed: change.failed,
            operator: (change.operator)
                .map(|operator| operator.try_into().map(Box::new))
                .transpose()?,
        })
    }
}

impl TryFrom<audit::v1::OperatorFacts> for OperatorFacts {
    type Error = InvalidMessage;

    fn try_from(operator: audit::v1::OperatorFacts) -> Result<Self, Self::Error> {
        Ok(Self {
            issuer: operator.issuer,
            tenant: operator.tenant,
            roles: operator.roles,
            token_id: operator.token_id,
            decision: ReadDecision {
                id: parse(&operator.decision_id, "operator.decision_id")?,
                allowed: operator.allowed,
                policy_hash: Digest::from_wire(&operator.policy_hash, "operator.policy_hash")?,
                bundle: operator.bundle.map(BundleReference::try_from).transpose()?,
            },
        })
    }
}

impl From<&OperatorFacts> for audit::v1::OperatorFacts {
    fn from(operator: &OperatorFacts) -> Self {
        Self {
            issuer: operator.issuer.clone(),
            tenant: operator.tenant.clone(),
            roles: operator.roles.clone(),
            token_id: operator.token_id.clone(),
            decision_id: operator.decision.id.to_string(),
            allowed: operator.decision.allowed,
            policy_hash: operator.decision.policy_hash.to_wire(),
            bundle: operator.decision.bundle.map(Into::into),
        }
    }
}

impl From<&AdminChange> for audit::v1::AdminChange {
    fn from(change: &AdminChange) -> Self {
        Self {
            actor: change.actor.clone(),
            action: change.action.clone(),
            target: change.target.clone(),
            scope: change.scope.clone(),
            detail_digest: change
                .detail_digest
                .map(Digest::to_wire)
                .unwrap_or_default(),
            failed: change.failed,
            operator: change.operator.as_deref().map(Into::into),
        }
    }
}
