//! The keys of data subjects in a store.

use sqlx::types::Json;
use wardgate_domain::Digest;

use super::{ReadPool, StoreReader, postgres, sqlite};
use crate::Error;

/// The wrapped keys of data subjects, by their tags.
pub(crate) type SubjectKeys = Vec<(Digest, Vec<u8>)>;

impl StoreReader {
    /// Returns the existing keys of `tags`.
    pub(crate) async fn subject_keys(&self, tags: &[Digest]) -> Result<SubjectKeys, Error> {
        let rows: Vec<(Vec<u8>, Vec<u8>)> = match &self.pool {
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
        let keys = rows.into_iter().filter_map(|(tag, wrapped)| {
            let tag = tag.try_into().ok()?;
            Some((Digest::from_bytes(tag), wrapped))
        });
        Ok(keys.collect())
    }
}
