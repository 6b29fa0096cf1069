//! The store of the console, in SQLite or PostgreSQL: results of calls, and sessions from sign-ins by the provider.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::OnceCell;
use wardgate_domain::Ambient;
use wardgate_store::postgres::{Rights, Schema};
use wardgate_store::{
    Address, Database, DatabaseSettings, Layout, MigrationError, NotAStore, Row, Value,
    prepare_when_free,
};

use crate::CookieKey;

/// Maximum time that one operation may take.
const LIMIT: Duration = Duration::from_secs(3);

/// Interval between two removals of expired rows, and the maximum number of rows of one statement.
const SWEEP_EVERY: Duration = Duration::from_mins(1);
const SWEEP_ROWS: i64 = 200;

/// The layout of the store: its schema, migrations and timeout.
pub const LAYOUT: Layout = Layout {
    schema: Schema {
        name: "console",
        lock: 0x5741_5244_434f_4e53,
        migrations: &[
            include_str!("store/postgres/0001_results.sql"),
            include_str!("store/postgres/0002_sessions.sql"),
        ],
        rights: Rights::Rows,
    },
    sqlite: &[
        include_str!("store/sqlite/0001_results.sql"),
        include_str!("store/sqlite/0002_sessions.sql"),
    ],
    limit: LIMIT,
};

const SWEEPS: [&str; 2] = [
    "DELETE FROM console.result WHERE id IN
        (SELECT id FROM console.result WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)",
    "DELETE FROM console.session WHERE id IN
        (SELECT id FROM console.session WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)",
];

/// An error of the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The setting does not name a supported store.
    #[error("console.store must have the form `sqlite:PATH` or `postgres://…`")]
    UnknownStore,
    /// The store has a schema that this program does not support.
    #[error("console.store: {0}")]
    Schema(MigrationError),
    /// The database is unavailable or refused a statement.
    #[error("console.store is not available now; try again later")]
    Database(#[from] sqlx::Error),
    /// The database did not answer in time.
    #[error("console.store did not answer in time; try again later")]
    Late,
    /// A stored value cannot be decrypted: it was sealed under another key or was tampered with.
    #[error(
        "console.store contains a result or session that cannot be decrypted with the key of this console"
    )]
    Unreadable,
}

impl From<NotAStore> for StoreError {
    fn from(NotAStore: NotAStore) -> Self {
        Self::UnknownStore
    }
}

impl From<MigrationError> for StoreError {
    fn from(error: MigrationError) -> Self {
        match error {
            MigrationError::Database(error) => error.into(),
            schema => Self::Schema(schema),
        }
    }
}

/// The store of the console.
pub struct ConsoleStore {
    address: Address,
    database: Database,
    prepared: OnceCell<()>,
    pub(crate) key: CookieKey,
    pub(crate) ambient: Ambient,
}

impl ConsoleStore {
    /// Opens the store at `sqlite:PATH` or `postgres://…`. Fails if a file cannot be opened or the schema is not supported.
    /// Waits for a file that is busy. If a server is unavailable, later operations retry.
    pub async fn open(
        url: &str,
        settings: &DatabaseSettings,
        key: &CookieKey,
        ambient: Ambient,
    ) -> Result<Arc<Self>, StoreError> {
        let address = Address::new(url, settings)?;
        let store = Arc::new(Self {
            database: Database::new(&address, LAYOUT, settings),
            address,
            prepared: OnceCell::new(),
            key: key.clone(),
            ambient,
        });
        if store.is_file() {
            store.wait_for_file().boxed().await?;
        } else if let Err(error @ StoreError::Schema(_)) = store.database().await {
            return Err(error);
        }
        tokio::spawn(sweep(Arc::downgrade(&store)));
        Ok(store)
    }

    /// Returns whether the store is a local file.
    pub(crate) fn is_file(&self) -> bool {
        matches!(self.address, Address::Sqlite(_))
    }

    /// Prepares an SQLite file, once it is not busy. The time limit of other operations does not apply, because a migration on
    /// a slow disk would start again each time.
    async fn wait_for_file(&self) -> Result<(), StoreError> {
        let prepare = || async {
            let prepared = prepare_when_free(&self.address, || self.database.prepare()).await;
            prepared.map_err(StoreError::from)
        };
        self.prepared.get_or_try_init(prepare).await.map(drop)
    }

    /// Executes a statement and returns the number of affected rows.
    pub(crate) async fn execute<const N: usize>(
        &self,
        statement: &'static str,
        values: [Value; N],
    ) -> Result<u64, StoreError> {
        let database = self.database().await?;
        let done = within(database.execute(statement, values).boxed()).await;
        done.inspect_err(|error| self.log_error(error))
    }

    pub(crate) async fn rows<T: Row, const N: usize>(
        &self,
        statement: &'static str,
        values: [Value; N],
    ) -> Result<Vec<T>, StoreError> {
        let database = self.database().await?;
        let rows = within(database.rows(statement, values).boxed()).await;
        rows.inspect_err(|error| self.log_error(error))
    }

    /// Returns the database after its schema was prepared.
    async fn database(&self) -> Result<&Database, StoreError> {
        let prepare = || async { within(self.database.prepare().boxed()).await };
        let prepared = self.prepared.get_or_try_init(prepare).await;
        prepared.inspect_err(|error| self.log_error(error))?;
        Ok(&self.database)
    }

    fn log_error(&self, error: &StoreError) {
        let cause = error as &dyn std::error::Error;
        tracing::warn!(store = %self.address, cause, "the console's store is not available");
    }
}

/// Runs `work` with the timeout [`LIMIT`].
async fn within<T, E: Into<StoreError>>(
    work: BoxFuture<'_, Result<T, E>>,
) -> Result<T, StoreError> {
    match tokio::time::timeout(LIMIT, work).await {
        Ok(done) => done.map_err(Into::into),
        Err(_) => Err(StoreError::Late),
    }
}

/// Removes expired rows until the store is dropped.
async fn sweep(store: Weak<ConsoleStore>) {
    loop {
        tokio::time::sleep(SWEEP_EVERY).await;
        for statement in SWEEPS {
            // The number of batches is bounded; the rest is removed the next time. Failures are logged where they
            // happen.
            for _ in 0..50 {
                let Some(store) = store.upgrade() else {
                    return;
                };
                let now = store.ambient.now().as_micros();
                let removed = store.execute(statement, [now.into(), SWEEP_ROWS.into()]);
                if !matches!(removed.await, Ok(removed) if removed == SWEEP_ROWS.unsigned_abs()) {
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
