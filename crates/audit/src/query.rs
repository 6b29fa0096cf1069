//! Queries of the audit log, which are read page by page.

use std::future::ready;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::lazy;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use wardgate_rpc::client::{QueriedRecord, RecordDamage, RecordDetails, StoredRecord};

use crate::Error;
use crate::details::DetailsVault;
use crate::filter::RecordFilter;
use crate::record_content::DetailsReference;
use crate::store::{PageBounds, RecordHead, RecordPage, RecordPosition, StoreReader};
use crate::stored_row::StoredRow;

/// Number of records that are read at once.
const PAGE: u64 = 256;

/// Maximum number of records in one report of records that cannot be read. A longer range is split into several reports, so that
/// a reader sees them while the search for readable records continues.
const LONGEST_REPORT: u64 = 4_096;

/// Maximum number of sequence numbers in a page that is read without the index that a filter needs. Such a page reads every record
/// of its range, which must end within the time limit of a statement.
const WIDEST_WITHOUT_INDEX: u64 = 16_384;

/// The notice for an operator of a tenant, who may not know which records cannot be read.
const INCOMPLETE: &str =
    "records cannot be read, because the database is corrupt; some of them may be missing here";

/// The report if the store cannot find missing records.
const UNKNOWN_GAPS: &str =
    "it is unknown whether records are missing, because the database is corrupt";

/// The report if the index that a filter needs cannot be used.
const WITHOUT_INDEX: &str = "an index of the database is corrupt, or a record to which it leads; the records are read without the \
    index, which takes longer";

/// Whether an index that a query needs is known to be corrupt, or a record to which it leads. Queries that share this value report
/// it once; from then on, they read records without the index.
#[derive(Debug, Clone, Default)]
pub(crate) struct IndexCorruption(Arc<AtomicBool>);

