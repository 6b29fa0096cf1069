//! The store of the gateway's state across requests, restarts and replicas, in SQLite or PostgreSQL.
//!
//! ```text
//!   used ids      what may be used only once             marked exactly once, across all replicas
//!   sessions      of clients before 2026-07-28           deleted when they end or are idle
//!   streams       answers as events, for Last-Event-ID   deleted after an hour, or for newer ones
//!   messages      from one replica to another            deleted after an hour
//!   subscriptions of clients before 2026-07-28           deleted when unused for a day
//!   approvals     requested, decided once, used once     deleted when they expire
//!   revocations   followed by all replicas               deleted when an operator lifts them
//!   rates         shared by all replicas                 deleted when a bucket is full
//!   rate owners   whose requests the buckets count       deleted after their buckets
//! ```
//!
//! All content of clients is sealed before it is stored. No operation takes longer than [`LIMIT`]. A failure of the
//! store ends no call by itself: without its store a gateway has no sessions, and refuses everything that may be used
//! only once.

mod approvals;
mod rate_owners;
mod rates;
mod replica_messages;
mod revocations;
mod sessions;
mod streams;
mod subscriptions;

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use metrics::counter;
use tokio::sync::OnceCell;
use wardgate_domain::{Ambient, Timestamp};
use wardgate_store::postgres::{Rights, Schema};
use wardgate_store::{
    Address, Database, DatabaseSettings, Layout, MigrationError, NotAStore, Row, Value,
    prepare_when_free,
};
use wardgate_telemetry::names;

pub use approvals::{ApprovalState, NewApprovalRequest, StoredApproval};
pub use replica_messages::ReplicaMessageId;
pub use sessions::{SessionId, SessionSettings};
pub use streams::{ReplicaId, StreamId, StreamPage, StreamState, TakenOverStream, WriteResult};
pub use subscriptions::SubscriptionsId;

/// Time limit of one operation.
const LIMIT: Duration = Duration::from_secs(2);

/// The schema and the migrations of the store.
pub const LAYOUT: Layout = Layout {
    schema: Schema {
        name: "gateway",
        lock: 0x5741_5244_4741_5445,
        migrations: &[
            include_str!("postgres/0001_sessions.sql"),
            include_str!("postgres/0002_subscriptions.sql"),
            include_str!("postgres/0003_basis.sql"),
            include_str!("postgres/0004_rates.sql"),
            include_str!("postgres/0005_approvals.sql"),
            include_str!("postgres/0006_revocations.sql"),
            include_str!("postgres/0007_rate_owners.sql"),
        ],
        rights: Rights::Rows,
    },
    sqlite: &[
        include_str!("sqlite/0001_sessions.sql"),
        include_str!("sqlite/0002_subscriptions.sql"),
        include_str!("sqlite/0003_basis.sql"),
        include_str!("sqlite/0004_rates.sql"),
        include_str!("sqlite/0005_approvals.sql"),
        include_str!("sqlite/0006_revocations.sql"),
        include_str!("sqlite/0007_rate_owners.sql"),
    ],
    limit: LIMIT,
};

/// Maximum number of expired entries of each kind that are removed at once.
const SWEEP: i64 = 200;

/// Interval between two removals of expired entries.
const SWEEP_EVERY: Duration = Duration::from_mins(1);

const USE: &str =
    "INSERT INTO gateway.used (id, expires_at) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING";

const IS_USED: &str = "SELECT id FROM gateway.used WHERE id = $1 AND expires_at > $2";

const SWEEP_USED: &str = "
    DELETE FROM gateway.used WHERE id IN
        (SELECT id FROM gateway.used WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)";

