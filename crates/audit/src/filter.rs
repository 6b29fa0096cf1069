//! Which records a query reads.

use wardgate_domain::{CallId, Digest, InvalidId, InvalidMessage, Status, Timestamp};
use wardgate_rpc::client::{AuditFilter, DataSubjectFilter};

use crate::Error;
use crate::details_key::DetailsKey;

/// Which records to read; every filter that is set must match.
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
}

impl RecordFilter {
    /// Whether records come in the order of their time rather than of their sequence.
    pub(crate) fn is_by_time(&self) -> bool {
        self.since.is_some() || self.until.is_some()
    }

    /// Whether every record matches, so that one that does not come is missing.
    pub(crate) fn is_unconditional(&self) -> bool {
        let of_calls = self.subject.is_none() && self.tool.is_none() && self.call_id.is_none();
        of_calls && self.status.is_none() && self.data_subject.is_none() && !self.is_by_time()
    }

    /// Refuses filters that do not go together.
    pub(crate) fn validate(self) -> Result<Self, InvalidMessage> {
        if self.before_time.is_some() && !(self.is_by_time() && self.newest_first) {
            let problem = "goes with `since` or `until`, newest first";
            return Err(InvalidMessage::field("before_time", problem));
        }
        Ok(self)
    }
}

impl RecordFilter {
    /// The filter that a caller gives; `key` tells the tags of data subjects.
    pub(crate) fn of(filter: AuditFilter, key: Option<&DetailsKey>) -> Result<Self, Error> {
        if key.is_none() && (filter.data_subject.is_some() || filter.with_details) {
            return Err(Error::NoDetailsKey);
        }
        let subject = filter.data_subject.as_ref();
        let tag = |about: &DataSubjectFilter| Some(key?.tag(&about.tenant, &about.key));
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
        };
        Ok(filter.validate()?)
    }
}

pub(crate) fn parse_call_id(text: &str) -> Result<CallId, InvalidMessage> {
    text.parse()
        .map_err(|error: InvalidId| InvalidMessage::field("call_id", error.to_string()))
}
