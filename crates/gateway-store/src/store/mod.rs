//! What gateways must remember across requests, restarts and replicas, in SQLite or PostgreSQL.
//!
//! ```text
//!   used ids      what may be used once                        true exactly once, over all replicas
//!   sessions      of clients before 2026-07-28                 gone when they end or lie idle
//!   streams       answers as events, for Last-Event-ID         gone after an hour, or for newer ones
//!   messages      from one replica to another                  gone after an hour
//!   subscriptions of clients before 2026-07-28                 gone when unused for a day
//!   approvals     requested, decided once, used once          gone when they expire
//!   revocations   that all replicas follow                  gone when an operator takes them back
//!   rates         that all replicas share                      gone when a bucket is full
//!   rate owners   whose requests the buckets count             gone after them
//! ```
//!
//! Whatever a client was told, asked or said comes sealed and is stored so. No operation takes longer than [`LIMIT`].
//! What fails here ends no call by itself: a gateway without its store has no sessions, and lets nothing be used that
//! may be used once.

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
    Address, Database, DatabaseSettings, Layout, MigrationError, NotAStore, Row, StartWait, Value,
    is_busy,
};
use wardgate_telemetry::names;

pub use approvals::{ApprovalState, NewApprovalRequest, StoredApproval};
pub use replica_messages::ReplicaMessageId;
pub use sessions::{SessionId, SessionSettings};
pub use streams::{ReplicaId, StreamId, StreamPage, StreamState, TakenOverStream, WriteResult};
pub use subscriptions::SubscriptionsId;

/// How long one operation may take.
const LIMIT: Duration = Duration::from_secs(2);

/// What the store consists of.
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

/// Expired entries removed at once, of each kind.
const SWEEP: i64 = 200;

/// How often expired entries are removed.
const SWEEP_EVERY: Duration = Duration::from_mins(1);

const USE: &str =
    "INSERT INTO gateway.used (id, expires_at) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING";

const IS_USED: &str = "SELECT id FROM gateway.used WHERE id = $1 AND expires_at > $2";

const SWEEP_USED: &str = "
    DELETE FROM gateway.used WHERE id IN
        (SELECT id FROM gateway.used WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)";

/// Why the store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The setting names no store.
    #[error("gateway.store must be given as `sqlite:PATH` or `postgres://…`")]
    UnknownStore,
    /// It has a schema that this program cannot work with.
    #[error("gateway.store: {0}")]
    Schema(MigrationError),
    /// The database does not answer, or says no.
    #[error("gateway.store cannot be used now; try again later")]
    Database(#[from] sqlx::Error),
    /// The database takes too long.
    #[error("gateway.store does not answer in time; try again later")]
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

/// The store.
pub struct Store {
    address: Address,
    database: Database,
    prepared: OnceCell<()>,
    ambient: Ambient,
}

impl Store {
    /// The store at `sqlite:PATH` or `postgres://…`. A file is there or never will be; a server may come later.
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

    /// True exactly once for each id, over all replicas, and forgotten after `until`.
    pub async fn use_id_once(&self, id: [u8; 16], until: Timestamp) -> Result<bool, StoreError> {
        let values = [id[..].into(), until.as_micros().into()];
        Ok(self.execute(USE, values).await? == 1)
    }

    /// Whether the id was used, at any replica, and is not forgotten.
    pub async fn is_id_used(&self, id: [u8; 16]) -> Result<bool, StoreError> {
        let values = [id[..].into(), self.now().as_micros().into()];
        let found: Vec<(Vec<u8>,)> = self.rows(IS_USED, values).await?;
        Ok(!found.is_empty())
    }

    /// Prepares a file; one that another program has locked, or that a busy machine opens slowly, is waited for.
    async fn wait_for_file(&self) -> Result<(), StoreError> {
        let mut wait = StartWait::for_store(&self.address);
        loop {
            // Without the limit of other operations: a migration on a slow disk would begin anew each time.
            let prepare = async { self.database.prepare().await.map_err(StoreError::from) };
            match self.prepared.get_or_try_init(|| prepare).await {
                Err(StoreError::Database(cause)) if is_busy(&cause) && wait.pause(&cause).await => {
                }
                prepared => return prepared.map(drop),
            }
        }
    }

    /// The database, once it has a schema this program works with.
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
        tracing::warn!(store = %self.address, cause, "the gateway's store cannot be used");
    }

    /// Removes what has expired, a bounded number of entries of each kind; true when there may be more.
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

    /// The time by which the store lets things expire.
    pub fn now(&self) -> Timestamp {
        self.ambient.now()
    }
}

/// Waits at most [`LIMIT`], whatever the database does.
async fn within_limit<T, E: Into<StoreError>>(
    work: BoxFuture<'_, Result<T, E>>,
) -> Result<T, StoreError> {
    match tokio::time::timeout(LIMIT, work).await {
        Ok(done) => done.map_err(Into::into),
        Err(_) => Err(StoreError::Late),
    }
}

/// Sweeps from time to time, as long as the store lives.
async fn sweep(store: Weak<Store>) {
    loop {
        tokio::time::sleep(SWEEP_EVERY).await;
        // Bounded: what is left waits for the next time. A failure is told where it happens.
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
