//! Queries of the audit log, which are read page by page.

use std::future::ready;
use std::ops::Range;
use std::sync::Arc;

use futures::future::Either;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use wardgate_rpc::client::{QueriedRecord, RecordDamage, RecordDetails};

use crate::Error;
use crate::details::DetailsVault;
use crate::filter::RecordFilter;
use crate::record_content::DetailsReference;
use crate::store::{PageBounds, RecordHead, RecordPage, RecordPosition, StoreReader};

/// Number of records that are read at once.
const PAGE: u64 = 256;

/// Returns the records that match `filter`, one page at a time, without those that are appended during the query. Changed
/// records are reported in their place. Missing records are reported in their place if the filter matches every record, and
/// otherwise before the other records.
pub(crate) fn run(
    reader: StoreReader,
    vault: Option<Arc<DetailsVault>>,
    filter: RecordFilter,
) -> impl Stream<Item = Result<QueriedRecord, Error>> + Send + 'static {
    let gaps_of = reader.clone();
    let is_unconditional = filter.is_unconditional();
    let gaps = async move {
        let gaps = if is_unconditional {
            Vec::new()
        } else {
            gaps_of.gaps().await?
        };
        let gaps = gaps.into_iter().map(|range| Ok(missing(range).0));
        Ok::<_, Error>(stream::iter(gaps))
    };
    let gaps = stream::once(gaps).try_flatten();
    let bytes = filter.bytes.clone();
    let gaps = gaps.try_filter(move |found| ready(bytes.includes(found)));
    gaps.chain(pages(reader, vault, filter))
}

/// Returns the same records as [`run`], but does not search for missing records if the filter is conditional.
pub(crate) fn pages(
    reader: StoreReader,
    vault: Option<Arc<DetailsVault>>,
    mut filter: RecordFilter,
) -> impl Stream<Item = Result<QueriedRecord, Error>> + Send + 'static {
    if filter.bytes.is_empty() {
        return Either::Left(selected(reader, vault, filter));
    }
    // Records that the store selects but whose bytes do not match do not count towards the limit.
    let limit = filter.limit.take().unwrap_or(u64::MAX);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    Either::Right(selected(reader, vault, filter).take(limit))
}

/// Returns the records that the store selects and whose bytes match the filter. Only the details of these records are opened.
fn selected(
    reader: StoreReader,
    vault: Option<Arc<DetailsVault>>,
    filter: RecordFilter,
) -> impl Stream<Item = Result<QueriedRecord, Error>> + Send + 'static {
    let pages = stream::try_unfold(None, move |rest: Option<RemainingQuery>| {
        let (reader, vault, filter) = (reader.clone(), vault.clone(), filter.clone());
        // The future of a page is large, and is moved with the stream.
        Box::pin(async move {
            let mut rest = match rest {
                Some(rest) => rest,
                None => RemainingQuery::whole(&filter, &reader.head().await?),
            };
            let Some(page) = rest.page(&filter) else {
                return Ok::<_, Error>(None);
            };
            let read = reader.page(&filter, &page).await?;
            let mut found = Vec::new();
            rest.advance(&filter, &page, read, &mut found);
            if found.iter().any(|(record, _)| is_damaged(record)) {
                // Records that retention removed in the meantime are not missing.
                let minimum = reader.head().await?.minimum_index;
                found.retain(|(record, _)| match record {
                    QueriedRecord::Intact(_) => true,
                    QueriedRecord::Damaged(damage) => damage.sequence >= minimum,
                });
            }
            if !filter.bytes.is_empty() {
                found.retain(|(record, _)| filter.bytes.includes(record));
            }
            if let Some(vault) = vault.filter(|_| filter.with_details) {
                for (record, sealed) in &mut found {
                    open_details(&vault, record, sealed.take()).await?;
                }
            }
            Ok(Some((found, Some(rest))))
        })
    });
    pages
        .map_ok(|found| stream::iter(found.into_iter().map(|(record, _)| Ok(record))))
        .try_flatten()
}

fn is_damaged(record: &QueriedRecord) -> bool {
    matches!(record, QueriedRecord::Damaged(_))
}

/// A record or damage at one position, and the sealed details of the record.
type FoundRecord = (QueriedRecord, Option<Vec<u8>>);

async fn open_details(
    vault: &DetailsVault,
    record: &mut QueriedRecord,
    sealed: Option<Vec<u8>>,
) -> Result<(), Error> {
    let QueriedRecord::Intact(stored) = record else {
        return Ok(());
    };
    let Some((reference, sealed)) = DetailsReference::of(&stored.record).zip(sealed) else {
        return Ok(());
    };
    let details = vault.open_details(
        &reference.call_id,
        reference.tags(),
        &reference.details_hmac,
        sealed,
    );
    match details.await {
        Ok(Some(details)) => stored.details = Some(details),
        Ok(None) => {
            *record = QueriedRecord::Damaged(RecordDamage {
                sequence: stored.sequence,
                problem: "its details were modified".to_owned(),
            });
        }
        Err(Error::OtherDetailsKey) => {
            let sequence = stored.sequence;
            tracing::warn!(
                sequence,
                "the details of a record cannot be decrypted with the configured keys"
            );
            stored.details = Some(RecordDetails::Undecryptable);
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

fn missing(range: Range<u64>) -> FoundRecord {
    let problem = match range.end - range.start {
        1 => "is missing".to_owned(),
        _ => format!("and all records up to {} are missing", range.end - 1),
    };
    let sequence = range.start;
    let damage = RecordDamage { sequence, problem };
    (QueriedRecord::Damaged(damage), None)
}

/// The part of a query that remains to be read.
struct RemainingQuery {
    range: Range<u64>,
    after: Option<RecordPosition>,
    limit: u64,
}

impl RemainingQuery {
    fn whole(filter: &RecordFilter, head: &RecordHead) -> Self {
        let size = head.size;
        let before_time = filter.before_time.filter(|_| filter.is_by_time());
        let (end, after) = match (before_time, filter.before_sequence) {
            (Some(time), before) => {
                let sequence = before.unwrap_or(0);
                (size, Some(RecordPosition { time, sequence }))
            }
            (None, before) => (before.map_or(size, |end| end.min(size)), None),
        };
        Self {
            range: filter.from_sequence.max(head.minimum_index)..end,
            after,
            limit: filter.limit.unwrap_or(u64::MAX),
        }
    }

    fn page(&self, filter: &RecordFilter) -> Option<PageBounds> {
        let page = PageBounds {
            range: self.range.clone(),
            after: self.after,
            limit: self.limit.min(PAGE),
            newest_first: filter.newest_first,
        };
        (!page.range.is_empty() && page.limit > 0).then_some(page)
    }

    /// Continues after the page that was `read`, and appends its records to `found`.
    fn advance(
        &mut self,
        filter: &RecordFilter,
        page: &PageBounds,
        read: RecordPage,
        found: &mut Vec<FoundRecord>,
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
                Ok(mut stored) => {
                    let details = stored.details.take();
                    (QueriedRecord::Intact(stored.into()), details)
                }
                Err(damage) => (QueriedRecord::Damaged(damage), None),
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

    /// Continues after `sequence`. Returns the range of sequence numbers that was skipped, if there is one.
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
