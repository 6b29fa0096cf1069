//! The canonical bytes of a record, one JSON object in the form of RFC 8785, and their RFC 6962 leaf hash.
//!
//! The structs below are the allow-list: a value without a field here cannot get into a record. Their fields are sorted by
//! name, which is the order that RFC 8785 requires. `serde_json` writes no white space and escapes strings as RFC 8785 does.
//! All numbers are integers that a double represents exactly.

mod open_intent;

use std::borrow::Cow;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use wardgate_domain::{
    AdminChange, BundleReference, CallFacts, Digest, Event, InvalidMessage, MemoryAccess, Outcome,
    Reason, Record, Refusals, Status, Timestamp,
};

use crate::MacKey;
use crate::anomaly::Anomaly;
use crate::sealed_details::SealedDetails;

pub(crate) use open_intent::OpenIntent;

/// Version of the record fields below.
const VERSION: u8 = 1;

/// Maximum length of a record in bytes, so that its length fits into the 16-bit prefix of an entry of a tile
/// (<https://c2sp.org/tlog-tiles>).
const MAX_BYTES: usize = 65_535;

/// Initial capacity in bytes of the buffer for a record, which is enough for most records.
const USUAL_BYTES: usize = 1_280;

/// Largest integer that every JSON reader represents exactly (RFC 7493, section 2.2).
const MAX_INTEGER: u64 = (1 << 53) - 1;

/// Maximum length, in characters, of a text column that queries filter on, because the size of an index entry is limited.
const MAX_COLUMN: usize = 512;

/// Name of the event for actions of operators in records.
pub(crate) const ADMIN_CHANGE: &str = "admin_change";

/// Name of the event for unusual behaviour in records.
pub(crate) const ANOMALY: &str = "anomaly";

/// A record that is ready to be stored: its bytes, its hash, and the columns that queries filter on.
#[derive(Debug)]
pub(crate) struct RecordEntry {
    pub(crate) canonical: Vec<u8>,
    pub(crate) leaf_hash: Digest,
    pub(crate) event: &'static str,
    pub(crate) time: Timestamp,
    pub(crate) call_id: Option<String>,
    pub(crate) subject: Option<String>,
    pub(crate) tool: Option<String>,
    pub(crate) status: Option<&'static str>,
    /// The sealed details, which are stored beside the canonical bytes.
    pub(crate) details: Option<Vec<u8>>,
    /// The tags of the data subjects in the canonical bytes.
    pub(crate) data_subjects: Vec<Digest>,
}

impl RecordEntry {
    /// Creates the entry of `record`. `details` are the sealed details of an outcome.
    pub(crate) fn from_record(
        record: &Record,
        mac_key: &MacKey,
        details: Option<SealedDetails>,
    ) -> Result<Self, InvalidMessage> {
        match &record.event {
            Event::Intent(subject) => {
                let call = CallRecord::new("intent", record.time, subject, mac_key)?;
                Self::of_call(&call, "intent", record.time, None)
            }
            Event::Outcome(outcome) => Self::of_outcome(record.time, outcome, mac_key, details),
            Event::Refusals(refusals) => Self::of_refusals(record.time, refusals),
            Event::AdminChange(change) => Self::of_admin_change(record.time, change),
            Event::MemoryAccess(access) => Self::of_memory_access(record.time, access, mac_key),
            Event::Execution(call) => {
                let call = CallRecord::new("execution", record.time, call, mac_key)?;
                let entry = Self::of_call(&call, "execution", record.time, None)?;
                // A call may be executed more than once, each time with its own record, so the records must not count as
                // duplicates.
                Ok(Self {
                    call_id: None,
                    ..entry
                })
            }
        }
    }

