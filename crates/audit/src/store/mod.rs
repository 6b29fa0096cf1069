//! The store of the records: SQLite or PostgreSQL, with the same operations.
//!
//! Both have a table of records and one head row. A batch gets its sequence numbers in the statement that stores it, so a batch
//! that fails leaves no gap. Batches are stored one after the other: records are added in the order of their sequence numbers,
//! and a reader that sees one record sees all before it.

mod changes;
mod counts;
mod postgres;
mod retention;
mod select;
mod sqlite;
mod subjects;
mod tree;
mod upkeep;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use wardgate_domain::Timestamp;
use wardgate_rpc::client::RecordDamage;
use wardgate_store::postgres::PostgresPool;
use wardgate_store::{
    DatabaseSettings, Layout, MigrationError, Row, is_corrupt, is_corrupt_index, is_io_failure,
    prepare_when_free,
};

use crate::Error;
use crate::canonical::{RecordEntry, leaf_hash};
use crate::filter::RecordFilter;
use crate::record_content::IndexedColumns;
use crate::stored_row::StoredRow;

pub(crate) use changes::{
    LegalHold, MovedSubjectKey, NewSubjectKey, StoreUpkeep, TileRoot, TreeGrowth,
};
pub(crate) use counts::CountedRecords;
pub(crate) use select::{PageBounds, RecordPosition};
pub(crate) use subjects::MasterKeyState;
pub(crate) use wardgate_store::Address;

/// Maximum number of records in one append.
pub(crate) const MAX_BATCH: usize = 256;

/// Maximum time that one write may take, on a store of usual speed, before the store counts as failed.
pub(crate) const WRITE_LIMIT: Duration = Duration::from_millis(600);

/// Maximum time that one write may take on any store. After that, the write is abandoned and its connection closed.
pub(crate) const LONGEST_WRITE: Duration = Duration::from_secs(4);

/// Maximum time that a reader waits for a free connection.
const READ_WAIT: Duration = Duration::from_secs(2);

/// Maximum time for reading one page.
const READ_LIMIT: Duration = Duration::from_secs(30);

/// Maximum number of connections for reading.
const READERS: u32 = 4;

/// The schemas of the store.
pub const LAYOUT: Layout = Layout {
    schema: postgres::SCHEMA,
    sqlite: sqlite::MIGRATIONS,
    limit: LONGEST_WRITE,
};

/// Creates the error of a store that cannot be opened, with its address but without credentials.
pub(crate) fn open_error(address: &Address, source: sqlx::Error) -> Error {
    Error::Open {
        store: address.to_string(),
        source,
    }
}

/// Updates the store to the schema of this program, and creates it if it does not exist. If this program may not change the
/// schema, checks that it is the right one.
pub(crate) async fn prepare(address: &Address, settings: &DatabaseSettings) -> Result<(), Error> {
    let prepare = || async {
        match address {
            Address::Sqlite(path) => sqlite::prepare(path, settings).await,
            Address::Postgres(server) => postgres::prepare(server, settings).await,
        }
    };
    match prepare_when_free(address, prepare).await {
        Err(MigrationError::Database(source)) => Err(open_error(address, source)),
        prepared => Ok(prepared?),
    }
}

/// The reason why an append failed.
#[derive(Debug)]
pub(crate) enum AppendError {
    /// A call of the batch already has such an event. Nothing of the batch is stored.
    Duplicate,
    /// The store failed. It is unknown whether the batch is stored.
    Store(sqlx::Error),
}

impl From<sqlx::Error> for AppendError {
    fn from(error: sqlx::Error) -> Self {
        match &error {
            sqlx::Error::Database(cause) if cause.is_unique_violation() => Self::Duplicate,
            _ => Self::Store(error),
        }
    }
}

impl AppendError {
    /// Returns whether the store refused the transaction, so that nothing of it is stored and the connection can be used again.
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            Self::Duplicate => true,
            Self::Store(error) => {
                matches!(error, sqlx::Error::Database(_)) && !is_io_failure(error)
            }
        }
    }
}

