//! Where records are kept: SQLite or PostgreSQL, behind the same few operations.
//!
//! Both hold one table of records and one head row. A batch takes its sequence numbers in the statement
//! that stores it, so a batch that fails leaves no gap, and one batch waits for the other: records enter
//! in the order of their sequence, and a reader that sees one sees all before it.

mod postgres;
mod select;
mod sqlite;

use std::time::Duration;

use wardgate_domain::Digest;
use wardgate_store::{DatabaseSettings, Layout, MigrationError};

use crate::canonical::Entry;
use crate::{Error, query::Filter};

pub(crate) use select::Page;
pub(crate) use wardgate_store::Address;

/// Entries of one append.
pub(crate) const MAX_BATCH: usize = 256;

/// How long one batch may take before the store counts as failed.
pub(crate) const WRITE_LIMIT: Duration = Duration::from_millis(600);

/// How long a reader waits for a free connection.
const READ_WAIT: Duration = Duration::from_secs(2);

/// How long one page may take to read.
const READ_LIMIT: Duration = Duration::from_secs(30);

/// Connections that read side by side.
const READERS: u32 = 4;

/// What the store consists of.
pub const LAYOUT: Layout = Layout {
    schema: postgres::SCHEMA,
    sqlite: sqlite::MIGRATIONS,
    limit: WRITE_LIMIT,
};

/// Where it is, in an error: without credentials.
pub(crate) fn open_error(address: &Address, source: sqlx::Error) -> Error {
    Error::Open {
        store: address.to_string(),
        source,
    }
}

/// Brings the store to the schema this program knows, creating it when absent; or where that is not for this program to
/// do, sees that somebody did.
pub(crate) async fn prepare(address: &Address, settings: &DatabaseSettings) -> Result<(), Error> {
    let prepared = match address {
        Address::Sqlite(path) => sqlite::prepare(path, settings).await,
        Address::Postgres(options) => postgres::prepare(options, settings).await,
    };
    prepared.map_err(|error| match error {
        MigrationError::Database(source) => open_error(address, source),
        schema => schema.into(),
    })
}

/// Why an append did not happen. Either way nothing of it is stored, or nobody knows.
#[derive(Debug)]
pub(crate) enum AppendError {
    /// A call of the batch already has such an event; nothing of the batch is stored.
    Duplicate,
    /// The store failed; what is stored is unknown.
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

/// An entry that is stored already.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    event: String,
    call_id: Option<String>,
    sequence: i64,
    leaf_hash: Vec<u8>,
}

wardgate_store::from_row!(Found {
    event,
    call_id,
    sequence,
    leaf_hash
});

impl Found {
    /// True when this is `entry`, or stands where it would have to stand.
    pub(crate) fn takes_the_place_of(&self, entry: &Entry) -> bool {
        match &entry.call_id {
            Some(_) => self.call_id == entry.call_id && self.event == entry.event,
            None => self.holds(entry),
        }
    }

    /// True when the stored bytes are those of `entry`.
    pub(crate) fn holds(&self, entry: &Entry) -> bool {
        self.leaf_hash == entry.leaf_hash.as_bytes()
    }

    pub(crate) fn sequence(&self) -> u64 {
        unsigned(self.sequence)
    }
}

/// The writing side: one connection, used by one task.
pub(crate) enum Writer {
    Sqlite(sqlite::Writer),
    Postgres(postgres::Writer),
}

impl Writer {
    pub(crate) async fn connect(address: &Address) -> Result<Self, sqlx::Error> {
        Ok(match address {
            Address::Sqlite(path) => Self::Sqlite(sqlite::Writer::connect(path).await?),
            Address::Postgres(options) => Self::Postgres(postgres::Writer::connect(options).await?),
        })
    }

    /// Stores all of `entries` or none, durably; returns the sequence of the first.
    pub(crate) async fn append(&mut self, entries: &[&Entry]) -> Result<u64, AppendError> {
        match self {
            Self::Sqlite(writer) => writer.append(entries).await,
            Self::Postgres(writer) => writer.append(entries).await,
        }
    }

    /// What is stored already of `entries`, or in the place of one.
    pub(crate) async fn find(&mut self, entries: &[&Entry]) -> Result<Vec<Found>, sqlx::Error> {
        match self {
            Self::Sqlite(writer) => writer.find(entries).await,
            Self::Postgres(writer) => writer.find(entries).await,
        }
    }

