//! The line between the wire and the types everyone trusts.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use wardgate_proto::{audit, common, policy};

use crate::{
    AttributeType, AttributeValue, CallFacts, CallId, Caller, CallerClaims, ColumnClass,
    ColumnTier, Decision, DenialReason, Digest, Event, Outcome, PermitTerms, Receipt, Record,
    RefusalCount, Refusals, RowRule, SignedPermit, Status, ToolFacts, Verdict,
};

/// A message that lacks a required field or holds an impossible value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("field `{field}` {problem}")]
pub struct InvalidMessage {
    field: &'static str,
    problem: String,
}

impl InvalidMessage {
    /// Names the field and says what is wrong with it.
    pub fn field(field: &'static str, problem: impl Into<String>) -> Self {
        Self {
            field,
            problem: problem.into(),
        }
    }

    /// The field, by its proto name.
    pub fn name(&self) -> &'static str {
        self.field
    }
}

/// Takes a message field that must be there.
fn required<T>(field: Option<T>, name: &'static str) -> Result<T, InvalidMessage> {
    field.ok_or_else(|| InvalidMessage::field(name, "is missing"))
}

/// Reads a text field into its checked type.
fn parse<T>(text: &str, name: &'static str) -> Result<T, InvalidMessage>
where
    T: FromStr<Err: ToString>,
{
    text.parse()
        .map_err(|error: T::Err| InvalidMessage::field(name, error.to_string()))
}

/// Reads a text field that may be empty.
fn parse_optional<T>(text: &str, name: &'static str) -> Result<Option<T>, InvalidMessage>
where
    T: FromStr<Err: ToString>,
{
    (!text.is_empty()).then(|| parse(text, name)).transpose()
}

/// Reads a digest field that may be empty.
fn optional_digest(bytes: &[u8], name: &'static str) -> Result<Option<Digest>, InvalidMessage> {
    (!bytes.is_empty())
        .then(|| Digest::from_wire(bytes, name))
        .transpose()
}

fn wire_duration(duration: Duration) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(duration.subsec_nanos()).unwrap_or(0),
    }
}

// === caller ===

impl TryFrom<common::v1::Caller> for Caller {
    type Error = InvalidMessage;

    fn try_from(caller: common::v1::Caller) -> Result<Self, Self::Error> {
        if caller.issuer.is_empty() {
            return Err(InvalidMessage::field("caller.issuer", "is empty"));
        }
        if caller.subject.is_empty() {
            return Err(InvalidMessage::field("caller.subject", "is empty"));
        }
        let attributes = caller
            .attributes
            .into_iter()
            .map(|(name, value)| AttributeValue::try_from(value).map(|value| (name, value)))
            .collect::<Result<BTreeMap<_, _>, _>>()?;
        Ok(Self::from_verified(CallerClaims {
            issuer: caller.issuer,
            subject: caller.subject,
            tenant: caller.tenant,
            roles: caller.roles,
            attributes,
            token_id: caller.token_id,
            expires_at: required(caller.expires_at, "caller.expires_at")?.try_into()?,
        }))
    }
}

impl From<&Caller> for common::v1::Caller {
    fn from(caller: &Caller) -> Self {
        Self {
            issuer: caller.issuer().to_owned(),
            subject: caller.subject().to_owned(),
            tenant: caller.tenant().to_owned(),
            roles: caller.roles().to_vec(),
            attributes: caller
                .attributes()
                .iter()
                .map(|(name, value)| (name.clone(), value.into()))
                .collect(),
            token_id: caller.token_id().to_owned(),
            expires_at: Some(caller.expires_at().into()),
        }
    }
}

impl TryFrom<common::v1::AttributeValue> for AttributeValue {
    type Error = InvalidMessage;

    fn try_from(value: common::v1::AttributeValue) -> Result<Self, Self::Error> {
        use common::v1::attribute_value::Value;
        Ok(match required(value.value, "caller.attributes")? {
            Value::Text(text) => Self::Text(text),
            Value::Integer(number) => Self::Integer(number),
            Value::Boolean(truth) => Self::Boolean(truth),
            Value::List(list) => Self::List(list.items),
        })
    }
}

impl From<&AttributeValue> for common::v1::AttributeValue {
    fn from(value: &AttributeValue) -> Self {
        use common::v1::attribute_value::Value;
        let value = match value {
            AttributeValue::Text(text) => Value::Text(text.clone()),
            AttributeValue::Integer(number) => Value::Integer(*number),
            AttributeValue::Boolean(truth) => Value::Boolean(*truth),
            AttributeValue::List(items) => Value::List(common::v1::TextList {
                items: items.clone(),
            }),
        };
        Self { value: Some(value) }
    }
}

// === tools ===

impl TryFrom<common::v1::ToolFacts> for ToolFacts {
    type Error = InvalidMessage;

    fn try_from(tool: common::v1::ToolFacts) -> Result<Self, Self::Error> {
        Ok(Self {
            name: parse(&tool.name, "tool.name")?,
            definition_digest: Digest::from_wire(
                &tool.definition_digest,
                "tool.definition_digest",
            )?,
            read_only: tool.read_only,
            tags: tool.tags,
            entity: (!tool.entity.is_empty()).then_some(tool.entity),
            classes: tool
                .classes
                .iter()
                .map(|class| parse(class, "tool.classes"))
                .collect::<Result<_, _>>()?,
            argument_defaults: tool.argument_defaults.into_iter().collect(),
        })
    }
}

impl From<&ToolFacts> for common::v1::ToolFacts {
    fn from(tool: &ToolFacts) -> Self {
        Self {
            name: tool.name.to_string(),
            definition_digest: tool.definition_digest.to_wire(),
            read_only: tool.read_only,
            tags: tool.tags.clone(),
            entity: tool.entity.clone().unwrap_or_default(),
            classes: tool.classes.iter().map(ToString::to_string).collect(),
            argument_defaults: tool.argument_defaults.clone().into_iter().collect(),
        }
    }
}

