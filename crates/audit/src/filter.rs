//! Filters of records.

use wardgate_audit_export::RecordKind;
use wardgate_domain::{CallId, Digest, InvalidId, InvalidMessage, Status, Timestamp};
use wardgate_rpc::client::{AuditFilter, ContentFilter, DataSubjectFilter, QueriedRecord};

use crate::Error;
use crate::details_key::TagKey;
use crate::record_content::RecordContent;

/// A filter of records. A record matches if it satisfies every filter that is set.
#[derive(Debug, Clone, Default)]
pub(crate) struct RecordFilter {
    pub(crate) subject: Option<String>,
    pub(crate) tool: Option<String>,
    pub(crate) call_id: Option<CallId>,
    pub(crate) status: Option<Status>,
    pub(crate) since: Option<Timestamp>,
    pub(crate) until: Option<Timestamp>,
    pub(crate) from_sequence: u64,
    pub(crate) before_sequence: Option<u64>,
    pub(crate) before_time: Option<Timestamp>,
    pub(crate) limit: Option<u64>,
    pub(crate) newest_first: bool,
    /// The tag of a data subject whose rows were released.
    pub(crate) data_subject: Option<Digest>,
    pub(crate) with_details: bool,
    pub(crate) bytes: BytesFilter,
}

/// Conditions on values that are only in the canonical bytes of a record, not in a column of the store. Each record must be
/// read to evaluate them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct BytesFilter {
    /// The tenant of the callers whose records match.
    pub(crate) tenant: Option<String>,
    pub(crate) content: ContentFilter,
}

impl BytesFilter {
    /// Returns whether the filter matches every record.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns whether the record matches. A damaged record matches only if the filter has no tenant, because the tenant of the
    /// record is no longer known.
    pub(crate) fn includes(&self, found: &QueriedRecord) -> bool {
        match found {
            QueriedRecord::Intact(stored) => RecordContent::parse(&stored.record)
                .is_some_and(|content| self.includes_content(&content)),
            QueriedRecord::Damaged(_) => self.tenant.is_none(),
        }
    }

    fn includes_content(&self, content: &RecordContent<'_>) -> bool {
        let is =
            |wanted: &Option<String>, has: &dyn Fn(&str) -> bool| wanted.as_deref().is_none_or(has);
        let wanted = &self.content;
        is(&self.tenant, &|tenant| content.is_of_tenant(tenant))
            && is(&wanted.reason, &|reason| content.has_reason(reason))
            && is(&wanted.event, &|event| content.event == event)
            && is(&wanted.decision, &|id| content.is_decided_by(id))
            && (!wanted.phi || content.phi)
            && (!wanted.withheld || content.rows_withheld > 0 || content.withheld > 0)
    }
}

impl RecordFilter {
    /// Returns whether records are ordered by time rather than by sequence number, as in the indexes. A query that starts at a
    /// sequence number, such as one for new records, reads the records from there on in order. A call has few records, which are
    /// found by its id.
    pub(crate) fn is_by_time(&self) -> bool {
        let of_calls = self.subject.is_some() || self.tool.is_some() || self.status.is_some();
        self.call_id.is_none() && (self.is_within_time() || (of_calls && self.from_sequence == 0))
    }

    fn is_within_time(&self) -> bool {
        self.since.is_some() || self.until.is_some()
    }

    /// Returns whether every record matches, so that a gap in the result means that records are missing.
    pub(crate) fn is_unconditional(&self) -> bool {
        let of_calls = self.subject.is_none() && self.tool.is_none() && self.call_id.is_none();
        of_calls && self.status.is_none() && self.data_subject.is_none() && !self.is_within_time()
    }

    /// Returns an error if filters contradict each other.
    pub(crate) fn validate(self) -> Result<Self, InvalidMessage> {
        if self.before_time.is_some() && !self.newest_first {
            let problem = "requires the order newest first";
            return Err(InvalidMessage::field("before_time", problem));
        }
        Ok(self)
    }
}

impl RecordFilter {
    /// Creates the filter of a request. `tags` is needed to compute the tag of a data subject.
    pub(crate) fn new(filter: AuditFilter, tags: Option<&TagKey>) -> Result<Self, Error> {
        if tags.is_none() && (filter.data_subject.is_some() || filter.with_details) {
            return Err(Error::NoDetailsKey);
        }
        let subject = filter.data_subject.as_ref();
        let tag = |about: &DataSubjectFilter| Some(tags?.tag(&about.tenant, &about.key));
        let filter = Self {
            data_subject: subject.and_then(tag),
            with_details: filter.with_details,
            subject: filter.subject,
            tool: filter.tool,
            call_id: filter.call_id.as_deref().map(parse_call_id).transpose()?,
            status: filter.status,
            since: filter.since,
            until: filter.until,
            from_sequence: filter.from_sequence,
            before_sequence: filter.before_sequence,
            before_time: filter.before_time,
            limit: filter.limit,
            newest_first: filter.newest_first,
            bytes: BytesFilter {
                tenant: None,
                content: ContentFilter {
                    event: filter.content.event.map(parse_event).transpose()?,
                    ..filter.content
                },
            },
        };
        Ok(filter.validate()?)
    }
}

