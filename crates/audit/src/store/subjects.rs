//! The keys of data subjects in a store, and the master key that encrypts them.

use sqlx::types::Json;
use wardgate_domain::Digest;

use super::{ReadPool, StoreReader, postgres, sqlite, to_i64, to_u64};
use crate::Error;

/// The wrapped keys of data subjects, by their tags.
type SubjectKeys = Vec<(Digest, Vec<u8>)>;

/// The master key that encrypts the keys of data subjects.
#[derive(Debug, Clone)]
pub(crate) struct MasterKeyState {
    /// Identifies the master key in force, which encrypts new keys.
    pub(crate) known_by: Digest,
    /// Identifies the master key that keys are being moved from, or `None` if no rotation is in progress.
    pub(crate) former: Option<Digest>,
    /// The tag up to which keys were moved, or one zero byte, which is less than every tag.
    pub(crate) position: Vec<u8>,
    /// The key of the tags, encrypted under the master key in force.
    pub(crate) tag_key: Vec<u8>,
}

/// The columns of [`MasterKeyState`], in its order.
type MasterKeyRow = (Vec<u8>, Option<Vec<u8>>, Vec<u8>, Vec<u8>);

/// A tag and a wrapped key.
type SubjectKeyRow = (Vec<u8>, Vec<u8>);

fn subject_keys(rows: Vec<SubjectKeyRow>) -> SubjectKeys {
    let keys = rows.into_iter().filter_map(|(tag, wrapped)| {
        let tag = tag.try_into().ok()?;
        Some((Digest::from_bytes(tag), wrapped))
    });
    keys.collect()
}

fn identity(bytes: Vec<u8>) -> Result<Digest, sqlx::Error> {
    let malformed = |_| sqlx::Error::Decode("the identity of a master key is not a digest".into());
    bytes.try_into().map(Digest::from_bytes).map_err(malformed)
}

impl StoreReader {
    /// Returns the existing keys of `tags`.
    pub(crate) async fn subject_keys(&self, tags: &[Digest]) -> Result<SubjectKeys, Error> {
        let rows: Vec<SubjectKeyRow> = match &self.pool {
            ReadPool::Sqlite(pool) => {
                let tags: Vec<_> = tags.iter().map(Digest::to_string).collect();
                let query = sqlx::query_as(sqlite::SUBJECT_KEYS).bind(Json(tags));
                query.fetch_all(pool).await?
            }
            ReadPool::Postgres(pool) => {
                let tags: Vec<_> = tags.iter().map(|tag| tag.as_bytes().as_slice()).collect();
                let query = sqlx::query_as(postgres::SUBJECT_KEYS).bind(tags);
                query.fetch_all(&mut *pool.acquire().await?).await?
            }
        };
        Ok(subject_keys(rows))
    }

    /// Returns the first `limit` keys whose tags are greater than `position`, in the order of their tags.
    pub(crate) async fn subject_keys_after(
        &self,
        position: &[u8],
        limit: u64,
    ) -> Result<SubjectKeys, Error> {
        let (position, limit) = (position.to_vec(), to_i64(limit));
        let rows: Vec<SubjectKeyRow> = match &self.pool {
            ReadPool::Sqlite(pool) => {
                let query = sqlx::query_as(sqlite::SUBJECT_KEYS_AFTER);
                query.bind(position).bind(limit).fetch_all(pool).await?
            }
            ReadPool::Postgres(pool) => {
                let query = sqlx::query_as(postgres::SUBJECT_KEYS_AFTER);
                let query = query.bind(position).bind(limit);
                query.fetch_all(&mut *pool.acquire().await?).await?
            }
        };
        Ok(subject_keys(rows))
    }

    /// Returns the number of keys whose tags are greater than `position`.
    pub(crate) async fn count_subject_keys_after(&self, position: &[u8]) -> Result<u64, Error> {
        let position = position.to_vec();
        let count: i64 = match &self.pool {
            ReadPool::Sqlite(pool) => {
                let count = sqlx::query_scalar(sqlite::COUNT_SUBJECT_KEYS_AFTER).bind(position);
                count.fetch_one(pool).await?
            }
            ReadPool::Postgres(pool) => {
                let count = sqlx::query_scalar(postgres::COUNT_SUBJECT_KEYS_AFTER).bind(position);
                count.fetch_one(&mut *pool.acquire().await?).await?
            }
        };
        Ok(to_u64(count))
    }

    /// Returns the master key that encrypts the keys of data subjects, or `None` if it is not stored yet.
    pub(crate) async fn master_key(&self) -> Result<Option<MasterKeyState>, Error> {
        let row: Option<MasterKeyRow> = match &self.pool {
            ReadPool::Sqlite(pool) => {
                let row = sqlx::query_as(sqlite::MASTER_KEY);
                row.fetch_optional(pool).await?
            }
            ReadPool::Postgres(pool) => {
                let row = sqlx::query_as(postgres::MASTER_KEY);
                row.fetch_optional(&mut *pool.acquire().await?).await?
            }
        };
        let Some((known_by, former, position, tag_key)) = row else {
            return Ok(None);
        };
        Ok(Some(MasterKeyState {
            known_by: identity(known_by)?,
            former: former.map(identity).transpose()?,
            position,
            tag_key,
        }))
    }
}
