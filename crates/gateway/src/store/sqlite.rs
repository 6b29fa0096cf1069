//! SQLite: one file beside its write-ahead log.

use std::path::Path;

use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};

use super::LIMIT;

/// Version n of the schema is what the first n of these make; they never change once released.
pub(super) const MIGRATIONS: &[&str] = &[
    include_str!("sqlite/0001_sessions.sql"),
    include_str!("sqlite/0002_subscriptions.sql"),
];

/// Connects on first use. One connection: SQLite has one writer anyway, and waiting for it in line is fairer than
/// waiting for its lock.
pub(super) fn pool(path: &Path) -> SqlitePool {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        // FULL makes the write-ahead log durable at each commit: an id that is forgotten is used twice.
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(LIMIT);
    SqlitePoolOptions::new()
        .max_connections(1)
        .acquire_timeout(LIMIT)
        .connect_lazy_with(options)
}