    fn of_outcome(
        time: Timestamp,
        outcome: &Outcome,
        mac_key: &MacKey,
        details: Option<SealedDetails>,
    ) -> Result<Self, InvalidMessage> {
        let micros = u64::try_from(outcome.duration.as_micros()).unwrap_or(u64::MAX);
        let subjects = details.iter().flat_map(|details| &details.subjects);
        let others = details.as_ref().map_or(0, |details| details.rows_of_others);
        let call = CallRecord {
            data_subjects: subjects
                .map(|(tag, rows)| {
                    Ok(RecordSubject {
                        hmac: tag.to_hex(),
                        rows: integer(*rows, "outcome.details.subjects.rows")?,
                    })
                })
                .collect::<Result<_, InvalidMessage>>()?,
            details_hmac: details.as_ref().map(|details| details.commitment.to_hex()),
            rows_of_other_subjects: integer(others, "outcome.details.rows_of_others")?,
            duration_us: Some(integer(micros, "outcome.duration")?),
            fields_redacted: Some(integer(outcome.fields_redacted, "outcome.fields_redacted")?),
            phi: Some(outcome.phi),
            reason: outcome.reason.as_str().into(),
            result_hmac: outcome
                .result_digest
                .map(|digest| mac_key.mac(digest).to_hex()),
            rows: Some(integer(outcome.rows, "outcome.rows")?),
            rows_withheld: Some(integer(outcome.rows_withheld, "outcome.rows_withheld")?),
            status: outcome.status.as_str().into(),
            violation: Some(is_violation(outcome)),
            ..CallRecord::new("outcome", time, &outcome.call, mac_key)?
        };
        let entry = Self::of_call(&call, "outcome", time, Some(outcome.status))?;
        let Some(SealedDetails {
            sealed, subjects, ..
        }) = details
        else {
            return Ok(entry);
        };
        Ok(Self {
            details: Some(sealed),
            data_subjects: subjects.into_iter().map(|(tag, _)| tag).collect(),
            ..entry
        })
    }

    fn of_call(
        call: &CallRecord<'_>,
        event: &'static str,
        time: Timestamp,
        status: Option<Status>,
    ) -> Result<Self, InvalidMessage> {
        let tool = if call.tool.is_empty() {
            &call.requested_tool
        } else {
            &call.tool
        };
        Ok(Self {
            call_id: Some(call.call_id.clone().into_owned()),
            subject: Some(column(&call.caller.subject)),
            tool: Some(column(tool)),
            status: status.map(Status::as_str),
            ..Self::without_call(call, event, time)?
        })
    }

    fn of_refusals(time: Timestamp, refusals: &Refusals) -> Result<Self, InvalidMessage> {
        let counts = refusals.counts.iter().map(|count| {
            Ok(RefusalTally {
                client_ip: &count.client_ip,
                count: integer(count.count, "refusals.counts.count")?,
                reason: &count.reason,
                subject: &count.subject,
            })
        });
        let canonical = RefusedRequests {
            counts: counts.collect::<Result<_, InvalidMessage>>()?,
            event: "refusals",
            time: rfc_3339(time, "record.time")?,
            version: VERSION,
            window_start: rfc_3339(refusals.window_start, "refusals.window_start")?,
        };
        Self::without_call(&canonical, "refusals", time)
    }

    /// Creates the entry of an action of an operator, whether it was allowed or not.
    pub(crate) fn of_admin_change(
        time: Timestamp,
        change: &AdminChange,
    ) -> Result<Self, InvalidMessage> {
        let operator = change.operator.as_deref();
        let bundle = operator.and_then(|it| it.decision.bundle);
        let bundle = bundle.map(|it| RecordBundle::from_reference(it, "operator.bundle.version"));
        let bundle = bundle.transpose()?;
        let status = match (change.is_allowed(), change.failed) {
            (false, _) => Some(Status::Denied.as_str()),
            (true, true) => Some(Status::Error.as_str()),
            (true, false) => None,
        };
        let canonical = AdminRecord {
            action: &change.action,
            actor: &change.actor,
            caller: operator.map(|it| RecordCaller {
                issuer: it.issuer.as_str().into(),
                roles: it.roles.as_slice().into(),
                subject: change.actor.as_str().into(),
                tenant: it.tenant.as_str().into(),
                token_id: it.token_id.as_str().into(),
            }),
            decision: operator.map(|it| Decision {
                bundle,
                id: it.decision.id.to_string(),
                policies: Cow::default(),
                policy_hash: Some(it.decision.policy_hash.to_hex()),
            }),
            detail_digest: change.detail_digest.map(Digest::to_hex),
            event: ADMIN_CHANGE,
            scope: &change.scope,
            status,
            target: &change.target,
            time: rfc_3339(time, "record.time")?,
            version: VERSION,
        };
        Ok(Self {
            subject: Some(column(&change.actor)),
            tool: Some(column(&change.target)),
            status,
            ..Self::without_call(&canonical, ADMIN_CHANGE, time)?
        })
    }

