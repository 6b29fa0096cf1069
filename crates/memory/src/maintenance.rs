//! The maintenance of the store: migrates and probes the store, erases expired conversations, and abandons turns that
//! nobody resumes.

use std::sync::{Arc, Weak};
use std::time::Duration;

use metrics::counter;
use tokio::sync::watch;
use tracing::{info, warn};
use wardgate_domain::Ambient;
use wardgate_rpc::Readiness;
use wardgate_store::is_busy;
use wardgate_telemetry::names;

use crate::erasure::{Erasure, ErasureActor};
use crate::store::MemoryStore;
use crate::{Config, Error};

/// Interval between two probes of the store.
const LOOK: Duration = Duration::from_secs(1);

/// Number of probes between two sweeps.
const SWEEP: u32 = 60;

/// Time without activity after which an open turn is abandoned.
pub(crate) const TURN_LASTS: Duration = Duration::from_hours(24);

/// Maximum number of batches of one sweep, so that the next probe is not delayed for long.
const BATCHES: usize = 100;

/// The maintenance of the store. Its task ends when it is dropped.
pub(crate) struct StoreMaintenance {
    config: Config,
    store: MemoryStore,
    erasure: Arc<Erasure>,
    ambient: Ambient,
    readiness: watch::Sender<Readiness>,
}

impl StoreMaintenance {
    /// Prepares the store and starts its maintenance. If a database server is unavailable, the task retries. Fails if a
    /// database file cannot be used, or if the store was written by a newer program or under another key.
    pub(crate) async fn start(
        config: Config,
        store: MemoryStore,
        erasure: Arc<Erasure>,
        ambient: Ambient,
    ) -> Result<Arc<Self>, Error> {
        let maintenance = Arc::new(Self {
            config,
            store,
            erasure,
            ambient,
            readiness: watch::Sender::new(Readiness::NotReady(
                "the memory store has not been opened yet".to_owned(),
            )),
        });
        let prepared = match maintenance.store.prepare().await {
            Ok(()) => true,
            Err(error @ (Error::Schema(_) | Error::OtherMasterKey)) => return Err(error),
            Err(Error::Database(source)) if maintenance.store.is_a_file() && !is_busy(&source) => {
                let store = maintenance.store.to_string();
                return Err(Error::Open { store, source });
            }
            Err(error) => {
                maintenance.is_away(&error);
                false
            }
        };
        if prepared {
            maintenance.readiness.send_replace(Readiness::Ready);
        }
        tokio::spawn(run(Arc::downgrade(&maintenance), prepared));
        Ok(maintenance)
    }

    pub(crate) fn readiness(&self) -> watch::Receiver<Readiness> {
        self.readiness.subscribe()
    }

    /// Checks whether the store is available and updates the readiness. Returns whether the store is prepared.
    async fn check_store(&self, prepared: bool) -> bool {
        let checked = if prepared {
            self.store.probe().await
        } else {
            self.store.prepare().await
        };
        match checked {
            Ok(()) => {
                if self.readiness.send_replace(Readiness::Ready) != Readiness::Ready {
                    info!(store = %self.store, "the memory store is available again");
                }
                true
            }
            Err(error) => {
                self.is_away(&error);
                prepared
            }
        }
    }

    fn is_away(&self, error: &Error) {
        counter!(names::MEMORY_STORE_FAILURES).increment(1);
        let not_ready = Readiness::NotReady(error.to_string());
        if self.readiness.send_replace(not_ready).is_ready() {
            let cause = error as &dyn std::error::Error;
            warn!(store = %self.store, cause, "the memory store is not available");
        }
    }

    /// Runs one round of everything that is due. What fails is retried in the next round.
    pub(crate) async fn sweep(&self) {
        self.erasure.clean_up(BATCHES).await;
        let swept = async {
            let now = self.ambient.now();
            self.store.abandon(TURN_LASTS, now).await?;
            self.store.end_expired_subscriptions(now).await?;
            self.retain().await
        };
        if let Err(error) = swept.await {
            let cause = &error as &dyn std::error::Error;
            warn!(cause, "expired conversations cannot be removed now");
        }
        self.erasure.clean_up(BATCHES).await;
    }

    /// Erases the conversations that are older than the retention rule of their tenant allows.
    async fn retain(&self) -> Result<(), Error> {
        if self.config.retention.is_empty() {
            return Ok(());
        }
        for tenant in self.store.tenants().await? {
            let Some(kept_for) = self.config.kept_for(&tenant) else {
                continue;
            };
            let unchanged_since = self.ambient.now().minus(kept_for);
            for candidate in self
                .store
                .expired_conversations(&tenant, unchanged_since)
                .await?
            {
                match self
                    .erasure
                    .record_and_erase(candidate, &ErasureActor::Retention)
                    .await
                {
                    // A hold, a change or an erasure by the owner happened in the meantime.
                    Ok(()) | Err(Error::Held | Error::Changed | Error::UnknownConversation) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }
}

async fn run(maintenance: Weak<StoreMaintenance>, mut prepared: bool) {
    let mut checks = 0;
    loop {
        tokio::time::sleep(LOOK).await;
        let Some(maintenance) = maintenance.upgrade() else {
            return;
        };
        prepared = maintenance.check_store(prepared).await;
        checks += 1;
        if checks >= SWEEP && prepared {
            checks = 0;
            maintenance.sweep().await;
        }
    }
}
