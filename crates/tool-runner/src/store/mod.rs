//! The store for data that is kept across restarts and shared by replicas, in SQLite or PostgreSQL.
//!
//! ```text
//!   switches      which tools are off, for whom        read by every replica several times a second
//!   keyed calls   idempotency keys in use              a writing tool never runs twice for one key
//!   kept results  large results, each of one caller    deleted when they expire or space is needed
//!   connections   tokens that people granted sources   each for one person and one service
//!   rates         how often callers may use tools       shared by all replicas
//! ```
//!
//! Everything that a tool returned is sealed before it is stored. No operation except the preparation takes longer than
//! [`LIMIT`].

pub(crate) mod connections;
pub(crate) mod keyed;
mod rates;
mod sealing;
pub(crate) mod stored_results;
mod switches;

use std::sync::Arc;
use std::time::Duration;

use wardgate_domain::{About, Ambient, Caller, Digest, Timestamp};
use wardgate_egress::StoreUnavailable;
use wardgate_store::postgres::{Rights, Schema};
use wardgate_store::{Address, Database, DatabaseSettings, Layout, MigrationError, NotAStore};

use stored_results::StoredResultLimits;

pub use sealing::SealingKey;

/// Maximum time for one operation.
const LIMIT: Duration = Duration::from_secs(2);

/// The schema of the store and the migrations that create it.
pub const LAYOUT: Layout = Layout {
    schema: Schema {
        name: "tool_runner",
        lock: 0x5741_5244_5452_554e,
        migrations: &[
            include_str!("postgres/0001_store.sql"),
            include_str!("postgres/0002_connections.sql"),
            include_str!("postgres/0003_rates.sql"),
        ],
        rights: Rights::Rows,
    },
    sqlite: &[
        include_str!("sqlite/0001_store.sql"),
        include_str!("sqlite/0002_connections.sql"),
        include_str!("sqlite/0003_rates.sql"),
    ],
    limit: LIMIT,
};

/// Maximum number of expired entries that are removed at once.
const SWEEP: i64 = 200;

/// The reason why an operation of the store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The setting does not name a store.
    #[error("tool_runner.store must have the form `sqlite:PATH` or `postgres://…`")]
    UnknownStore,
    /// The database file cannot be opened.
    #[error("cannot open the tool-runner's store {store}: {source}")]
    Open {
        /// The location of the store.
        store: String,
        /// The error of the driver.
        source: sqlx::Error,
    },
    /// The store has a schema that this program cannot use.
    #[error("tool_runner.store: {0}")]
    Schema(MigrationError),
    /// The database is unavailable or refused the operation.
    #[error("the tool-runner's store is not available now; try again later")]
    Database(#[from] sqlx::Error),
    /// The database did not answer in time.
    #[error("the tool-runner's store did not answer in time; try again later")]
    Late,
    /// Sealed data was changed, belongs to another entry, or was sealed with another key.
    #[error("an entry of the tool-runner's store cannot be decrypted with its key")]
    Sealed,
    /// The result is too large to be stored at all.
    #[error("the result exceeds the size limit of stored results of one caller")]
    TooLarge,
    /// The maximum number of switches is reached.
    #[error("the maximum of {0} switches is reached; reset those that are not needed")]
    TooManySwitches(i64),
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

impl From<StoreError> for StoreUnavailable {
    fn from(_: StoreError) -> Self {
        Self
    }
}

/// The store, which is cheap to clone.
#[derive(Clone)]
pub(crate) struct ToolRunnerStore {
    address: Address,
    database: Database,
    key: Arc<SealingKey>,
    ambient: Ambient,
    limits: StoredResultLimits,
}

impl ToolRunnerStore {
    /// Opens the store at `sqlite:PATH` or `postgres://…`. The connection is made on first use.
    pub(crate) fn open(
        url: &str,
        settings: &DatabaseSettings,
        key: SealingKey,
        ambient: Ambient,
    ) -> Result<Self, StoreError> {
        let address = Address::new(url, settings)?;
        Ok(Self {
            database: Database::new(&address, LAYOUT, settings),
            address,
            key: Arc::new(key),
            ambient,
            limits: StoredResultLimits::default(),
        })
    }

    /// Migrates the store to the schema that this program knows, and creates it if it does not exist. If this program
    /// has no right to do so, checks that the schema is up to date. No other operation works before.
    pub(crate) async fn prepare(&self) -> Result<(), StoreError> {
        Ok(self.database.prepare().await?)
    }

    /// Returns whether the store is a file on this machine. Waiting does not make a file available.
    pub(crate) fn is_a_file(&self) -> bool {
        matches!(self.address, Address::Sqlite(_))
    }

    /// Removes a limited number of entries that expired before `now`. Returns whether there may be more.
    pub(crate) async fn sweep(&self, now: Timestamp) -> Result<bool, StoreError> {
        let bounds = || [now.as_micros().into(), SWEEP.into()];
        let calls = within(self.database.execute(keyed::SWEEP, bounds())).await?;
        let results = within(self.database.execute(stored_results::SWEEP, bounds())).await?;
        let rates = within(self.database.execute(rates::SWEEP, bounds())).await?;
        within(self.database.execute(rates::SWEEP_REPLICAS, bounds())).await?;
        Ok(calls.max(results).max(rates) == SWEEP.unsigned_abs())
    }
}

impl std::fmt::Display for ToolRunnerStore {
    /// Writes the location without credentials.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.address.fmt(f)
    }
}

/// Runs `work` for at most [`LIMIT`].
async fn within<T, E: Into<StoreError>>(
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, StoreError> {
    match tokio::time::timeout(LIMIT, work).await {
        Ok(done) => done.map_err(Into::into),
        Err(_) => Err(StoreError::Late),
    }
}

/// Returns a digest that identifies the person of `caller`, independent of their current rights.
fn person(caller: &Caller) -> Digest {
    let parts = [caller.issuer(), caller.subject(), caller.tenant()];
    let about = parts.iter().fold(About::new("person"), |about, part| {
        about.and(part.as_bytes())
    });
    Digest::compute(about.as_bytes())
}

#[cfg(test)]
mod tests;