/// The result of a transaction that appended records and let the tree grow.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AppendResult {
    /// The sequence number of the first record. It has no meaning if there are no records.
    pub(crate) first: u64,
    /// Whether there was a growth, and the stored tree was the one that it begins with.
    pub(crate) has_grown: bool,
}

/// A record that is already in the store, in the place of one to be appended.
#[derive(Debug, Clone)]
pub(crate) struct StoredEntry {
    event: String,
    call_id: Option<String>,
    sequence: i64,
    leaf_hash: Vec<u8>,
}

wardgate_store::from_row!(StoredEntry {
    event,
    call_id,
    sequence,
    leaf_hash
});

impl StoredEntry {
    /// Returns whether this is `entry`, or another record of the same call and event.
    pub(crate) fn takes_the_place_of(&self, entry: &RecordEntry) -> bool {
        match &entry.call_id {
            Some(_) => self.call_id == entry.call_id && self.event == entry.event,
            None => self.holds(entry),
        }
    }

    /// Returns whether the stored bytes are those of `entry`.
    pub(crate) fn holds(&self, entry: &RecordEntry) -> bool {
        self.leaf_hash == entry.leaf_hash.as_bytes()
    }

    pub(crate) fn sequence(&self) -> u64 {
        to_u64(self.sequence)
    }
}

/// The write access to a store: one connection, which one task uses.
pub(crate) enum StoreWriter {
    Sqlite(sqlite::SqliteWriter),
    Postgres(postgres::PostgresWriter),
}

impl StoreWriter {
    pub(crate) async fn connect(address: &Address) -> Result<Self, sqlx::Error> {
        Ok(match address {
            Address::Sqlite(path) => Self::Sqlite(sqlite::SqliteWriter::connect(path).await?),
            Address::Postgres(server) => {
                Self::Postgres(postgres::PostgresWriter::connect(server).await?)
            }
        })
    }

    /// Stores all of `entries` and the growth of the tree in one transaction, durably, or nothing. There may be no entries if there
    /// is a growth. The growth is left out if the stored tree is not the one that it begins with.
    pub(crate) async fn append(
        &mut self,
        entries: &[&RecordEntry],
        growth: Option<&TreeGrowth>,
    ) -> Result<AppendResult, AppendError> {
        match self {
            Self::Sqlite(writer) => writer.append(entries, growth).await,
            Self::Postgres(writer) => writer.append(entries, growth).await,
        }
    }

    /// Returns the stored records that equal one of `entries` or have the same call and event.
    pub(crate) async fn find(
        &mut self,
        entries: &[&RecordEntry],
    ) -> Result<Vec<StoredEntry>, sqlx::Error> {
        match self {
            Self::Sqlite(writer) => writer.find(entries).await,
            Self::Postgres(writer) => writer.find(entries).await,
        }
    }

    /// Writes and commits something, to check whether the store accepts writes.
    pub(crate) async fn probe(&mut self) -> Result<(), sqlx::Error> {
        match self {
            Self::Sqlite(writer) => writer.probe().await,
            Self::Postgres(writer) => writer.probe().await,
        }
    }

    /// Stores that every intent below `sequence` has an outcome.
    pub(crate) async fn closed_below(&mut self, sequence: u64) -> Result<(), sqlx::Error> {
        match self {
            Self::Sqlite(writer) => writer.closed_below(sequence).await,
            Self::Postgres(writer) => writer.closed_below(sequence).await,
        }
    }

    /// Stores the keys of data subjects that have no key yet, except those encrypted under a master key that is not in force.
    pub(crate) async fn add_subject_keys(
        &mut self,
        keys: &[NewSubjectKey],
    ) -> Result<(), sqlx::Error> {
        match self {
            Self::Sqlite(writer) => writer.add_subject_keys(keys).await,
            Self::Postgres(writer) => writer.add_subject_keys(keys).await,
        }
    }

