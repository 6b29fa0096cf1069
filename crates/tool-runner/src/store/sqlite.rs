//! SQLite: one file beside its write-ahead log.

use std::path::Path;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{AssertSqlSafe, SqlitePool};

use super::{LIMIT, StoreError, to_migrate};

/// Version n of the schema is what the first n of these make; they never change once released.
const MIGRATIONS: &[&str] = &[include_str!("sqlite/0001_store.sql")];

/// Connects on first use. One connection: SQLite has one writer anyway, and waiting for it in line is
/// fairer than waiting for its lock.
pub(super) fn pool(path: &Path) -> SqlitePool {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        // FULL makes the write-ahead log durable at each commit: a key that is forgotten runs a tool twice.
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(LIMIT);
    SqlitePoolOptions::new()
        .max_connections(1)
        .acquire_timeout(LIMIT)
        .connect_lazy_with(options)
}

pub(super) async fn migrate(pool: &SqlitePool) -> Result<(), StoreError> {
    let mut transaction = pool.begin_with("BEGIN IMMEDIATE").await?;
    let found: i64 = sqlx::query_scalar("PRAGMA user_version")
        .fetch_one(&mut *transaction)
        .await?;
    for migration in to_migrate(MIGRATIONS, found)? {
        sqlx::raw_sql(*migration).execute(&mut *transaction).await?;
    }
    let version = format!("PRAGMA user_version = {}", MIGRATIONS.len());
    sqlx::raw_sql(AssertSqlSafe(version))
        .execute(&mut *transaction)
        .await?;
    Ok(transaction.commit().await?)
}
