//! Follows the revocations in the store, so that the current ones are known at this gateway.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{Mutex, watch};
use tracing::{info, warn};
use wardgate_domain::RevocationSet;
use wardgate_edge::RevocationWatch;
use wardgate_gateway_store::{Store, StoreError};
use wardgate_rpc::Readiness;

/// Interval between two polls, so that a token that another gateway revoked is refused here well within a second.
const POLL: Duration = Duration::from_millis(250);

/// Interval between a failure and the next poll. It is longer, so that an unavailable store gets fewer requests.
const POLL_AFTER_FAILURE: Duration = Duration::from_millis(500);

/// Follows the revocations until it is dropped.
pub struct RevocationFollower {
    store: Arc<Store>,
    /// The current revocations, or `None` until they were read once.
    current: watch::Sender<Option<Arc<RevocationSet>>>,
    readiness: watch::Sender<Readiness>,
    last: Mutex<LastRefresh>,
}

/// The state between two refreshes.
#[derive(Default)]
struct LastRefresh {
    /// The version of the revocations that were read last.
    version: Option<i64>,
    failed: bool,
}

impl RevocationFollower {
    /// Reads the revocations of `store` and follows them. While the store is unavailable, the last known revocations
    /// stay in force. Until they were read once, it is unknown which tokens are valid, and the gateway is not ready.
    pub async fn open(store: &Arc<Store>) -> Arc<Self> {
        let unread = Readiness::NotReady("the revocations have not been read yet".to_owned());
        let follower = Arc::new(Self {
            store: Arc::clone(store),
            current: watch::Sender::new(None),
            readiness: watch::Sender::new(unread),
            last: Mutex::default(),
        });
        // A failure is logged by the refresh, and the next poll retries.
        let _ = follower.refresh().await;
        tokio::spawn(follow(Arc::downgrade(&follower)));
        follower
    }

    /// Returns the revocations in force, for the verification of tokens.
    pub fn watch(&self) -> RevocationWatch {
        RevocationWatch::new(self.current.subscribe())
    }

    /// Returns the readiness: ready once the revocations were read.
    pub fn readiness(&self) -> watch::Receiver<Readiness> {
        self.readiness.subscribe()
    }

    /// Polls the store, and publishes the revocations if they have changed.
    pub(crate) async fn refresh(&self) -> Result<(), StoreError> {
        let mut last = self.last.lock().await;
        let refreshed = self.load_revocations(&mut last).await;
        match &refreshed {
            Err(error) if !last.failed => {
                let cause = error as &dyn std::error::Error;
                warn!(
                    cause,
                    "the revocations cannot be read; the last known ones stay in force"
                );
            }
            Ok(()) if last.failed => info!("the revocations are readable again"),
            _ => {}
        }
        last.failed = refreshed.is_err();
        refreshed
    }

    async fn load_revocations(&self, last: &mut LastRefresh) -> Result<(), StoreError> {
        // The version is read first, so that a change in between is read by the next poll.
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