    /// Stores a checkpoint of `size` records with the cosignatures of a quorum, unless a larger one is stored.
    pub(crate) async fn publish_cosigned(
        &mut self,
        size: u64,
        checkpoint: &str,
    ) -> Result<(), sqlx::Error> {
        match self {
            Self::Sqlite(writer) => writer.publish_cosigned(size, checkpoint).await,
            Self::Postgres(writer) => writer.publish_cosigned(size, checkpoint).await,
        }
    }

    /// Closes the connection.
    pub(crate) async fn close(self) -> Result<(), sqlx::Error> {
        match self {
            Self::Sqlite(writer) => writer.close().await,
            Self::Postgres(writer) => writer.close().await,
        }
    }
}

/// The state of all records.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecordHead {
    /// The number of records, which is the sequence number of the next one.
    pub(crate) size: u64,
    /// The sequence number below which every intent has an outcome.
    pub(crate) closed_below: u64,
    /// The sequence number below which retention removed the records.
    pub(crate) minimum_index: u64,
    /// The number of times that legal holds were set or lifted.
    pub(crate) hold_generation: u64,
}

impl From<(i64, i64, i64, i64)> for RecordHead {
    fn from(head: (i64, i64, i64, i64)) -> Self {
        let (size, closed_below, minimum_index, hold_generation) = head;
        Self {
            size: to_u64(size),
            closed_below: to_u64(closed_below),
            minimum_index: to_u64(minimum_index),
            hold_generation: to_u64(hold_generation),
        }
    }
}

/// The size of a store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoreSize {
    pub(crate) bytes: u64,
    /// Free bytes within the store that new records can use.
    pub(crate) reusable: u64,
    /// Number of stored records.
    pub(crate) records: u64,
    /// Number of records since the requested time.
    pub(crate) recent: u64,
    pub(crate) oldest: Option<Timestamp>,
}

/// The columns of a row that queries filter on, or `None` if one of them was changed to a value that cannot be read. Such a row
/// is damaged, and must not prevent the other rows of its page from being read.
struct ReadableColumns(Option<IndexedColumns>);

impl<'r, R: sqlx::Row> sqlx::FromRow<'r, R> for ReadableColumns
where
    IndexedColumns: sqlx::FromRow<'r, R>,
{
    fn from_row(row: &'r R) -> Result<Self, sqlx::Error> {
        Ok(Self(sqlx::FromRow::from_row(row).ok()))
    }
}

impl ReadableColumns {
    /// Returns whether the columns are those of the record `canonical`.
    fn are_of(&self, canonical: &[u8]) -> bool {
        let stored = self.0.as_ref();
        stored.is_some_and(|stored| {
            IndexedColumns::from_canonical(canonical, stored).as_ref() == Some(stored)
        })
    }
}

/// A row of the table of records, as both drivers return it.
struct RecordRow {
    sequence: i64,
    time: i64,
    leaf_hash: Vec<u8>,
    canonical: Vec<u8>,
    details: Option<Vec<u8>>,
    columns: ReadableColumns,
}

wardgate_store::from_row!(RecordRow {
    sequence,
    time,
    leaf_hash,
    canonical,
    details;
    columns
});

impl RecordRow {
    fn position(&self) -> RecordPosition {
        RecordPosition {
            time: Timestamp::from_micros(self.time),
            sequence: to_u64(self.sequence),
        }
    }

    /// Returns the record, or the damage if its bytes or columns were changed since it was written.
    fn verify(self) -> Result<StoredRow, RecordDamage> {
        let sequence = to_u64(self.sequence);
        let leaf_hash = leaf_hash(&self.canonical);
        let problem = if leaf_hash.as_bytes() != self.leaf_hash.as_slice() {
            "was changed: its bytes do not match its leaf hash"
        } else if !self.columns.are_of(&self.canonical) {
            "was changed: its columns do not match its bytes"
        } else {
            return Ok(StoredRow {
                sequence,
                leaf_hash,
                canonical: self.canonical,
                details: self.details,
            });
        };
        Err(RecordDamage {
            sequence: Some(sequence),
            problem: problem.to_owned(),
            is_warning: false,
        })
    }
}

