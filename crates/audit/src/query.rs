//! Reading the record: filters, and pages instead of everything at once.

use std::ops::Range;

use futures::{Stream, TryStreamExt, stream};
use wardgate_domain::{CallId, InvalidId, InvalidMessage, Status, Timestamp};
use wardgate_proto::audit::v1 as pb;
use wardgate_rpc::client::{AuditFilter, QueriedRecord, RecordDamage};

use crate::Error;
use crate::store::{Page, Reader, RecordPage, RecordPosition};

/// Records read at once.
const PAGE: u64 = 256;

/// Which records to read; every filter that is set must match.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filter {
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

impl Filter {
    /// Whether records come in the order of their time rather than of their sequence.
    pub(crate) fn is_by_time(&self) -> bool {
        self.since.is_some() || self.until.is_some()
    }

    /// Whether every record matches, so that one that does not come is missing.
    fn is_unconditional(&self) -> bool {
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

impl TryFrom<pb::QueryRequest> for Filter {
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

impl TryFrom<AuditFilter> for Filter {
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

/// The records that match `filter`, a page at a time; those appended while it reads are left out. What was changed or
/// removed is named: of a reading of all records where it stands, otherwise before the records.
pub(crate) fn run(
    reader: Reader,
    filter: Filter,
) -> impl Stream<Item = Result<QueriedRecord, Error>> + Send + 'static {
    let pages = stream::try_unfold(None, move |rest: Option<RemainingQuery>| {
        let (reader, filter) = (reader.clone(), filter.clone());
        async move {
            let mut found = Vec::new();
            let mut rest = if let Some(rest) = rest {
                rest
            } else {
                if !filter.is_unconditional() {
                    let gaps = reader.gaps().await?;
                    found.extend(gaps.into_iter().map(missing));
                }
                RemainingQuery::whole(&filter, reader.head().await?.size)
            };
            match rest.page(&filter) {
                Some(page) => {
                    let read = reader.page(&filter, &page).await?;
                    rest.advance(&filter, &page, read, &mut found);
                }
                None if found.is_empty() => return Ok::<_, Error>(None),
                None => {}
            }
            Ok(Some((found, Some(rest))))
        }
    });
    pages
        .map_ok(|found| stream::iter(found.into_iter().map(Ok)))
        .try_flatten()
}

fn missing(range: Range<u64>) -> QueriedRecord {
    let problem = match range.end - range.start {
        1 => "is missing".to_owned(),
        _ => format!("and all to {} are missing", range.end - 1),
    };
    QueriedRecord::Damaged(RecordDamage {
        sequence: range.start,
        problem,
    })
}

/// The part of a query that is still to be read.
struct RemainingQuery {
    range: Range<u64>,
    after: Option<RecordPosition>,
    limit: u64,
}

impl RemainingQuery {
    fn whole(filter: &Filter, size: u64) -> Self {
        let (end, after) = match (filter.before_time, filter.before_sequence) {
            (Some(time), before) => {
                let sequence = before.unwrap_or(0);
                (size, Some(RecordPosition { time, sequence }))
            }
            (None, before) => (before.map_or(size, |end| end.min(size)), None),
        };
        Self {
            range: filter.from_sequence..end,
            after,
            limit: filter.limit.unwrap_or(u64::MAX),
        }
    }

    fn page(&self, filter: &Filter) -> Option<Page> {
        let page = Page {
            range: self.range.clone(),
            after: self.after,
            limit: self.limit.min(PAGE),
            newest_first: filter.newest_first,
        };
        (!page.range.is_empty() && page.limit > 0).then_some(page)
    }

    /// Goes on behind what was `read`, and adds it to what was `found`.
    fn advance(
        &mut self,
        filter: &Filter,
        page: &Page,
        read: RecordPage,
        found: &mut Vec<QueriedRecord>,
    ) {
        let count = read.records.len() as u64;
        let is_last = count < page.limit;
        self.limit -= count;
        for record in read.records {
            let sequence = match &record {
                Ok(stored) => stored.sequence,
                Err(damage) => damage.sequence,
            };
            if filter.is_unconditional() {
                found.extend(self.pass(sequence, filter.newest_first).map(missing));
            }
            found.push(match record {
                Ok(stored) => QueriedRecord::Intact(stored.into()),
                Err(damage) => QueriedRecord::Damaged(damage),
            });
        }
        if is_last {
            if filter.is_unconditional() && !self.range.is_empty() {
                found.push(missing(self.range.clone()));
            }
            self.range.end = self.range.start;
        } else if filter.is_by_time() {
            self.after = read.last;
        } else if let Some(last) = read.last {
            self.pass(last.sequence, filter.newest_first);
        }
    }

    /// Goes on behind `sequence`; the range before it that was passed over, if there is one.
    fn pass(&mut self, sequence: u64, newest_first: bool) -> Option<Range<u64>> {
        let passed = if newest_first {
            let passed = sequence + 1..self.range.end;
            self.range.end = self.range.end.min(sequence);
            passed
        } else {
            let passed = self.range.start..sequence;
            self.range.start = self.range.start.max(sequence + 1);
            passed
        };
        (!passed.is_empty()).then_some(passed)
    }
}
