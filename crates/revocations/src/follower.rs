//! The revocations in force at this gateway, followed in the store.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{Mutex, watch};
use wardgate_domain::RevocationSet;
use wardgate_edge::RevocationWatch;
use wardgate_gateway_store::{Store, StoreError};
use wardgate_rpc::Readiness;

/// Short enough that what another gateway revoked is refused here well within a second.
const POLL: Duration = Duration::from_millis(250);

/// From a failure to the next look, so that a store that is away is not asked in vain four times a second.
const POLL_AFTER_FAILURE: Duration = Duration::from_millis(500);

/// Follows the revocations as long as it lives.
pub struct RevocationFollower {
    store: Arc<Store>,
    /// None until they were read once.
    current: watch::Sender<Option<Arc<RevocationSet>>>,
    readiness: watch::Sender<Readiness>,
    /// The version that `current` was read at.
    version: Mutex<Option<i64>>,
}

impl RevocationFollower {
    /// Reads the revocations of `store` and follows them. While the store is away the last known ones stay in force; until they
    /// were read once, nobody knows whose tokens are good.
    pub async fn open(store: &Arc<Store>) -> Arc<Self> {
        let unread = Readiness::NotReady("the revocations were not read yet".to_owned());
        let follower = Arc::new(Self {
            store: Arc::clone(store),
            current: watch::Sender::new(None),
            readiness: watch::Sender::new(unread),
            version: Mutex::new(None),
        });
        // A failure is told by the store, and tried again.
        let _ = follower.refresh().await;
        tokio::spawn(follow(Arc::downgrade(&follower)));
        follower
    }

    /// The revocations in force, for whoever verifies tokens.
    pub fn watch(&self) -> RevocationWatch {
        RevocationWatch::new(self.current.subscribe())
    }

    /// Ready once the revocations were read.
    pub fn readiness(&self) -> watch::Receiver<Readiness> {
        self.readiness.subscribe()
    }

    /// Looks whether the revocations changed, and publishes them if so.
    pub(crate) async fn refresh(&self) -> Result<(), StoreError> {
        let mut held = self.version.lock().await;
        // The version first: what changes in between is read now and once more.
        let version = self.store.revocations_version().await?;
        if *held == Some(version) {
            return Ok(());
        }
        let revocations = self.store.revocations().await?;
        let set: RevocationSet = revocations.into_iter().map(|it| it.target).collect();
        self.current.send_replace(Some(Arc::new(set)));
        self.readiness.send_replace(Readiness::Ready);
        *held = Some(version);
        Ok(())
    }
}

async fn follow(follower: Weak<RevocationFollower>) {
    let mut pause = POLL;
    loop {
        tokio::time::sleep(pause).await;
        let Some(follower) = follower.upgrade() else {
            return;
        };
        pause = match follower.refresh().await {
            Ok(()) => POLL,
            Err(_) => POLL_AFTER_FAILURE,
        };
    }
}