    fn of_memory_access(
        time: Timestamp,
        access: &MemoryAccess,
        mac_key: &MacKey,
    ) -> Result<Self, InvalidMessage> {
        let call = &access.call;
        let micros = u64::try_from(access.duration.as_micros()).unwrap_or(u64::MAX);
        let conversation = access.conversation.map(|key| key.to_string());
        let decision = Decision::from_call(call)?;
        let canonical = MemoryRecord {
            arguments_hmac: mac_key.mac(call.arguments_digest).to_hex(),
            call_id: call.call_id.to_string(),
            caller: RecordCaller::from_call(call),
            client_ip: &call.client_ip,
            conversation: conversation.as_deref(),
            decision,
            duration_us: integer(micros, "memory_access.duration")?,
            event: "memory_access",
            messages: integer(access.messages, "memory_access.messages")?,
            method: access.method.as_str(),
            phi: access.phi,
            protocol: &call.protocol,
            reason: &access.reason,
            status: access.status.as_str(),
            time: rfc_3339(time, "record.time")?,
            version: VERSION,
            violation: access.status == Status::Denied,
            withheld: integer(access.withheld, "memory_access.withheld")?,
        };
        Ok(Self {
            call_id: Some(canonical.call_id.clone()),
            subject: Some(column(&call.subject)),
            status: Some(access.status.as_str()),
            tool: conversation.clone(),
            ..Self::without_call(&canonical, "memory_access", time)?
        })
    }

    /// Creates the entry of an anomaly. The same anomaly always has the same entry, however often it is found.
    pub(crate) fn of_anomaly(anomaly: &Anomaly) -> Result<Self, InvalidMessage> {
        let caller = anomaly.caller.as_ref();
        let canonical = AnomalyRecord {
            anomaly: anomaly.kind.as_str(),
            caller: caller.map(|caller| RecordCaller {
                issuer: caller.issuer.as_str().into(),
                roles: Cow::default(),
                subject: caller.subject.as_str().into(),
                tenant: caller.tenant.as_str().into(),
                token_id: Cow::default(),
            }),
            client_ip: &anomaly.client_ip,
            count: integer(anomaly.count as u64, "anomaly.count")?,
            event: ANOMALY,
            last_sequence: integer(anomaly.last_sequence, "anomaly.last_sequence")?,
            policy: anomaly.policy.as_deref(),
            threshold: integer(anomaly.threshold.count as u64, "anomaly.threshold")?,
            time: rfc_3339(anomaly.time, "record.time")?,
            version: VERSION,
            within_seconds: anomaly.threshold.within.as_secs(),
        };
        Ok(Self {
            subject: caller.map(|caller| column(&caller.subject)),
            ..Self::without_call(&canonical, ANOMALY, anomaly.time)?
        })
    }

    fn without_call(
        canonical: &impl Serialize,
        event: &'static str,
        time: Timestamp,
    ) -> Result<Self, InvalidMessage> {
        let mut bytes = Vec::with_capacity(USUAL_BYTES);
        serde_json::to_writer(&mut bytes, canonical)
            .map_err(|error| InvalidMessage::field("record", error.to_string()))?;
        let canonical = bytes;
        if canonical.len() > MAX_BYTES {
            let problem = format!("takes {} bytes, more than {MAX_BYTES}", canonical.len());
            return Err(InvalidMessage::field("record", problem));
        }
        Ok(Self {
            leaf_hash: leaf_hash(&canonical),
            canonical,
            event,
            time,
            call_id: None,
            subject: None,
            tool: None,
            status: None,
            details: None,
            data_subjects: Vec::new(),
        })
    }
}

