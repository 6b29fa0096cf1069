//! Changes of a store besides records and their tree: exports, legal holds, retention and keys.

use wardgate_domain::Digest;

use super::{ReadPool, StoreReader, StoreUpkeep, StoreWriter, postgres, sqlite, to_u64};
use crate::Error;

impl StoreWriter {
    /// Makes the change durably. Returns `false`, and changes nothing, if its precondition does not hold.
    pub(crate) async fn keep_up(&mut self, upkeep: &StoreUpkeep) -> Result<bool, sqlx::Error> {
        match self {
            Self::Sqlite(writer) => writer.keep_up(upkeep).await,
            Self::Postgres(writer) => writer.keep_up(upkeep).await,
        }
    }

    /// Removes replaced keys from the files of the store where the store does this. SQLite empties its write-ahead log, and
    /// waits only briefly for readers.
    pub(crate) async fn scrub(&mut self) -> Result<(), sqlx::Error> {
        match self {
            Self::Sqlite(writer) => writer.empty_log().await,
            Self::Postgres(_) => Ok(()),
        }
    }
}

impl StoreReader {
    /// Returns the position at which an export continues, or `None` if the export never started.
    pub(crate) async fn export_position(&self, export: &str) -> Result<Option<u64>, Error> {
        let position: Option<i64> = match &self.pool {
            ReadPool::Sqlite(pool) => {
                let position = sqlx::query_scalar(sqlite::EXPORT_POSITION).bind(export);
                position.fetch_optional(pool).await?
            }
            ReadPool::Postgres(pool) => {
                let position = sqlx::query_scalar(postgres::EXPORT_POSITION).bind(export);
                position.fetch_optional(&mut *pool.acquire().await?).await?
            }
        };
        Ok(position.map(to_u64))
    }

    /// Returns the check value of the key for the digests of arguments and results, or `None` if none is stored yet.
    pub(crate) async fn mac_check(&self) -> Result<Option<Digest>, Error> {
        let stored: Option<Vec<u8>> = match &self.pool {
            ReadPool::Sqlite(pool) => {
                sqlx::query_scalar(sqlite::MAC_CHECK)
                    .fetch_one(pool)
                    .await?
            }
            ReadPool::Postgres(pool) => {
                let stored = sqlx::query_scalar(postgres::MAC_CHECK);
                stored.fetch_one(&mut *pool.acquire().await?).await?
            }
        };
        let malformed =
            |_| sqlx::Error::Decode("the check value of the key is not a digest".into());
        let bytes = stored.map(|stored| stored.try_into().map_err(malformed));
        Ok(bytes.transpose()?.map(Digest::from_bytes))
    }
}
