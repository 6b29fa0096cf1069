//! Reading the record: filters, and pages instead of everything at once.

use std::ops::Range;

use futures::{Stream, TryStreamExt, stream};
use wardgate_domain::{CallId, InvalidId, InvalidMessage, Status, Timestamp};
use wardgate_proto::audit::v1 as pb;
use wardgate_rpc::client::AuditFilter;

use crate::Error;
use crate::store::{Page, Reader, Stored};

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
    pub(crate) limit: Option<u64>,
    pub(crate) newest_first: bool,
}

impl TryFrom<pb::QueryRequest> for Filter {
    type Error = InvalidMessage;

    fn try_from(request: pb::QueryRequest) -> Result<Self, Self::Error> {
        let status = pb::Status::try_from(request.status)
            .map_err(|_| InvalidMessage::field("status", "is unknown"))?;
        Ok(Self {
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
            limit: (request.limit > 0).then_some(request.limit),
            newest_first: request.newest_first,
        })
    }
}

impl TryFrom<AuditFilter> for Filter {
    type Error = InvalidMessage;

    fn try_from(filter: AuditFilter) -> Result<Self, Self::Error> {
        Ok(Self {
            subject: filter.subject,
            tool: filter.tool,
            call_id: filter.call_id.as_deref().map(call_id).transpose()?,
            status: filter.status,
            since: filter.since,
            until: filter.until,
            from_sequence: filter.from_sequence,
            before_sequence: filter.before_sequence,
            limit: filter.limit,
            newest_first: filter.newest_first,
        })
    }
}

fn some(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

fn call_id(text: &str) -> Result<CallId, InvalidMessage> {
    text.parse()
        .map_err(|error: InvalidId| InvalidMessage::field("call_id", error.to_string()))
}

/// The records that match `filter`, a page at a time; those appended while it reads are left out.
pub(crate) fn run(
    reader: Reader,
    filter: Filter,
) -> impl Stream<Item = Result<Stored, Error>> + Send + 'static {
    let pages = stream::try_unfold(None, move |rest: Option<Rest>| {
        let (reader, filter) = (reader.clone(), filter.clone());
        async move {
            let mut rest = match rest {
                Some(rest) => rest,
                None => Rest::whole(&filter, reader.head().await?.size),
            };
            let Some(page) = rest.page(&filter) else {
                return Ok::<_, Error>(None);
            };
            let records = reader.page(&filter, &page).await?;
            rest.advance(&page, &records);
            Ok(Some((records, Some(rest))))
        }
    });
    pages
        .map_ok(|records| stream::iter(records.into_iter().map(Ok)))
        .try_flatten()
}

/// What a reading has still to look at.
struct Rest {
    range: Range<u64>,
    limit: u64,
}

impl Rest {
    fn whole(filter: &Filter, size: u64) -> Self {
        Self {
            range: filter.from_sequence..filter.before_sequence.map_or(size, |end| end.min(size)),
            limit: filter.limit.unwrap_or(u64::MAX),
        }
    }

    fn page(&self, filter: &Filter) -> Option<Page> {
        let page = Page {
            range: self.range.clone(),
            limit: self.limit.min(PAGE),
            newest_first: filter.newest_first,
        };
        (!page.range.is_empty() && page.limit > 0).then_some(page)
    }

    fn advance(&mut self, page: &Page, records: &[Stored]) {
        let count = records.len() as u64;
        self.limit -= count;
        match records.last() {
            Some(last) if count == page.limit && page.newest_first => {
                self.range.end = last.sequence;
            }
            Some(last) if count == page.limit => self.range.start = last.sequence + 1,
            _ => self.range.end = self.range.start,
        }
    }
}