/// An intent, an outcome or an execution. Fields that are empty or `None` are absent.
#[derive(Debug, Serialize, Deserialize)]
struct CallRecord<'a> {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    approval_id: Option<String>,
    arguments_hmac: Cow<'a, str>,
    call_id: Cow<'a, str>,
    caller: RecordCaller<'a>,
    #[serde(default, skip_serializing_if = "str::is_empty")]
    client_ip: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    conversation_hmac: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    data_subjects: Vec<RecordSubject>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    decision: Option<Decision<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    definition_digest: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    details_hmac: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    duration_us: Option<u64>,
    event: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fields_redacted: Option<u64>,
    /// The MCP method; empty for a tool call.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    method: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    permit_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    phi: Option<bool>,
    #[serde(default, skip_serializing_if = "str::is_empty")]
    protocol: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "str::is_empty")]
    reason: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "str::is_empty")]
    requested_tool: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    result_hmac: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rows: Option<u64>,
    #[serde(default, skip_serializing_if = "is_zero")]
    rows_of_other_subjects: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rows_withheld: Option<u64>,
    #[serde(default, skip_serializing_if = "str::is_empty")]
    status: Cow<'a, str>,
    /// The tags of the tool, absent if they are not known. An empty list is present, because counts by tag need to know that the
    /// tool has no tags.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tags: Option<Cow<'a, [String]>>,
    time: String,
    #[serde(default, skip_serializing_if = "str::is_empty")]
    tool: Cow<'a, str>,
    version: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    violation: Option<bool>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde gives every field by reference"
)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A data subject whose rows were released, inside a [`CallRecord`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RecordSubject {
    pub(crate) hmac: String,
    rows: u64,
}

/// Returns the keyed digest of a conversation, as it appears in records of calls.
pub(crate) fn conversation_hmac(conversation: Digest, mac_key: &MacKey) -> String {
    mac_key.mac(conversation).to_hex()
}

/// Returns whether the outcome is a violation: the call was denied, but not because it waits for an approval or its approver
/// refused it.
fn is_violation(outcome: &Outcome) -> bool {
    let mut of_approvers = Reason::OF_APPROVERS.iter();
    let waits = of_approvers.any(|it| it.as_str() == outcome.reason);
    outcome.status == Status::Denied && !waits
}

/// The caller, inside a [`CallRecord`], a [`MemoryRecord`], an [`AdminRecord`] or an [`AnomalyRecord`].
#[derive(Debug, Serialize, Deserialize)]
struct RecordCaller<'a> {
    issuer: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    roles: Cow<'a, [String]>,
    subject: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "str::is_empty")]
    tenant: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "str::is_empty")]
    token_id: Cow<'a, str>,
}

impl<'a> RecordCaller<'a> {
    fn from_call(call: &'a CallFacts) -> Self {
        Self {
            issuer: call.issuer.as_str().into(),
            roles: call.roles.as_slice().into(),
            subject: call.subject.as_str().into(),
            tenant: call.tenant.as_str().into(),
            token_id: call.token_id.as_str().into(),
        }
    }
}

/// The decision of the policy, inside a [`CallRecord`], a [`MemoryRecord`] or an [`AdminRecord`].
#[derive(Debug, Serialize, Deserialize)]
struct Decision<'a> {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bundle: Option<RecordBundle>,
    id: String,
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    policies: Cow<'a, [String]>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    policy_hash: Option<String>,
}

/// The bundle that the policies of a [`Decision`] come from.
#[derive(Debug, Serialize, Deserialize)]
struct RecordBundle {
    digest: String,
    version: u64,
}

/// Requests that were refused before they became a call.
#[derive(Debug, Serialize)]
struct RefusedRequests<'a> {
    counts: Vec<RefusalTally<'a>>,
    event: &'static str,
    time: String,
    version: u8,
    window_start: String,
}

/// The number of refused requests with the same reason, address and subject.
#[derive(Debug, Serialize)]
struct RefusalTally<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    client_ip: &'a str,
    count: u64,
    reason: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    subject: &'a str,
}

/// A change by an operator, or a read of the audit log by an operator.
#[derive(Debug, Serialize)]
struct AdminRecord<'a> {
    action: &'a str,
    actor: &'a str,
    /// The operator, if it was identified by a token.
    #[serde(skip_serializing_if = "Option::is_none")]
    caller: Option<RecordCaller<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    decision: Option<Decision<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail_digest: Option<String>,
    event: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    scope: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'static str>,
    target: &'a str,
    time: String,
    version: u8,
}

/// An access to remembered conversations.
#[derive(Debug, Serialize)]
struct MemoryRecord<'a> {
    arguments_hmac: String,
    call_id: String,
    caller: RecordCaller<'a>,
    #[serde(skip_serializing_if = "str::is_empty")]
    client_ip: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    conversation: Option<&'a str>,
    /// The decision that the caller may read a conversation of another caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    decision: Option<Decision<'a>>,
    duration_us: u64,
    event: &'static str,
    messages: u64,
    method: &'static str,
    phi: bool,
    #[serde(skip_serializing_if = "str::is_empty")]
    protocol: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'a str,
    status: &'static str,
    time: String,
    version: u8,
    violation: bool,
    withheld: u64,
}

