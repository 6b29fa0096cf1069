//! SQLite: one file beside its write-ahead log, which itself holds its version.

use std::path::Path;
use std::time::Duration;

use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{AssertSqlSafe, Connection, SqlitePool};

use crate::migration::{MigrationError, missing};

/// A file in which what was acknowledged is there, waited for no longer than `limit`.
pub fn options(path: &Path, limit: Duration) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .journal_mode(SqliteJournalMode::Wal)
        // FULL makes the write-ahead log durable at each commit.
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(limit)
}

/// Connects on first use, and makes the file when it is absent. One connection: SQLite has one writer anyway, and
/// waiting for it in line is fairer than waiting for its lock.
pub fn writer(options: SqliteConnectOptions, limit: Duration) -> SqlitePool {
    SqlitePoolOptions::new()
        .max_connections(1)
        .acquire_timeout(limit)
        .connect_lazy_with(options.create_if_missing(true))
}

/// Brings a file to the schema that `migrations` make, all or nothing; of two programs one waits for the other.
pub async fn migrate(
    connection: &mut SqliteConnection,
    migrations: &[&'static str],
) -> Result<(), MigrationError> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let found: i64 = sqlx::query_scalar("PRAGMA user_version")
        .fetch_one(&mut *transaction)
        .await?;
    for migration in missing(migrations, found)? {
        sqlx::raw_sql(*migration).execute(&mut *transaction).await?;
    }
    let version = format!("PRAGMA user_version = {}", migrations.len());
    sqlx::raw_sql(AssertSqlSafe(version))
        .execute(&mut *transaction)
        .await?;
    Ok(transaction.commit().await?)
}