impl TryFrom<common::v1::ColumnTier> for ColumnTier {
    type Error = InvalidMessage;

    fn try_from(tier: common::v1::ColumnTier) -> Result<Self, Self::Error> {
        use common::v1::ColumnTier as Wire;
        match tier {
            Wire::Unspecified => Err(InvalidMessage::field("column_tier", "is unspecified")),
            Wire::Clear => Ok(Self::Clear),
            Wire::Partial => Ok(Self::Partial),
            Wire::Pseudonym => Ok(Self::Pseudonym),
            Wire::Generalised => Ok(Self::Generalised),
            Wire::Dropped => Ok(Self::Dropped),
        }
    }
}

impl From<ColumnTier> for common::v1::ColumnTier {
    fn from(tier: ColumnTier) -> Self {
        match tier {
            ColumnTier::Clear => Self::Clear,
            ColumnTier::Partial => Self::Partial,
            ColumnTier::Pseudonym => Self::Pseudonym,
            ColumnTier::Generalised => Self::Generalised,
            ColumnTier::Dropped => Self::Dropped,
        }
    }
}

// === decisions and permits ===

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

impl TryFrom<policy::v1::Permit> for PermitTerms {
    type Error = InvalidMessage;

    fn try_from(permit: policy::v1::Permit) -> Result<Self, Self::Error> {
        let column_tiers = permit
            .column_tiers
            .iter()
            .map(|(class, tier)| {
                let tier = common::v1::ColumnTier::try_from(*tier)
                    .map_err(|_| InvalidMessage::field("column_tiers", "holds an unknown tier"))?;
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
            not_before: required(permit.not_before, "not_before")?.try_into()?,
            expires_at: required(permit.expires_at, "expires_at")?.try_into()?,
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
                        "holds an unknown type",
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
            Effect::Allow => {
                Verdict::Allow(required(decision.permit.clone(), "decision.permit")?.try_into()?)
            }
            Effect::Deny => Verdict::Deny {
                reason: match decision.reason() {
                    Reason::Unspecified => {
                        return Err(InvalidMessage::field("decision.reason", "is unspecified"));
                    }
                    Reason::NotPermitted => DenialReason::NotPermitted,
                    Reason::Forbidden => DenialReason::Forbidden,
                    Reason::PolicyError => DenialReason::PolicyError,
                },
                visible: decision.visible,
            },
        };
        Ok(Self {
            id: parse(&decision.decision_id, "decision.decision_id")?,
            verdict,
            policies: decision.policies,
            policy_hash: Digest::from_wire(&decision.policy_hash, "decision.policy_hash")?,
        })
    }
}

impl From<&Decision> for policy::v1::Decision {
    fn from(decision: &Decision) -> Self {
        use policy::v1::{DenialReason as Reason, Effect};
        let (effect, reason, permit, visible) = match &decision.verdict {
            Verdict::Allow(permit) => (
                Effect::Allow,
                Reason::Unspecified,
                Some(permit.into()),
                true,
            ),
            Verdict::Deny { reason, visible } => {
                let reason = match reason {
                    DenialReason::NotPermitted => Reason::NotPermitted,
                    DenialReason::Forbidden => Reason::Forbidden,
                    DenialReason::PolicyError => Reason::PolicyError,
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
            permit,
            visible,
        }
    }
}

// === the record ===

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
            arguments_digest: Digest::from_wire(&call.arguments_digest, "call.arguments_digest")?,
            decision_id: parse_optional(&call.decision_id, "call.decision_id")?,
            policy_hash: optional_digest(&call.policy_hash, "call.policy_hash")?,
            permit_id: parse_optional(&call.permit_id, "call.permit_id")?,
            issuer: call.issuer,
            subject: call.subject,
            tenant: call.tenant,
            roles: call.roles,
            token_id: call.token_id,
            client_ip: call.client_ip,
            protocol: call.protocol,
            requested_tool: call.requested_tool,
            policies: call.policies,
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
            policies: call.policies.clone(),
            permit_id: text(call.permit_id),
        }
    }
}

impl TryFrom<audit::v1::Record> for Record {
    type Error = InvalidMessage;

    fn try_from(record: audit::v1::Record) -> Result<Self, Self::Error> {
        use audit::v1::record::Event as Wire;
        let event = match required(record.event, "record.event")? {
            Wire::Intent(intent) => {
                Event::Intent(required(intent.call, "intent.call")?.try_into()?)
            }
            Wire::Outcome(outcome) => Event::Outcome(outcome.try_into()?),
            Wire::Refusals(refusals) => Event::Refusals(refusals.try_into()?),
        };
        Ok(Self {
            time: required(record.time, "record.time")?.try_into()?,
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
            call: required(outcome.call, "outcome.call")?.try_into()?,
            reason: outcome.reason,
            rows: outcome.rows,
            rows_withheld: outcome.rows_withheld,
            fields_redacted: outcome.fields_redacted,
            phi: outcome.phi,
            result_digest: optional_digest(&outcome.result_digest, "outcome.result_digest")?,
            duration: Duration::try_from(required(outcome.duration, "outcome.duration")?)
                .map_err(|_| InvalidMessage::field("outcome.duration", "is negative"))?,
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
        }
    }
}

impl TryFrom<audit::v1::Refusals> for Refusals {
    type Error = InvalidMessage;

    fn try_from(refusals: audit::v1::Refusals) -> Result<Self, Self::Error> {
        Ok(Self {
            window_start: required(refusals.window_start, "refusals.window_start")?.try_into()?,
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
