//! The data of a store that retention needs: removed records, legal holds and clocks.

use std::ops::Range;

use wardgate_domain::{Digest, Timestamp};
use wardgate_transparency::TILE_WIDTH;

use super::{LegalHold, ReadPool, StoreReader, postgres, sqlite, to_i64, to_u64};
use crate::Error;

/// A row of a hold, as both drivers return it.
type HoldRow = (
    String,
    Option<String>,
    Option<Vec<u8>>,
    String,
    Option<String>,
    i64,
);

impl LegalHold {
    fn from_row((name, tenant, tag, set_by, set_in, set_at): HoldRow) -> Self {
        // A hold with an invalid tag covers its whole tenant, or everything, rather than nothing.
        let tag = tag.and_then(|tag| tag.try_into().ok());
        Self {
            name,
            tenant,
            tag: tag.map(Digest::from_bytes),
            set_by,
            set_in,
            set_at: Timestamp::from_micros(set_at),
        }
    }
}

/// The number of records in a bundle, and the time of the newest of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BundleTimes {
    pub(crate) records: u64,
    pub(crate) newest: Timestamp,
}

/// The times that a store knows, independently of the clock of this process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoreClocks {
    /// The time of the newest record that is not of an action of an operator, or `None` if there is no such record.
    pub(crate) newest: Option<Timestamp>,
    /// The time of the database server, or `None` for SQLite.
    pub(crate) server: Option<Timestamp>,
}

impl StoreReader {
    pub(crate) async fn legal_holds(&self) -> Result<Vec<LegalHold>, Error> {
        let rows: Vec<HoldRow> = match &self.pool {
            ReadPool::Sqlite(pool) => sqlx::query_as(sqlite::LEGAL_HOLDS).fetch_all(pool).await?,
            ReadPool::Postgres(pool) => {
                sqlx::query_as(postgres::LEGAL_HOLDS)
                    .fetch_all(&mut *pool.acquire().await?)
                    .await?
            }
        };
        Ok(rows.into_iter().map(LegalHold::from_row).collect())
    }

    /// Returns the name of the first hold that protects the key of a data subject of `tenant`.
    pub(crate) async fn keeping_hold(
        &self,
        tenant: &str,
        tag: Digest,
    ) -> Result<Option<String>, Error> {
        let tag = tag.as_bytes().to_vec();
        Ok(match &self.pool {
            ReadPool::Sqlite(pool) => {
                let hold = sqlx::query_scalar(sqlite::KEEPING_HOLD).bind(tag);
                hold.bind(tenant).fetch_optional(pool).await?
            }
            ReadPool::Postgres(pool) => {
                let hold = sqlx::query_scalar(postgres::KEEPING_HOLD).bind(tag);
                hold.bind(tenant)
                    .fetch_optional(&mut *pool.acquire().await?)
                    .await?
            }
        })
    }

    pub(crate) async fn clocks(&self) -> Result<StoreClocks, Error> {
        let (newest, server): (Option<i64>, Option<i64>) = match &self.pool {
            ReadPool::Sqlite(pool) => sqlx::query_as(sqlite::CLOCKS).fetch_one(pool).await?,
            ReadPool::Postgres(pool) => {
                sqlx::query_as(postgres::CLOCKS)
                    .fetch_one(&mut *pool.acquire().await?)
                    .await?
            }
        };
        Ok(StoreClocks {
            newest: newest.map(Timestamp::from_micros),
            server: server.map(Timestamp::from_micros),
        })
    }

    pub(crate) async fn bundle_times(&self, range: Range<u64>) -> Result<BundleTimes, Error> {
        let (from, to) = (to_i64(range.start), to_i64(range.end));
        let (records, newest): (i64, i64) = match &self.pool {
            ReadPool::Sqlite(pool) => {
                let times = sqlx::query_as(sqlite::BUNDLE_TIMES).bind(from).bind(to);
                times.fetch_one(pool).await?
            }
            ReadPool::Postgres(pool) => {
                let times = sqlx::query_as(postgres::BUNDLE_TIMES).bind(from).bind(to);
                times.fetch_one(&mut *pool.acquire().await?).await?
            }
        };
        Ok(BundleTimes {
            records: to_u64(records),
            newest: Timestamp::from_micros(newest),
        })
    }

    /// Returns the sequence number of the first kept record of the calls that concern a data subject.
    pub(crate) async fn first_of_subject(&self, tag: Digest) -> Result<Option<u64>, Error> {
        let tag = tag.as_bytes().to_vec();
        let first: Option<i64> = match &self.pool {
            ReadPool::Sqlite(pool) => {
                let first = sqlx::query_scalar(sqlite::FIRST_OF_SUBJECT).bind(tag);
                first.fetch_one(pool).await?
            }
            ReadPool::Postgres(pool) => {
                let first = sqlx::query_scalar(postgres::FIRST_OF_SUBJECT).bind(tag);
                first.fetch_one(&mut *pool.acquire().await?).await?
            }
        };
        Ok(first.map(to_u64))
    }

    /// Returns the concatenated leaf hashes of the removed records in `range`, as far as they exist.
    pub(super) async fn pruned_hashes(&self, range: &Range<u64>) -> Result<Vec<u8>, Error> {
        let first = range.start / TILE_WIDTH;
        let (from, to) = (to_i64(first), to_i64(range.end.div_ceil(TILE_WIDTH)));
        let tiles: Vec<Vec<u8>> = match &self.pool {
            ReadPool::Sqlite(pool) => {
                let tiles = sqlx::query_scalar(sqlite::PRUNED_HASHES)
                    .bind(from)
                    .bind(to);
                tiles.fetch_all(pool).await?
            }
            ReadPool::Postgres(pool) => {
                let tiles = sqlx::query_scalar(postgres::PRUNED_HASHES)
                    .bind(from)
                    .bind(to);
                tiles.fetch_all(&mut *pool.acquire().await?).await?
            }
        };
        let hashes = tiles.concat();
        let at = |sequence: u64| {
            usize::try_from((sequence - first * TILE_WIDTH) * 32).unwrap_or(usize::MAX)
        };
        let wanted = at(range.start)..at(range.end).min(hashes.len());
        Ok(hashes.get(wanted).unwrap_or_default().to_vec())
    }
}
