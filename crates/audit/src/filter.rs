//! Which records a query reads.

use wardgate_domain::{CallId, InvalidId, InvalidMessage, Status, Timestamp};
use wardgate_proto::audit::v1 as pb;
use wardgate_rpc::client::AuditFilter;

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
}

impl RecordFilter {
    /// Whether records come in the order of their time rather than of their sequence.
    pub(crate) fn is_by_time(&self) -> bool {
        self.since.is_some() || self.until.is_some()
    }

    /// Whether every record matches, so that one that does not come is missing.
    pub(crate) fn is_unconditional(&self) -> bool {
        let of_calls = self.subject.is_none() && self.tool.is_none() && self.call_id.is_none();
        of_calls && self.status.is_none() && !self.is_by_time()
    }

    fn validate(self) -> Result<Self, InvalidMessage> {
        if self.before_time.is_some() && !(self.is_by_time() && self.newest_first) {
            let problem = "goes with `since` or `until`, newest first";
            return Err(InvalidMessage::field("before_time", problem));
        }
        Ok(self)
    }
}

impl TryFrom<pb::QueryRequest> for RecordFilter {
    type Error = InvalidMessage;

    fn try_from(request: pb::QueryRequest) -> Result<Self, Self::Error> {
        let status = pb::Status::try_from(request.status)
            .map_err(|_| InvalidMessage::field("status", "is unknown"))?;
        let filter = Self {
            subject: some(request.subject),
            tool: some(request.tool),
            call_id: some(request.call_id).as_deref().map(call_id).transpose()?,
            status: match status {
                pb::Status::Unspecified => None,
                status => Some(status.try_into()?),
            },
            since: request.since.map(TryInto::try_into).transpose()?,
            until: request.until.map(TryInto::try_into).transpose()?,
            from_sequence: request.from_sequence,
            before_sequence: (request.before_sequence > 0).then_some(request.before_sequence),
            before_time: request.before_time.map(TryInto::try_into).transpose()?,
            limit: (request.limit > 0).then_some(request.limit),
            newest_first: request.newest_first,
        };
        filter.validate()
    }
}

impl TryFrom<AuditFilter> for RecordFilter {
    type Error = InvalidMessage;

    fn try_from(filter: AuditFilter) -> Result<Self, Self::Error> {
        let filter = Self {
            subject: filter.subject,
            tool: filter.tool,
            call_id: filter.call_id.as_deref().map(call_id).transpose()?,
            status: filter.status,
            since: filter.since,
            until: filter.until,
            from_sequence: filter.from_sequence,
            before_sequence: filter.before_sequence,
            before_time: filter.before_time,
            limit: filter.limit,
            newest_first: filter.newest_first,
        };
        filter.validate()
    }
}

fn some(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

fn call_id(text: &str) -> Result<CallId, InvalidMessage> {
    text.parse()
        .map_err(|error: InvalidId| InvalidMessage::field("call_id", error.to_string()))
}