    /// Writes and commits something, to see whether the store takes it.
    pub(crate) async fn probe(&mut self) -> Result<(), sqlx::Error> {
        match self {
            Self::Sqlite(writer) => writer.probe().await,
            Self::Postgres(writer) => writer.probe().await,
        }
    }

    /// Remembers that every intent below `sequence` has its outcome.
    pub(crate) async fn closed_below(&mut self, sequence: u64) -> Result<(), sqlx::Error> {
        match self {
            Self::Sqlite(writer) => writer.closed_below(sequence).await,
            Self::Postgres(writer) => writer.closed_below(sequence).await,
        }
    }

    /// Leaves the store tidy.
    pub(crate) async fn close(self) -> Result<(), sqlx::Error> {
        match self {
            Self::Sqlite(writer) => writer.close().await,
            Self::Postgres(writer) => writer.close().await,
        }
    }
}

/// The state of the whole record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head {
    /// Number of records, and the sequence of the next.
    pub(crate) size: u64,
    /// Every intent below this sequence has its outcome.
    pub(crate) closed_below: u64,
}

impl From<(i64, i64)> for Head {
    fn from((size, closed_below): (i64, i64)) -> Self {
        Self {
            size: unsigned(size),
            closed_below: unsigned(closed_below),
        }
    }
}

/// One stored record.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) sequence: u64,
    pub(crate) leaf_hash: Digest,
    pub(crate) canonical: Vec<u8>,
}

/// A row of the record, as both drivers give it.
type Row = (i64, Vec<u8>, Vec<u8>);

impl TryFrom<Row> for Stored {
    type Error = Error;

    fn try_from((sequence, leaf_hash, canonical): Row) -> Result<Self, Error> {
        let sequence = unsigned(sequence);
        let leaf_hash =
            Digest::from_wire(&leaf_hash, "leaf_hash").map_err(|error| Error::Damaged {
                sequence,
                problem: error.to_string(),
            })?;
        Ok(Self {
            sequence,
            leaf_hash,
            canonical,
        })
    }
}

/// The reading side: a small pool; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) enum Reader {
    Sqlite(sqlx::SqlitePool),
    Postgres(sqlx::PgPool),
}

impl Reader {
    /// Connects on first use.
    pub(crate) fn new(address: &Address, settings: &DatabaseSettings) -> Self {
        match address {
            Address::Sqlite(path) => Self::Sqlite(sqlite::read_pool(path)),
            Address::Postgres(options) => Self::Postgres(postgres::read_pool(options, settings)),
        }
    }

    /// Fails unless the store has the schema this program reads.
    pub(crate) async fn check_schema(&self, address: &Address) -> Result<(), Error> {
        let found = match self {
            Self::Sqlite(pool) => sqlite::version(pool).await,
            Self::Postgres(pool) => postgres::version(pool).await,
        };
        let found = found.map_err(|source| open_error(address, source))?;
        Ok(LAYOUT.check(found)?)
    }

    pub(crate) async fn head(&self) -> Result<Head, Error> {
        let head = match self {
            Self::Sqlite(pool) => {
                sqlx::query_as::<_, (i64, i64)>(sqlite::HEAD)
                    .fetch_one(pool)
                    .await?
            }
            Self::Postgres(pool) => {
                sqlx::query_as::<_, (i64, i64)>(postgres::HEAD)
                    .fetch_one(pool)
                    .await?
            }
        };
        Ok(head.into())
    }

    /// One page of the records that match, in order.
    pub(crate) async fn page(&self, filter: &Filter, page: &Page) -> Result<Vec<Stored>, Error> {
        let rows = match self {
            Self::Sqlite(pool) => {
                select::matching(sqlite::RECORD, filter, page)
                    .sqlite(pool)
                    .await?
            }
            Self::Postgres(pool) => {
                select::matching(postgres::RECORD, filter, page)
                    .postgres(pool)
                    .await?
            }
        };
        rows.into_iter().map(Stored::try_from).collect()
    }

    /// One page of the intents without an outcome, oldest first.
    pub(crate) async fn open_intents(&self, page: &Page) -> Result<Vec<Stored>, Error> {
        let rows = match self {
            Self::Sqlite(pool) => {
                select::open_intents(sqlite::RECORD, page)
                    .sqlite(pool)
                    .await?
            }
            Self::Postgres(pool) => {
                select::open_intents(postgres::RECORD, page)
                    .postgres(pool)
                    .await?
            }
        };
        rows.into_iter().map(Stored::try_from).collect()
    }
}

/// For the drivers, which know no unsigned integers.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}