impl IndexCorruption {
    fn is_known(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn set_known(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns the records that match `filter`, one page at a time, without those that are appended during the query. Changed
/// records are reported in their place. Missing records are reported in their place if the filter matches every record, and
/// otherwise before the other records. Records that are at a corrupt place of the store are reported whether or not they match,
/// because that is unknown.
///
/// If the filter has a tenant, the damaged records may belong to other tenants, and are not reported. Once a record could not be
/// read since the start of the process, by whatever query, each query ends with one notice instead: it does not depend on the
/// filter, which could otherwise find out what other tenants did, except in the first query that cannot read a record.
pub(crate) fn run(
    reader: StoreReader,
    vault: Option<Arc<DetailsVault>>,
    filter: RecordFilter,
    corruption: IndexCorruption,
) -> impl Stream<Item = Result<QueriedRecord, Error>> + Send + 'static {
    let gaps_of = reader.clone();
    let is_unconditional = filter.is_unconditional();
    let gaps = async move {
        let gaps = if is_unconditional {
            Some(Vec::new())
        } else {
            gaps_of.gaps().await?
        };
        let gaps: Vec<Result<_, Error>> = match gaps {
            Some(gaps) => gaps.into_iter().map(missing_records).map(Ok).collect(),
            None => vec![Ok(damaged_record(None, UNKNOWN_GAPS.to_owned()))],
        };
        Ok::<_, Error>(stream::iter(gaps))
    };
    let gaps = stream::once(gaps).try_flatten();
    let bytes = filter.bytes.clone();
    let gaps = gaps.try_filter(move |found| ready(bytes.includes(found)));
    let (is_of_tenant, corrupt) = (filter.bytes.tenant.is_some(), reader.clone());
    let notice = stream::once(lazy(move |_| {
        let is_incomplete = is_of_tenant && corrupt.has_read_corruption();
        is_incomplete.then(|| Ok::<_, Error>(damaged_record(None, INCOMPLETE.to_owned())))
    }));
    let notice = notice.filter_map(ready);
    gaps.chain(pages(reader, vault, filter, corruption))
        .chain(notice)
}

/// Returns the same records as [`run`], but does not search for missing records if the filter is conditional, and returns no
/// notice. Only the details of records whose bytes match the filter are opened.
pub(crate) fn pages(
    reader: StoreReader,
    vault: Option<Arc<DetailsVault>>,
    filter: RecordFilter,
    corruption: IndexCorruption,
) -> impl Stream<Item = Result<QueriedRecord, Error>> + Send + 'static {
    let pages = stream::try_unfold(None, move |rest: Option<RemainingQuery>| {
        let (reader, vault, filter) = (reader.clone(), vault.clone(), filter.clone());
        let corruption = corruption.clone();
        // The future of a page is large, and is moved with the stream.
        Box::pin(async move {
            let mut rest = match rest {
                Some(rest) => rest,
                None => RemainingQuery::whole(&filter, &reader.head().await?, corruption),
            };
            let mut findings = Vec::new();
            match rest.page(&filter) {
                Some(page) => {
                    let read = rest.read_page(&reader, &filter, &page, &mut findings).await;
                    read.inspect_err(|error| reader.note_corruption(error))?;
                }
                None if rest.unreadable.is_none() => return Ok::<_, Error>(None),
                None => rest.report_unreadable(&mut findings),
            }
            if findings.iter().any(QueryFinding::is_damage) {
                // Records that retention removed in the meantime are neither missing nor unreadable.
                let minimum = reader.head().await?.minimum_index;
                findings.retain_mut(|finding| finding.restrict_to_kept(minimum));
            }
            let found = findings.into_iter().map(QueryFinding::into_found);
            let found = found
                .filter(|(record, _)| filter.bytes.is_empty() || filter.bytes.includes(record));
            let mut found: Vec<_> = found.collect();
            rest.apply_limit(&mut found);
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
    let Some((reference, sealed)) = DetailsReference::parse(&stored.record).zip(sealed) else {
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
                sequence: Some(stored.sequence),
                problem: "its details were modified".to_owned(),
                is_warning: false,
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

fn missing_records(range: Range<u64>) -> QueriedRecord {
    let problem = match range.end - range.start {
        1 => "is missing".to_owned(),
        _ => format!("and all records up to {} are missing", range.end - 1),
    };
    damaged_record(Some(range.start), problem)
}

fn not_readable(range: Range<u64>) -> QueriedRecord {
    let problem = match range.end - range.start {
        1 => "cannot be read: the database is corrupt at its place".to_owned(),
        _ => format!(
            "and all records up to {} cannot be read: the database is corrupt at their place",
            range.end - 1
        ),
    };
    damaged_record(Some(range.start), problem)
}

fn damaged_record(sequence: Option<u64>, problem: String) -> QueriedRecord {
    QueriedRecord::Damaged(RecordDamage {
        sequence,
        problem,
        is_warning: false,
    })
}

/// Reads the record at `sequence` if it matches. Returns `None` if the record is at a corrupt place. Fails if it cannot be read with
/// the filter but without it, because the corrupt place is then in an index, or in the table of data subjects, that the filter
/// needs.
async fn read_record(
    reader: &StoreReader,
    filter: &RecordFilter,
    sequence: u64,
) -> Result<Option<RecordPage>, Error> {
    let error = match reader.single(filter, sequence).await {
        Err(error) if error.is_corruption() => error,
        read => return read.map(Some),
    };
    let any = RecordFilter {
        with_details: filter.with_details,
        ..RecordFilter::default()
    };
    match reader.single(&any, sequence).await {
        Ok(_) => Err(error),
        Err(confirmed) if confirmed.is_corruption() => {
            reader.note_corruption(&confirmed);
            Ok(None)
        }
        Err(other) => Err(other),
    }
}

/// What a query found at one position or in one range of positions.
enum QueryFinding {
    /// A record, and its sealed details.
    Intact(StoredRecord, Option<Vec<u8>>),
    Changed(RecordDamage),
    Missing(Range<u64>),
    /// Records at a corrupt place of the store.
    Unreadable(Range<u64>),
    /// From here on, records are read without the index that the filter needs.
    WithoutIndex,
}

impl From<Result<StoredRow, RecordDamage>> for QueryFinding {
    fn from(record: Result<StoredRow, RecordDamage>) -> Self {
        match record {
            Ok(mut stored) => {
                let details = stored.details.take();
                Self::Intact(stored.into(), details)
            }
            Err(damage) => Self::Changed(damage),
        }
    }
}

impl QueryFinding {
    fn is_damage(&self) -> bool {
        !matches!(self, Self::Intact(..))
    }

    /// Restricts damage to the records from `minimum` on. Returns whether there is something left.
    fn restrict_to_kept(&mut self, minimum: u64) -> bool {
        match self {
            Self::Intact(..) | Self::WithoutIndex => true,
            Self::Changed(damage) => damage.sequence.is_none_or(|sequence| sequence >= minimum),
            Self::Missing(range) | Self::Unreadable(range) => {
                range.start = range.start.max(minimum);
                !range.is_empty()
            }
        }
    }

    fn into_found(self) -> FoundRecord {
        match self {
            Self::Intact(stored, details) => (QueriedRecord::Intact(stored), details),
            Self::Changed(damage) => (QueriedRecord::Damaged(damage), None),
            Self::Missing(range) => (missing_records(range), None),
            Self::Unreadable(range) => (not_readable(range), None),
            Self::WithoutIndex => {
                let warning = RecordDamage {
                    sequence: None,
                    problem: WITHOUT_INDEX.to_owned(),
                    is_warning: true,
                };
                (QueriedRecord::Damaged(warning), None)
            }
        }
    }
}

/// The part of a query that remains to be read.
struct RemainingQuery {
    range: Range<u64>,
    after: Option<RecordPosition>,
    /// Maximum number of intact records that remain to be returned.
    limit: u64,
    /// Maximum number of sequence numbers of the next page. After a page that cannot be read, it is halved until the unreadable
    /// record is the only one of its page. It then doubles with each page that can be read.
    width: u64,
    /// The records that could not be read and that no report contains yet.
    unreadable: Option<Range<u64>>,
    /// Whether pages are read without the index that the filter needs, because the index or a record to which it leads is corrupt.
    corruption: IndexCorruption,
}

impl RemainingQuery {
    fn whole(filter: &RecordFilter, head: &RecordHead, corruption: IndexCorruption) -> Self {
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
            width: u64::MAX,
            unreadable: None,
            corruption,
        }
    }

    fn page(&self, filter: &RecordFilter) -> Option<PageBounds> {
        let Range { start, end } = self.range;
        // A page by time has no range of sequence numbers that could be narrowed.
        let width = if self.corruption.is_known() && !filter.is_by_time() {
            self.width.min(WIDEST_WITHOUT_INDEX)
        } else {
            self.width
        };
        let range = if filter.newest_first {
            start.max(end.saturating_sub(width))..end
        } else {
            start..end.min(start.saturating_add(width))
        };
        // Records that the store selects but whose bytes do not match do not count towards the limit.
        let limit = if filter.bytes.is_empty() {
            self.limit
        } else {
            PAGE
        };
        // A database that has read all rows of a page does not continue to the next row, which may be at a corrupt place.
        let length = range.end.saturating_sub(range.start);
        let page = PageBounds {
            range,
            after: self.after,
            limit: limit.min(PAGE).min(length),
            newest_first: filter.newest_first,
        };
        (!page.range.is_empty() && self.limit > 0).then_some(page)
    }

    /// Removes the records beyond the limit, with the damage after them, and counts the others.
    fn apply_limit(&mut self, found: &mut Vec<FoundRecord>) {
        found.retain(|(record, _)| {
            let is_within = self.limit > 0;
            if is_within && matches!(record, QueriedRecord::Intact(_)) {
                self.limit -= 1;
            }
            is_within
        });
        if self.limit == 0 {
            self.unreadable = None;
        }
    }

    /// Adds the report of the records that could not be read, if there is one, to `findings`.
    fn report_unreadable(&mut self, findings: &mut Vec<QueryFinding>) {
        findings.extend(self.unreadable.take().map(QueryFinding::Unreadable));
    }

    /// Reads the page, or a part of it if the store is corrupt within the page, and continues after what was read.
    async fn read_page(
        &mut self,
        reader: &StoreReader,
        filter: &RecordFilter,
        page: &PageBounds,
        findings: &mut Vec<QueryFinding>,
    ) -> Result<(), Error> {
        let read = if self.corruption.is_known() {
            reader.page_without_index(filter, page).await?
        } else {
            match reader.page(filter, page).await {
                Err(error) if error.is_corruption() => None,
                // Only a query by call can avoid a corrupt index of PostgreSQL.
                Err(error) if error.is_index_corruption() && filter.call_id.is_some() => None,
                read => Some(read?),
            }
        };
        match read {
            Some(read) => self.add_page(filter, page, read, findings),
            None if filter.is_by_time() => self.read_each(reader, filter, page, findings).await?,
            // PostgreSQL reads the records of a call before it compares their sequence numbers, which the index of calls does not
            // contain. A narrower range therefore does not avoid a corrupt record of the call.
            None if filter.call_id.is_some()
                && reader.is_postgres()
                && !self.corruption.is_known() =>
            {
                self.leave_index(findings);
            }
            None => match page.range.end - page.range.start {
                1 => self.read_single(reader, filter, page, findings).await?,
                width => self.width = width / 2,
            },
        }
        Ok(())
    }

    /// Reads the page without an index, and from now on every page. Returns `false` if this is already so, or if the table is
    /// corrupt within the page.
    async fn avoid_index(
        &mut self,
        reader: &StoreReader,
        filter: &RecordFilter,
        page: &PageBounds,
        findings: &mut Vec<QueryFinding>,
    ) -> Result<bool, Error> {
        if self.corruption.is_known() {
            return Ok(false);
        }
        let Some(read) = reader.page_without_index(filter, page).await? else {
            return Ok(false);
        };
        self.leave_index(findings);
        self.add_page(filter, page, read, findings);
        Ok(true)
    }

    /// Lets all further pages be read without an index.
    fn leave_index(&mut self, findings: &mut Vec<QueryFinding>) {
        tracing::error!(
            "an index of the audit store is corrupt, or a record to which it leads; a query continues without the index"
        );
        self.corruption.set_known();
        self.report_unreadable(findings);
        findings.push(QueryFinding::WithoutIndex);
    }

    /// Continues after the page that was `read`.
    fn add_page(
        &mut self,
        filter: &RecordFilter,
        page: &PageBounds,
        read: RecordPage,
        findings: &mut Vec<QueryFinding>,
    ) {
        self.report_unreadable(findings);
        self.advance(filter, page, read, findings);
        self.width = self.width.saturating_mul(2);
    }

    /// Reads the record of a page that consists of one sequence number.
    async fn read_single(
        &mut self,
        reader: &StoreReader,
        filter: &RecordFilter,
        page: &PageBounds,
        findings: &mut Vec<QueryFinding>,
    ) -> Result<(), Error> {
        let sequence = page.range.start;
        let Some(read) = read_record(reader, filter, sequence).await? else {
            self.pass(sequence, filter.newest_first);
            self.add_unreadable(sequence, findings);
            return Ok(());
        };
        // The corrupt place is not that of the record. It is in an index, or at the place of the next record.
        if !self.avoid_index(reader, filter, page, findings).await? {
            self.add_page(filter, page, read, findings);
        }
        Ok(())
    }

    /// Reads the records of a page by time one by one, at the positions that an index contains, or all from the table if that index
    /// is corrupt. Fails if the table is corrupt as well.
    async fn read_each(
        &mut self,
        reader: &StoreReader,
        filter: &RecordFilter,
        page: &PageBounds,
        findings: &mut Vec<QueryFinding>,
    ) -> Result<(), Error> {
        let positions = match reader.positions(filter, page).await {
            Err(error) if error.is_corruption() => {
                let is_read = self.avoid_index(reader, filter, page, findings).await?;
                return if is_read { Ok(()) } else { Err(error) };
            }
            positions => positions?,
        };
        let is_last = (positions.len() as u64) < page.limit;
        for position in positions {
            if let Some(read) = read_record(reader, filter, position.sequence).await? {
                for record in read.records {
                    self.report_unreadable(findings);
                    findings.push(record.into());
                }
            } else {
                self.add_unreadable(position.sequence, findings);
            }
            self.after = Some(position);
        }
        if is_last {
            self.range.end = self.range.start;
        }
        Ok(())
    }

    /// Adds a record to those that could not be read. Adjacent ones are reported together.
    fn add_unreadable(&mut self, sequence: u64, findings: &mut Vec<QueryFinding>) {
        let next = sequence + 1;
        let joined = self.unreadable.take().and_then(|range| {
            let is_long = range.end - range.start >= LONGEST_REPORT;
            if !is_long && range.end == sequence {
                Some(range.start..next)
            } else if !is_long && range.start == next {
                Some(sequence..range.end)
            } else {
                findings.push(QueryFinding::Unreadable(range));
                None
            }
        });
        self.unreadable = Some(joined.unwrap_or(sequence..next));
    }

    /// Continues after the page that was `read`, and appends its records to `findings`.
    fn advance(
        &mut self,
        filter: &RecordFilter,
        page: &PageBounds,
        read: RecordPage,
        findings: &mut Vec<QueryFinding>,
    ) {
        let count = read.records.len() as u64;
        let is_last = count < page.limit;
        for record in read.records {
            let sequence = match &record {
                Ok(stored) => Some(stored.sequence),
                Err(damage) => damage.sequence,
            };
            if let Some(sequence) = sequence.filter(|_| filter.is_unconditional()) {
                let skipped = self.pass(sequence, filter.newest_first);
                findings.extend(skipped.map(QueryFinding::Missing));
            }
            findings.push(record.into());
        }
        if is_last {
            let rest = if filter.newest_first {
                let rest = page.range.start..self.range.end;
                self.range.end = page.range.start;
                rest
            } else {
                let rest = self.range.start..page.range.end;
                self.range.start = page.range.end;
                rest
            };
            if filter.is_unconditional() && !rest.is_empty() {
                findings.push(QueryFinding::Missing(rest));
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_that_know_of_a_corrupt_index_read_bounded_ranges_in_both_orders() {
        let head = RecordHead {
            size: 1_000_000,
            closed_below: 0,
            minimum_index: 0,
            hold_generation: 0,
        };
        for (newest_first, expected) in [
            (false, 0..WIDEST_WITHOUT_INDEX),
            (true, 1_000_000 - WIDEST_WITHOUT_INDEX..1_000_000),
        ] {
            let filter = RecordFilter {
                call_id: Some("01a21d31-c794-7d35-94c7-e8dc9983a5d7".parse().unwrap()),
                newest_first,
                ..RecordFilter::default()
            };
            let corruption = IndexCorruption::default();
            let mut rest = RemainingQuery::whole(&filter, &head, corruption.clone());
            assert_eq!(rest.page(&filter).unwrap().range, 0..1_000_000);
            rest.leave_index(&mut Vec::new());
            let other = RemainingQuery::whole(&filter, &head, corruption);
            assert_eq!(other.page(&filter).unwrap().range, expected);
            assert_eq!(rest.page(&filter).unwrap().range, expected);
            // Pages that can be read do not widen the range again.
            let page = rest.page(&filter).unwrap();
            let read = RecordPage {
                records: Vec::new(),
                last: None,
            };
            rest.add_page(&filter, &page, read, &mut Vec::new());
            let next = rest.page(&filter).unwrap().range;
            assert_eq!(next.end - next.start, WIDEST_WITHOUT_INDEX);
            assert_ne!(next, expected);
        }
    }
}