/// The reason for which an operation of the store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The setting names no store.
    #[error("gateway.store must have the form `sqlite:PATH` or `postgres://…`")]
    UnknownStore,
    /// The store has a schema that this program cannot work with.
    #[error("gateway.store: {0}")]
    Schema(MigrationError),
    /// The database is unreachable, or refuses the operation.
    #[error("gateway.store is not available now; try again later")]
    Database(#[from] sqlx::Error),
    /// The database did not answer within the time limit.
    #[error("gateway.store did not answer in time; try again later")]
    Late,
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

/// The store of a gateway's state.
pub struct Store {
    address: Address,
    database: Database,
    prepared: OnceCell<()>,
    ambient: Ambient,
}

impl Store {
    /// Opens the store at `sqlite:PATH` or `postgres://…`. A file must be usable at once; a database server may become
    /// available later.
    pub async fn open(
        url: &str,
        settings: &DatabaseSettings,
        ambient: Ambient,
    ) -> Result<Arc<Self>, StoreError> {
        let address = Address::new(url, settings)?;
        let store = Arc::new(Self {
            database: Database::new(&address, LAYOUT, settings),
            address,
            prepared: OnceCell::new(),
            ambient,
        });
        if let Address::Sqlite(_) = store.address {
            store.wait_for_file().boxed().await?;
        } else if let Err(error @ StoreError::Schema(_)) = store.database().await {
            return Err(error);
        }
        tokio::spawn(sweep(Arc::downgrade(&store)));
        Ok(store)
    }

    /// Marks an id as used until `until`. Returns `true` exactly once for each id, across all replicas.
    pub async fn use_id_once(&self, id: [u8; 16], until: Timestamp) -> Result<bool, StoreError> {
        let values = [id[..].into(), until.as_micros().into()];
        Ok(self.execute(USE, values).await? == 1)
    }

    /// Returns whether the id was used at any replica, and the mark has not expired.
    pub async fn is_id_used(&self, id: [u8; 16]) -> Result<bool, StoreError> {
        let values = [id[..].into(), self.now().as_micros().into()];
        let found: Vec<(Vec<u8>,)> = self.rows(IS_USED, values).await?;
        Ok(!found.is_empty())
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

    /// Returns the database, once its schema is prepared for this program.
    async fn database(&self) -> Result<&Database, StoreError> {
        let prepared = self.prepared.get_or_try_init(|| async {
            let prepared = within_limit(self.database.prepare().boxed()).await;
            if let Err(error) = &prepared {
                self.log_failure(error);
            }
            prepared
        });
        prepared.await?;
        Ok(&self.database)
    }

    async fn execute<const N: usize>(
        &self,
        statement: &'static str,
        values: [Value; N],
    ) -> Result<u64, StoreError> {
        let database = self.database().await?;
        self.log_failure_of(within_limit(database.execute(statement, values).boxed()).await)
    }

    async fn rows<T: Row, const N: usize>(
        &self,
        statement: &'static str,
        values: [Value; N],
    ) -> Result<Vec<T>, StoreError> {
        let database = self.database().await?;
        self.log_failure_of(within_limit(database.rows(statement, values).boxed()).await)
    }

    fn log_failure_of<T>(&self, done: Result<T, StoreError>) -> Result<T, StoreError> {
        done.inspect_err(|error| self.log_failure(error))
    }

    fn log_failure(&self, error: &StoreError) {
        counter!(names::GATEWAY_STORE_FAILURES).increment(1);
        let cause = error as &dyn std::error::Error;
        tracing::warn!(store = %self.address, cause, "the gateway's store is not available");
    }

    /// Removes expired entries, a bounded number of each kind. Returns `true` if there may be more.
    async fn sweep(&self) -> Result<bool, StoreError> {
        let now = self.ambient.now();
        let mut most = 0;
        for statement in [
            SWEEP_USED,
            sessions::SWEEP,
            streams::SWEEP,
            streams::SWEEP_REPLICAS,
            replica_messages::SWEEP,
            subscriptions::SWEEP,
            approvals::SWEEP,
            rates::SWEEP,
            rates::SWEEP_REPLICAS,
            rate_owners::SWEEP,
        ] {
            let bounds = [now.as_micros().into(), SWEEP.into()];
            most = most.max(self.execute(statement, bounds).await?);
        }
        Ok(most == SWEEP.unsigned_abs())
    }

    /// Returns the current time, by which entries of the store expire.
    pub fn now(&self) -> Timestamp {
        self.ambient.now()
    }
}

/// Waits for `work`, but no longer than [`LIMIT`].
async fn within_limit<T, E: Into<StoreError>>(
    work: BoxFuture<'_, Result<T, E>>,
) -> Result<T, StoreError> {
    match tokio::time::timeout(LIMIT, work).await {
        Ok(done) => done.map_err(Into::into),
        Err(_) => Err(StoreError::Late),
    }
}

/// Removes expired entries periodically, until the store is dropped.
async fn sweep(store: Weak<Store>) {
    loop {
        tokio::time::sleep(SWEEP_EVERY).await;
        // The number of repetitions is bounded; the remaining entries wait for the next time. The store logs a failure.
        for _ in 0..50 {
            let Some(store) = store.upgrade() else {
                return;
            };
            if !matches!(store.sweep().await, Ok(true)) {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests;
