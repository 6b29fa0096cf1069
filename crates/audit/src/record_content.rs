//! The fields that are read from the canonical bytes of a record: for filters, for its details, and for the columns that
//! queries filter on.

use std::borrow::Cow;

use serde::Deserialize;
use wardgate_domain::{Digest, Timestamp};

use crate::canonical::{ADMIN_CHANGE, ANOMALY, RecordSubject, column};

/// The fields of a record that filters need and that are in no column.
#[derive(Debug, Deserialize)]
pub(crate) struct RecordContent<'a> {
    #[serde(borrow)]
    caller: Option<RecordTenant<'a>>,
    #[serde(borrow, default)]
    counts: Vec<RecordReason<'a>>,
    decision: Option<RecordDecision>,
    #[serde(borrow)]
    pub(crate) event: Cow<'a, str>,
    #[serde(default)]
    pub(crate) phi: bool,
    #[serde(borrow, default)]
    reason: Cow<'a, str>,
    #[serde(default)]
    pub(crate) rows_withheld: u64,
    #[serde(default)]
    pub(crate) withheld: u64,
}

#[derive(Debug, Deserialize)]
struct RecordTenant<'a> {
    #[serde(borrow, default)]
    tenant: Cow<'a, str>,
}

#[derive(Debug, Deserialize)]
struct RecordReason<'a> {
    #[serde(borrow)]
    reason: Cow<'a, str>,
}

#[derive(Debug, Deserialize)]
struct RecordDecision {
    id: String,
    #[serde(default)]
    policies: Vec<String>,
}

impl<'a> RecordContent<'a> {
    /// Parses the canonical bytes. Returns `None` if they are not a record.
    pub(crate) fn parse(canonical: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(canonical).ok()
    }

    /// Returns whether the record is of an action of a caller of `tenant`.
    pub(crate) fn is_of_tenant(&self, tenant: &str) -> bool {
        let caller = self.caller.as_ref();
        caller.is_some_and(|caller| caller.tenant == tenant)
    }

    /// Returns whether `id` is the id of the decision, or of a policy that determined it.
    pub(crate) fn is_decided_by(&self, id: &str) -> bool {
        let decision = self.decision.as_ref();
        decision.is_some_and(|it| it.id == id || it.policies.iter().any(|policy| policy == id))
    }

    /// Returns whether a call or request was refused, or failed, for `reason`.
    pub(crate) fn has_reason(&self, reason: &str) -> bool {
        self.reason == reason || self.counts.iter().any(|count| count.reason == reason)
    }
}

/// The fields of a record that are needed to open its details.
#[derive(Debug, Deserialize)]
pub(crate) struct DetailsReference<'a> {
    #[serde(borrow)]
    pub(crate) call_id: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) details_hmac: Cow<'a, str>,
    #[serde(default)]
    data_subjects: Vec<RecordSubject>,
}

impl<'a> DetailsReference<'a> {
    /// Parses the canonical bytes. Returns `None` if the record has no details.
    pub(crate) fn parse(canonical: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(canonical).ok()
    }

    /// Returns the tags of the data subjects, in order.
    pub(crate) fn tags(&self) -> Vec<Digest> {
        let subjects = self.data_subjects.iter();
        subjects
            .filter_map(|subject| subject.hmac.parse().ok())
            .collect()
    }
}

/// The values of the columns that queries filter on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct IndexedColumns {
    pub(crate) event: String,
    pub(crate) time: i64,
    pub(crate) call_id: Option<String>,
    pub(crate) subject: Option<String>,
    pub(crate) tool: Option<String>,
    pub(crate) status: Option<String>,
}

wardgate_store::from_row!(IndexedColumns {
    event,
    time,
    call_id,
    subject,
    tool,
    status
});

impl IndexedColumns {
    /// Returns the values that the columns have if `canonical` was not changed, or `None` if it is not a record. For an event
    /// that only a newer program knows, the subject and the tool are taken from `stored`.
    pub(crate) fn from_canonical(canonical: &[u8], stored: &Self) -> Option<Self> {
        #[derive(Deserialize)]
        struct IndexedMembers<'a> {
            #[serde(borrow)]
            event: Cow<'a, str>,
            #[serde(borrow)]
            time: Cow<'a, str>,
            call_id: Option<String>,
            caller: Option<CallerSubject>,
            actor: Option<String>,
            tool: Option<String>,
            requested_tool: Option<String>,
            conversation: Option<String>,
            target: Option<String>,
            status: Option<String>,
        }
        #[derive(Deserialize)]
        struct CallerSubject {
            subject: String,
        }
        let members: IndexedMembers<'_> = serde_json::from_slice(canonical).ok()?;
        let time = members.time.parse::<Timestamp>().ok()?.as_micros();
        let subject = members.caller.map(|caller| caller.subject);
        let cut = |text: Option<String>| text.map(|text| column(&text));
        let (subject, tool) = match &*members.event {
            "intent" | "outcome" | "execution" => {
                let tool = members.tool.or(members.requested_tool).unwrap_or_default();
                (subject, Some(tool))
            }
            "refusals" => (None, None),
            ANOMALY => (subject, None),
            ADMIN_CHANGE => (members.actor, members.target),
            "memory_access" => (subject, members.conversation),
            _ => (stored.subject.clone(), stored.tool.clone()),
        };
        // A call can have several execution records, so the column, whose values are unique for each event, does not contain
        // its id.
        let call_id = members.call_id.filter(|_| members.event != "execution");
        Some(Self {
            event: members.event.into_owned(),
            time,
            call_id,
            subject: cut(subject),
            tool: cut(tool),
            status: members.status,
        })
    }
}
