//! That this gateway is alive, told to the others for as long as there are streams that it writes: whoever is to go on
//! with one of those must know that nobody else does.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};
use wardgate_domain::Ambient;

use crate::store::{ReplicaId, Store, StoreError};

/// A third of the time after which others believe it gone.
const BEAT: Duration = Duration::from_secs(5);

/// One gateway, for as long as it runs.
pub(crate) struct Heartbeat {
    id: ReplicaId,
    store: Arc<Store>,
    streams: AtomicUsize,
    beaten: Mutex<Option<Instant>>,
}

/// It goes on beating while this is kept.
pub(super) struct HeartbeatGuard(Arc<Heartbeat>);

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

    /// Under what this gateway writes streams.
    pub(super) fn id(&self) -> ReplicaId {
        self.id
    }

    /// From now on the others know that it is alive.
    pub(super) async fn beat(self: &Arc<Self>) -> Result<HeartbeatGuard, StoreError> {
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
        // More often than it says so: what it says is never much older than [`BEAT`].
        sleep(BEAT / 5).await;
        let Some(heartbeat) = heartbeat.upgrade() else {
            return;
        };
        if heartbeat.streams.load(Ordering::SeqCst) > 0 {
            // A failure is told where it happens, and the next beat comes.
            let _ = heartbeat.send_beat().await;
        }
    }
}