/// Unusual behaviour of a caller or of an address.
#[derive(Debug, Serialize)]
struct AnomalyRecord<'a> {
    anomaly: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    caller: Option<RecordCaller<'a>>,
    #[serde(skip_serializing_if = "str::is_empty")]
    client_ip: &'a str,
    count: u64,
    event: &'static str,
    last_sequence: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<&'a str>,
    threshold: u64,
    time: String,
    version: u8,
    within_seconds: u64,
}

impl RecordBundle {
    /// Returns the bundle as records contain it. `field` names the version in the error for one that is too large.
    fn from_reference(
        bundle: BundleReference,
        field: &'static str,
    ) -> Result<Self, InvalidMessage> {
        Ok(Self {
            digest: bundle.digest.to_hex(),
            version: integer(bundle.version, field)?,
        })
    }
}

impl<'a> Decision<'a> {
    /// Returns the decision about `call`, or `None` if the policy made none.
    fn from_call(call: &'a CallFacts) -> Result<Option<Self>, InvalidMessage> {
        let bundle = call.bundle;
        let bundle = bundle.map(|it| RecordBundle::from_reference(it, "call.bundle.version"));
        let bundle = bundle.transpose()?;
        Ok(call.decision_id.map(|id| Self {
            bundle,
            id: id.to_string(),
            policies: call.policies.as_slice().into(),
            policy_hash: call.policy_hash.map(Digest::to_hex),
        }))
    }
}

impl<'a> CallRecord<'a> {
    fn new(
        event: &'static str,
        time: Timestamp,
        subject: &'a CallFacts,
        mac_key: &MacKey,
    ) -> Result<Self, InvalidMessage> {
        let decision = Decision::from_call(subject)?;
        Ok(Self {
            approval_id: subject.approval_id.map(|id| id.to_string()),
            arguments_hmac: mac_key.mac(subject.arguments_digest).to_hex().into(),
            call_id: subject.call_id.to_string().into(),
            caller: RecordCaller::from_call(subject),
            client_ip: subject.client_ip.as_str().into(),
            conversation_hmac: subject
                .conversation
                .map(|it| conversation_hmac(it, mac_key)),
            data_subjects: Vec::new(),
            decision,
            definition_digest: subject.definition_digest.map(Digest::to_hex),
            details_hmac: None,
            duration_us: None,
            event: event.into(),
            fields_redacted: None,
            method: subject.method.as_str().into(),
            permit_id: subject.permit_id.map(|id| id.to_string()),
            phi: None,
            protocol: subject.protocol.as_str().into(),
            reason: "".into(),
            requested_tool: subject.requested_tool.as_str().into(),
            result_hmac: None,
            rows: None,
            rows_of_other_subjects: 0,
            rows_withheld: None,
            status: "".into(),
            tags: subject.tags.as_deref().map(Cow::Borrowed),
            time: rfc_3339(time, "record.time")?,
            tool: subject
                .tool
                .as_ref()
                .map_or("".into(), |tool| tool.to_string().into()),
            version: VERSION,
            violation: None,
        })
    }
}

/// Returns the leaf hash of RFC 6962, section 2.1: SHA-256 over 0x00 and the leaf.
pub(crate) fn leaf_hash(canonical: &[u8]) -> Digest {
    Digest::of_parts([&[0], canonical])
}

/// Returns `text` in the form in which both the column and filters on it contain it: short enough for an index, and without
/// NUL, which PostgreSQL refuses in a text. The canonical bytes contain the unchanged text.
pub(crate) fn column(text: &str) -> String {
    if text.len() <= MAX_COLUMN && !text.contains('\0') {
        return text.to_owned();
    }
    let without_nul = |character| {
        if character == '\0' {
            char::REPLACEMENT_CHARACTER
        } else {
            character
        }
    };
    text.chars().take(MAX_COLUMN).map(without_nul).collect()
}

fn integer(value: u64, field: &'static str) -> Result<u64, InvalidMessage> {
    if value > MAX_INTEGER {
        return Err(InvalidMessage::field(
            field,
            format!("is above {MAX_INTEGER}"),
        ));
    }
    Ok(value)
}

/// Formats `time` according to RFC 3339 with `Z`. Fails for a time after the year 9999, which has no such form.
fn rfc_3339(time: Timestamp, field: &'static str) -> Result<String, InvalidMessage> {
    let mut text = String::new();
    write!(text, "{time}")
        .map_err(|_| InvalidMessage::field(field, "cannot be written in RFC 3339"))?;
    Ok(text)
}

#[cfg(test)]
mod tests;
