//! SQLite stores: one file with a write-ahead log, which also records its version.

use std::path::Path;
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{AssertSqlSafe, Connection, Sqlite, SqlitePool};
use tokio::time::sleep;

use crate::DatabaseSettings;
use crate::migration::{MigratedVersions, MigrationError, check, missing_migrations, version};

/// Returns options for a file in which acknowledged commits are durable. `limit` is the busy timeout.
pub fn options(path: &Path, limit: Duration) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .journal_mode(SqliteJournalMode::Wal)
        // With `FULL`, the write-ahead log is synced to disk at each commit.
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(limit)
}

/// Restricts access to the file at `path`, and to those that SQLite keeps beside it, to their owner. SQLite creates
/// later files beside it with the same mode.
///
/// The function opens none of these files, because closing one would release the locks of every connection that this
/// process has to it.
#[cfg(unix)]
pub fn restrict_access(path: &Path) {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    for suffix in ["", "-wal", "-shm", "-journal"] {
        let mut path = path.as_os_str().to_owned();
        path.push(suffix);
        let Ok(metadata) = fs::metadata(&path) else {
            continue;
        };
        let mode = metadata.permissions().mode();
        if (mode | OWNER_ONLY) & 0o777 == OWNER_ONLY {
            continue;
        }
        if let Err(error) = fs::set_permissions(&path, Permissions::from_mode(OWNER_ONLY)) {
            let path = Path::new(&path).display();
            tracing::warn!(%error, %path, "a store's file is readable by other users; its owner should set its mode to 600");
        }
    }
}

/// Does nothing: the files have the access list of their directory.
#[cfg(not(unix))]
pub fn restrict_access(_path: &Path) {}

/// Creates a pool of one connection, which is opened on first use. The file is created if it does not exist, with
/// access for its owner only. SQLite has a single writer anyway, and waiting for the connection in a queue is fairer
/// than waiting for the lock of the file.
pub fn writer(options: SqliteConnectOptions, limit: Duration) -> SqlitePool {
    let path = options.get_filename().to_owned();
    SqlitePoolOptions::new()
        .max_connections(1)
        .acquire_timeout(limit)
        .after_connect(move |_, _| {
            restrict_access(&path);
            Box::pin(async { Ok(()) })
        })
        .connect_lazy_with(options.create_if_missing(true))
}

/// The mode that permits the owner to read and write, and others nothing.
#[cfg(unix)]
const OWNER_ONLY: u32 = 0o600;

/// The error code of SQLite while another connection holds a lock (`SQLITE_BUSY`).
const BUSY: &str = "5";

/// Interval between attempts while the file is busy, and the maximum number of attempts.
const PAUSE: Duration = Duration::from_millis(20);
const PATIENCE: usize = 50;

/// Opens a connection to a file that another program may be opening for the first time too. Switching the file to its
/// write-ahead log does not wait for a lock, whatever the busy timeout is.
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

/// Brings a file to its newest version or, if this service does not migrate, checks that this was done.
pub async fn prepare(
    connection: &mut SqliteConnection,
    migrations: &[&'static str],
    settings: &DatabaseSettings,
) -> Result<(), MigrationError> {
    if settings.migrate {
        migrate(connection, migrations).await.map(drop)
    } else {
        check(migrations, read_version(connection).await?)
    }
}

/// Applies the missing `migrations` to a file in one transaction. If two programs do so at the same time, one waits for
/// the other.
pub async fn migrate(
    connection: &mut SqliteConnection,
    migrations: &[&'static str],
) -> Result<MigratedVersions, MigrationError> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let from = read_version(&mut transaction).await?;
    let to = version(migrations, from);
    for migration in missing_migrations(migrations, from)? {
        sqlx::raw_sql(*migration).execute(&mut *transaction).await?;
    }
    sqlx::raw_sql(AssertSqlSafe(format!("PRAGMA user_version = {to}")))
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await?;
    Ok(MigratedVersions { from, to })
}

async fn read_version(connection: &mut SqliteConnection) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar("PRAGMA user_version")
        .fetch_one(connection)
        .await
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    /// Returns the names of the files in a directory that others than their owner may use.
    fn shared_files(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap().map(Result::unwrap);
        let shared = entries.filter(|entry| {
            let mode = entry.metadata().unwrap().permissions().mode();
            mode & 0o077 != 0
        });
        shared
            .map(|entry| entry.file_name().display().to_string())
            .collect()
    }

    #[tokio::test]
    async fn a_store_and_the_files_beside_it_are_their_owners_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store.sqlite");
        let pool = writer(options(&path, LIMIT), LIMIT);
        let mut connection = first(&pool).await.unwrap();
        migrate(&mut connection, &["CREATE TABLE once (id INTEGER)"])
            .await
            .unwrap();
        assert!(path.with_extension("sqlite-wal").exists());
        assert_eq!(shared_files(dir.path()), [""; 0]);
        // The files have the modes of an earlier version, and a connection to them is still open.
        for entry in fs::read_dir(dir.path()).unwrap() {
            let path = entry.unwrap().path();
            fs::set_permissions(path, Permissions::from_mode(0o644)).unwrap();
        }
        let again = writer(options(&path, LIMIT), LIMIT);
        drop(connection);
        let mut connection = first(&again).await.unwrap();
        migrate(&mut connection, &[]).await.unwrap();
        assert_eq!(shared_files(dir.path()), [""; 0]);
    }

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