/// A page of records.
pub(crate) struct RecordPage {
    /// The records, or the damage in their place.
    pub(crate) records: Vec<Result<StoredRow, RecordDamage>>,
    /// The position of the last record.
    pub(crate) last: Option<RecordPosition>,
}

impl From<Vec<RecordRow>> for RecordPage {
    fn from(rows: Vec<RecordRow>) -> Self {
        Self {
            last: rows.last().map(RecordRow::position),
            records: rows.into_iter().map(RecordRow::verify).collect(),
        }
    }
}

/// The read access to a store: a small pool of connections, which is cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct StoreReader {
    pool: ReadPool,
    /// The time at which the sequence was last found to have no gaps.
    dense_at: Arc<Mutex<Option<Instant>>>,
    /// Whether a record could not be read, or the search for missing ones failed, because the store is corrupt.
    has_read_corruption: Arc<AtomicBool>,
}

#[derive(Debug, Clone)]
enum ReadPool {
    Sqlite(sqlx::SqlitePool),
    Postgres(PostgresPool),
}

/// Time for which a sequence that was found to have no gaps is not checked again.
const DENSE_FOR: Duration = Duration::from_mins(1);

impl StoreReader {
    /// Creates a reader, which connects on first use.
    pub(crate) fn new(address: &Address, settings: &DatabaseSettings) -> Self {
        let pool = match address {
            Address::Sqlite(path) => ReadPool::Sqlite(sqlite::read_pool(path)),
            Address::Postgres(server) => ReadPool::Postgres(postgres::read_pool(server, settings)),
        };
        Self {
            pool,
            dense_at: Arc::default(),
            has_read_corruption: Arc::default(),
        }
    }

    /// Fails unless the store has the schema that this program reads.
    pub(crate) async fn check_schema(&self, address: &Address) -> Result<(), Error> {
        let found = match &self.pool {
            ReadPool::Sqlite(pool) => sqlite::version(pool).await,
            ReadPool::Postgres(pool) => postgres::version(pool).await,
        };
        let found = found.map_err(|source| open_error(address, source))?;
        Ok(LAYOUT.check(found)?)
    }

    pub(crate) async fn head(&self) -> Result<RecordHead, Error> {
        let head: (i64, i64, i64, i64) = match &self.pool {
            ReadPool::Sqlite(pool) => {
                let head = sqlite::read_any(pool, sqlite::HEAD).await?.pop();
                head.ok_or(sqlx::Error::RowNotFound)?
            }
            ReadPool::Postgres(pool) => {
                sqlx::query_as(postgres::HEAD)
                    .fetch_one(&mut *pool.acquire().await?)
                    .await?
            }
        };
        Ok(head.into())
    }

    /// Returns the size of the store, with the number of records since `since`.
    pub(crate) async fn size_since(&self, since: Timestamp) -> Result<StoreSize, Error> {
        let since = since.as_micros();
        let size: (i64, i64, i64, i64, Option<i64>) = match &self.pool {
            ReadPool::Sqlite(pool) => {
                let size = sqlx::query_as(sqlite::SIZE).bind(since);
                size.fetch_one(pool).await?
            }
            ReadPool::Postgres(pool) => {
                let size = sqlx::query_as(postgres::SIZE).bind(since);
                size.fetch_one(&mut *pool.acquire().await?).await?
            }
        };
        let (bytes, reusable, records, recent, oldest) = size;
        Ok(StoreSize {
            bytes: to_u64(bytes),
            reusable: to_u64(reusable),
            records: to_u64(records),
            recent: to_u64(recent),
            oldest: oldest.map(Timestamp::from_micros),
        })
    }

