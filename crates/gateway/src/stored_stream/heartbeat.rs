//! The heartbeat of this replica in the store, which is sent for as long as the replica writes streams. Another replica takes a
//! stream over only if the heartbeat is missing.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};
use wardgate_domain::Ambient;
use wardgate_gateway_store::{ReplicaId, Store, StoreError};

/// Interval between heartbeats: a third of the time after which other replicas consider this one gone.
const BEAT: Duration = Duration::from_secs(5);

/// The heartbeat of this replica.
pub(crate) struct Heartbeat {
    id: ReplicaId,
    store: Arc<Store>,
    streams: AtomicUsize,
    beaten: Mutex<Option<Instant>>,
}

/// Keeps the heartbeat running until it is dropped.
pub(crate) struct HeartbeatGuard(Arc<Heartbeat>);

impl Drop for HeartbeatGuard {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Heartbeat {
    pub(crate) fn new(store: &Arc<Store>, ambient: &Ambient) -> Arc<Self> {
        let heartbeat = Arc::new(Self {
            id: ReplicaId(ambient.random()),
            store: Arc::clone(store),
            streams: AtomicUsize::new(0),
            beaten: Mutex::new(None),
        });
        tokio::spawn(beat_periodically(Arc::downgrade(&heartbeat)));
        heartbeat
    }

    /// Returns the id under which this replica writes streams.
    pub(crate) fn id(&self) -> ReplicaId {
        self.id
    }

    /// Starts the heartbeat, and sends the first one if the last is too old.
    pub(crate) async fn beat(self: &Arc<Self>) -> Result<HeartbeatGuard, StoreError> {
        self.streams.fetch_add(1, Ordering::SeqCst);
        let heartbeat_guard = HeartbeatGuard(Arc::clone(self));
        self.send_beat().await?;
        Ok(heartbeat_guard)
    }

    async fn send_beat(&self) -> Result<(), StoreError> {
        let mut beaten = self.beaten.lock().await;
        if beaten.is_none_or(|at| at.elapsed() >= BEAT) {
            let now = Instant::now();
            self.store.beat(self.id).await?;
            *beaten = Some(now);
        }
        Ok(())
    }
}

async fn beat_periodically(heartbeat: Weak<Heartbeat>) {
    loop {
        // The time is checked more often than [`BEAT`], so that the last heartbeat is never much older than that.
        sleep(BEAT / 5).await;
        let Some(heartbeat) = heartbeat.upgrade() else {
            return;
        };
        if heartbeat.streams.load(Ordering::SeqCst) > 0 {
            // The store logs a failure, and the next heartbeat follows.
            let _ = heartbeat.send_beat().await;
        }
    }
}