pub(crate) fn parse_call_id(text: &str) -> Result<CallId, InvalidMessage> {
    text.parse()
        .map_err(|error: InvalidId| InvalidMessage::field("call_id", error.to_string()))
}

fn parse_event(text: String) -> Result<String, InvalidMessage> {
    let events = RecordKind::ALL.map(RecordKind::as_str);
    if events.contains(&&*text) {
        return Ok(text);
    }
    Err(InvalidMessage::field(
        "event",
        format!("is not one of {}", events.join(", ")),
    ))
}

#[cfg(test)]
mod tests {
    use wardgate_rpc::client::{RecordDamage, StoredRecord};

    use super::*;

    fn includes(filter: &BytesFilter, record: &str) -> bool {
        filter.includes(&QueriedRecord::Intact(StoredRecord {
            sequence: 0,
            leaf_hash: Digest::compute(b""),
            record: record.to_owned().into(),
            details: None,
        }))
    }

    #[test]
    fn a_record_has_what_its_bytes_say() {
        const DENIED: &str = r#"{"caller":{"subject":"a","tenant":"north"},"decision":{"id":"d-1","policies":["no-interns"]},"event":"outcome","phi":false,"reason":"not_permitted","rows_withheld":0}"#;
        const RELEASED: &str =
            r#"{"caller":{"subject":"a"},"event":"outcome","phi":true,"rows_withheld":3}"#;
        const REFUSALS: &str =
            r#"{"counts":[{"count":1,"reason":"token_expired"}],"event":"refusals"}"#;
        const MEMORY: &str = r#"{"caller":{"subject":"a"},"event":"memory_access","withheld":1}"#;
        let records = [DENIED, RELEASED, REFUSALS, MEMORY];
        let some = |text: &str| Some(text.to_owned());
        let of = |content| BytesFilter {
            tenant: None,
            content,
        };
        let reason = |reason| {
            of(ContentFilter {
                reason: some(reason),
                ..ContentFilter::default()
            })
        };
        let tenant = BytesFilter {
            tenant: some("north"),
            ..BytesFilter::default()
        };
        let event = of(ContentFilter {
            event: some("outcome"),
            ..ContentFilter::default()
        });
        let phi = of(ContentFilter {
            phi: true,
            ..ContentFilter::default()
        });
        let withheld = of(ContentFilter {
            withheld: true,
            ..ContentFilter::default()
        });
        let decision = |id| {
            of(ContentFilter {
                decision: some(id),
                ..ContentFilter::default()
            })
        };
        for (filter, expected) in [
            (BytesFilter::default(), [true; 4]),
            (decision("d-1"), [true, false, false, false]),
            (decision("no-interns"), [true, false, false, false]),
            (decision("d-2"), [false; 4]),
            (tenant, [true, false, false, false]),
            (reason("not_permitted"), [true, false, false, false]),
            (reason("token_expired"), [false, false, true, false]),
            (event, [true, true, false, false]),
            (phi, [false, true, false, false]),
            (withheld, [false, true, false, true]),
        ] {
            assert_eq!(
                records.map(|record| includes(&filter, record)),
                expected,
                "{filter:?}"
            );
        }
    }

    #[test]
    fn damage_is_told_to_those_who_may_read_all() {
        let damaged = QueriedRecord::Damaged(RecordDamage {
            sequence: Some(7),
            problem: "is missing".to_owned(),
            is_warning: false,
        });
        let of_all = BytesFilter::default();
        let of_tenant = BytesFilter {
            tenant: Some("north".to_owned()),
            ..BytesFilter::default()
        };
        assert!(of_all.includes(&damaged));
        assert!(!of_tenant.includes(&damaged));
    }

    #[test]
    fn there_are_no_other_events() {
        assert_eq!(parse_event("outcome".to_owned()).unwrap(), "outcome");
        let refused = parse_event("outcomes".to_owned()).unwrap_err().to_string();
        assert!(refused.contains("intent, outcome"), "{refused}");
    }
}