    /// Returns the sequence number of the first record below `end` whose time is within `times`.
    pub(crate) async fn first_within(
        &self,
        times: Range<Timestamp>,
        end: u64,
    ) -> Result<Option<u64>, Error> {
        let (since, until) = (times.start.as_micros(), times.end.as_micros());
        let first: Option<i64> = match &self.pool {
            ReadPool::Sqlite(pool) => {
                let first = sqlx::query_scalar(sqlite::FIRST_WITHIN);
                let first = first.bind(since).bind(until).bind(to_i64(end));
                first.fetch_one(pool).await?
            }
            ReadPool::Postgres(pool) => {
                let first = sqlx::query_scalar(postgres::FIRST_WITHIN);
                let first = first.bind(since).bind(until).bind(to_i64(end));
                first.fetch_one(&mut *pool.acquire().await?).await?
            }
        };
        Ok(first.map(to_u64))
    }

    /// Returns one page of the records that match, in order.
    pub(crate) async fn page(
        &self,
        filter: &RecordFilter,
        page: &PageBounds,
    ) -> Result<RecordPage, Error> {
        let rows = self.select(|table| select::matching_records(table, filter, page));
        let rows: Vec<RecordRow> = rows.await?;
        Ok(rows.into())
    }

    /// Returns whether the store is a PostgreSQL database rather than a SQLite file.
    pub(crate) fn is_postgres(&self) -> bool {
        matches!(self.pool, ReadPool::Postgres(_))
    }

    /// Returns one page of the records that match, in order, read without an index. Returns `None` if the table is corrupt at a
    /// place that must be read. On PostgreSQL, where a statement cannot exclude all indexes, only the index of calls is not used;
    /// the result is `None` if the filter has no call.
    pub(crate) async fn page_without_index(
        &self,
        filter: &RecordFilter,
        page: &PageBounds,
    ) -> Result<Option<RecordPage>, Error> {
        if self.is_postgres() && filter.call_id.is_none() {
            return Ok(None);
        }
        let hint = if self.is_postgres() {
            ""
        } else {
            " NOT INDEXED"
        };
        let rows = self.select(|table| select::without_index(table, hint, filter, page));
        let rows: Result<Vec<RecordRow>, Error> = rows.await;
        match rows {
            Err(error) if error.is_corruption() => Ok(None),
            rows => Ok(Some(rows?.into())),
        }
    }

    /// Returns the record at `sequence` if it matches.
    pub(crate) async fn single(
        &self,
        filter: &RecordFilter,
        sequence: u64,
    ) -> Result<RecordPage, Error> {
        let rows = self.select(|table| select::single(table, filter, sequence));
        let rows: Vec<RecordRow> = rows.await?;
        Ok(rows.into())
    }

    /// Returns the positions of a page by time, which contains every record that matches, and others. SQLite reads them from an
    /// index, so this succeeds where records cannot be read.
    pub(crate) async fn positions(
        &self,
        filter: &RecordFilter,
        page: &PageBounds,
    ) -> Result<Vec<RecordPosition>, Error> {
        let rows = self.select(|table| select::positions(table, filter, page));
        let rows: Vec<(i64, i64)> = rows.await?;
        let position = |(time, sequence)| RecordPosition {
            time: Timestamp::from_micros(time),
            sequence: to_u64(sequence),
        };
        Ok(rows.into_iter().map(position).collect())
    }

    /// Returns all records of `range`, in order. Fails if a record was changed or is missing.
    pub(crate) async fn records(&self, range: Range<u64>) -> Result<Vec<StoredRow>, Error> {
        let page = PageBounds {
            limit: range.end - range.start,
            range,
            after: None,
            newest_first: false,
        };
        let read = self.page(&RecordFilter::default(), &page).await;
        let read = read.inspect_err(|error| self.note_corruption(error))?;
        let records = read.records.into_iter();
        let records = records.collect::<Result<Vec<_>, _>>();
        let records = records.map_err(Error::Damaged)?;
        let missing = page.range.clone().zip(
            records
                .iter()
                .map(|record| Some(record.sequence))
                .chain(std::iter::repeat(None)),
        );
        for (sequence, found) in missing {
            if found != Some(sequence) {
                return Err(Error::Damaged(RecordDamage {
                    sequence: Some(sequence),
                    problem: "is missing".to_owned(),
                    is_warning: false,
                }));
            }
        }
        Ok(records)
    }

