//! The revocations in force at this gateway, followed in the store.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{Mutex, watch};
use tracing::{info, warn};
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
    last: Mutex<LastRefresh>,
}

/// What one refresh leaves to the next.
#[derive(Default)]
struct LastRefresh {
    /// The version that the revocations were read at.
    version: Option<i64>,
    failed: bool,
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
            last: Mutex::default(),
        });
        // A failure is told there, and tried again.
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
        let mut last = self.last.lock().await;
        let refreshed = self.read(&mut last).await;
        match &refreshed {
            Err(error) if !last.failed => {
                let cause = error as &dyn std::error::Error;
                warn!(
                    cause,
                    "the revocations cannot be read; the last known ones stay in force"
                );
            }
            Ok(()) if last.failed => info!("the revocations can be read again"),
            _ => {}
        }
        last.failed = refreshed.is_err();
        refreshed
    }

    async fn read(&self, last: &mut LastRefresh) -> Result<(), StoreError> {
        // The version first: what changes in between is read now and once more.
        let version = self.store.revocations_version().await?;
        if last.version == Some(version) {
            return Ok(());
        }
        let revocations = self.store.revocations().await?;
        let set: RevocationSet = revocations.into_iter().map(|it| it.target).collect();
        self.current.send_replace(Some(Arc::new(set)));
        self.readiness.send_replace(Readiness::Ready);
        last.version = Some(version);
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
