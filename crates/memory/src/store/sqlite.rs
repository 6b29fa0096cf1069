//! The SQLite backend: one file with a write-ahead log. Readers never wait for the writer.

use std::path::Path;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqlitePoolOptions};
use sqlx::{AssertSqlSafe, SqlitePool};

use super::LIMIT;
use crate::Error;

/// The migrations. The first n of them create version n of the schema; a released migration never changes.
pub(super) const MIGRATIONS: &[&str] = &[
    include_str!("sqlite/0001_conversations.sql"),
    include_str!("sqlite/0002_changes.sql"),
    include_str!("sqlite/0003_rekeying.sql"),
];

const READERS: u32 = 4;

const CHECKPOINT_WAITS: Duration = Duration::from_millis(200);

fn options(path: &Path) -> SqliteConnectOptions {
    // Removed data is overwritten, not only marked as free.
    wardgate_store::sqlite::options(path, LIMIT).pragma("secure_delete", "ON")
}

/// Creates the pool of the writer. It connects on first use.
pub(super) fn writer(path: &Path) -> SqlitePool {
    wardgate_store::sqlite::writer(options(path), LIMIT)
}

/// Creates the pool of the readers. They connect on first use.
pub(super) fn readers(path: &Path) -> SqlitePool {
    SqlitePoolOptions::new()
        .max_connections(READERS)
        .acquire_timeout(LIMIT)
        .connect_lazy_with(options(path).read_only(true))
}

/// Writes the write-ahead log back into the file and truncates it. Returns `false` if active readers prevent this.
pub(super) async fn checkpoint(pool: &SqlitePool) -> Result<bool, Error> {
    let mut connection = pool.acquire().await?;
    // Waiting for readers blocks all writes, so the checkpoint waits only for a short time.
    set_patience(&mut connection, CHECKPOINT_WAITS).await?;
    let checkpoint = sqlx::query_as("PRAGMA wal_checkpoint(TRUNCATE)");
    let answer: Result<(i64, i64, i64), _> = checkpoint.fetch_one(&mut *connection).await;
    set_patience(&mut connection, LIMIT).await?;
    let (busy, _, _) = answer?;
    Ok(busy == 0)
}

async fn set_patience(connection: &mut SqliteConnection, time: Duration) -> Result<(), Error> {
    let pragma = format!("PRAGMA busy_timeout = {}", time.as_millis());
    let pragma = sqlx::raw_sql(AssertSqlSafe(pragma));
    pragma.execute(connection).await?;
    Ok(())
}