    /// Returns one page of the intents without an outcome, oldest first.
    pub(crate) async fn open_intents(&self, page: &PageBounds) -> Result<RecordPage, Error> {
        let rows = self.select(|table| select::open_intents(table, page));
        let rows: Vec<RecordRow> = rows.await?;
        Ok(rows.into())
    }

    async fn select<R: Row>(
        &self,
        selection: impl FnOnce(&'static str) -> select::Selection,
    ) -> Result<Vec<R>, Error> {
        let rows = match &self.pool {
            ReadPool::Sqlite(pool) => {
                let rows = selection(sqlite::RECORD).sqlite(pool);
                let late = |_| Err(sqlx::Error::PoolTimedOut);
                tokio::time::timeout(READ_LIMIT, rows)
                    .await
                    .unwrap_or_else(late)
            }
            // The server has the same time limit.
            ReadPool::Postgres(pool) => selection(postgres::RECORD).postgres(pool).await,
        };
        rows.map_err(Error::from)
    }

    /// Remembers that records could not be read, if `error` means that the store is corrupt. An error after which the same records
    /// are read in another way is not passed to this function.
    pub(crate) fn note_corruption(&self, error: &Error) {
        if error.is_corruption() {
            self.has_read_corruption.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether this process could not read a record, or search for missing ones, because the store is corrupt.
    pub(crate) fn has_read_corruption(&self) -> bool {
        self.has_read_corruption.load(Ordering::Relaxed)
    }

    /// Returns the sequence numbers that were assigned but have no record, as at most a hundred ranges, or `None` if the store is
    /// corrupt at a place that must be read to find them. A sequence that had no gaps within the last minute is not checked
    /// again.
    pub(crate) async fn gaps(&self) -> Result<Option<Vec<Range<u64>>>, Error> {
        match self.find_gaps().await {
            Err(error) if is_corrupt(&error) || is_corrupt_index(&error) => {
                self.has_read_corruption.store(true, Ordering::Relaxed);
                tracing::error!(%error, "missing records cannot be found, because the database of the audit store is corrupt");
                Ok(None)
            }
            gaps => Ok(Some(gaps?)),
        }
    }

    async fn find_gaps(&self) -> Result<Vec<Range<u64>>, sqlx::Error> {
        let dense_at = *self.dense_at.lock().unwrap_or_else(PoisonError::into_inner);
        if dense_at.is_some_and(|at| at.elapsed() < DENSE_FOR) {
            return Ok(Vec::new());
        }
        let (count, size): (i64, i64) = match &self.pool {
            ReadPool::Sqlite(pool) => {
                let count = sqlite::read_any(pool, sqlite::COUNT).await?.pop();
                count.ok_or(sqlx::Error::RowNotFound)?
            }
            ReadPool::Postgres(pool) => {
                sqlx::query_as(postgres::COUNT)
                    .fetch_one(&mut *pool.acquire().await?)
                    .await?
            }
        };
        if count == size {
            let mut dense_at = self.dense_at.lock().unwrap_or_else(PoisonError::into_inner);
            *dense_at = Some(Instant::now());
            return Ok(Vec::new());
        }
        let gaps: Vec<(i64, i64)> = match &self.pool {
            ReadPool::Sqlite(pool) => sqlite::read_any(pool, sqlite::GAPS).await?,
            ReadPool::Postgres(pool) => {
                sqlx::query_as(postgres::GAPS)
                    .fetch_all(&mut *pool.acquire().await?)
                    .await?
            }
        };
        let range = |(from, to)| to_u64(from)..to_u64(to);
        Ok(gaps.into_iter().map(range).collect())
    }
}

/// Converts a number for the drivers, which do not support unsigned integers.
fn to_i64(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn to_u64(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}
