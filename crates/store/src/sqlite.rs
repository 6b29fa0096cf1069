//! SQLite: one file beside its write-ahead log, which itself holds its version.

use std::path::Path;
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{AssertSqlSafe, Connection, Sqlite, SqlitePool};
use tokio::time::sleep;

use crate::DatabaseSettings;
use crate::migration::{Migrated, MigrationError, check, missing, version};

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

/// What SQLite says when another connection is in the way (`SQLITE_BUSY`).
const BUSY: &str = "5";

/// How long to wait until it is out of it, and how often.
const PAUSE: Duration = Duration::from_millis(20);
const PATIENCE: usize = 50;

/// A connection to a file that another program may be opening for the first time as well: turning it to its write-ahead log
/// waits for nobody, whatever the busy time-out.
pub async fn first(pool: &SqlitePool) -> Result<PoolConnection<Sqlite>, sqlx::Error> {
    for _ in 0..PATIENCE {
        match pool.acquire().await {
            Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some(BUSY) => {
                sleep(PAUSE).await;
            }
            opened => return opened,
        }
    }
    pool.acquire().await
}

/// Brings a file to its newest version, or where that is not this program's to do, sees that somebody did.
pub async fn prepare(
    connection: &mut SqliteConnection,
    migrations: &[&'static str],
    settings: &DatabaseSettings,
) -> Result<(), MigrationError> {
    if settings.migrate {
        migrate(connection, migrations).await.map(drop)
    } else {
        check(migrations, found(connection).await?)
    }
}

/// Brings a file to the schema that `migrations` make, all or nothing; of two programs one waits for the other.
pub async fn migrate(
    connection: &mut SqliteConnection,
    migrations: &[&'static str],
) -> Result<Migrated, MigrationError> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let from = found(&mut transaction).await?;
    let to = version(migrations, from);
    for migration in missing(migrations, from)? {
        sqlx::raw_sql(*migration).execute(&mut *transaction).await?;
    }
    sqlx::raw_sql(AssertSqlSafe(format!("PRAGMA user_version = {to}")))
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await?;
    Ok(Migrated { from, to })
}

async fn found(connection: &mut SqliteConnection) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar("PRAGMA user_version")
        .fetch_one(connection)
        .await
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn programs_that_open_a_new_file_at_once_all_get_it() {
        let dir = tempfile::tempdir().unwrap();
        for round in 0..20 {
            let path = dir.path().join(format!("{round}.sqlite"));
            let all = (0..8).map(|_| {
                let path = path.clone();
                tokio::spawn(async move {
                    let pool = writer(options(&path, LIMIT), LIMIT);
                    let mut connection = first(&pool).await?;
                    migrate(&mut connection, &["CREATE TABLE once (id INTEGER)"]).await
                })
            });
            for one in all.collect::<Vec<_>>() {
                one.await.unwrap().unwrap();
            }
        }
    }
}
