//! Messages between replicas: the cancellation of a call, the response of a client.
//!
//! ```text
//!  deliver(id) ─▶ the store, once for each id ─▶ each replica polls it, twice a second, while it expects messages
//!          └────▶ the receiver at this replica, at once
//! ```

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use wardgate_domain::About;
use wardgate_gateway_store::{ReplicaMessageId, SessionId, Store, StoreError};
use wardgate_mcp_server::spelt_alike;

use crate::session::StreamableSession;

/// Interval at which the store is polled for messages of other replicas.
const LOOK: Duration = Duration::from_millis(500);

/// Maximum age of the messages that are polled for. It exceeds the difference between any two clocks.
const RECENT: Duration = Duration::from_mins(1);

/// Interval at which a receiver fetches its message itself, in case polling missed it.
const ASK: Duration = Duration::from_secs(2);

/// Maximum number of cancellations that one session may send to other replicas in [`CANCELLED_IN`]. Other calls run on.
const MOST_CANCELLED: u32 = 60;
const CANCELLED_IN: Duration = Duration::from_mins(1);

/// The messages that this replica expects, and the store that they come from.
#[derive(Clone)]
pub(crate) struct ReplicaInbox {
    store: Arc<Store>,
    waiting: Arc<WaitingMessages>,
    cancelled: Arc<CancellationQuota>,
}

#[derive(Debug, Default)]
struct WaitingMessages(Mutex<HashMap<ReplicaMessageId, CancellationToken>>);

impl WaitingMessages {
    fn lock(&self) -> MutexGuard<'_, HashMap<ReplicaMessageId, CancellationToken>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self, id: ReplicaMessageId) -> bool {
        let waits = self.lock().get(&id).cloned();
        waits.inspect(CancellationToken::cancel).is_some()
    }
}

/// The number of cancellations that each session sent to other replicas, and the beginning of the counting.
#[derive(Debug, Default)]
struct CancellationQuota(Mutex<Option<(Instant, HashMap<SessionId, u32>)>>);

impl CancellationQuota {
    /// Counts one more cancellation, and returns whether it may be sent.
    fn may_post(&self, session: SessionId) -> bool {
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, by_session) = match &mut *counted {
            Some(counted) if counted.0.elapsed() < CANCELLED_IN => counted,
            stale => stale.insert((Instant::now(), HashMap::new())),
        };
        let count = by_session.entry(session).or_default();
        *count += 1;
        *count <= MOST_CANCELLED
    }
}

/// A message that is expected for as long as this value exists.
#[derive(Debug)]
pub(crate) struct ExpectedMessage {
    id: ReplicaMessageId,
    waiting: Arc<WaitingMessages>,
    /// Cancelled when the message has arrived.
    pub(crate) is_there: CancellationToken,
}

impl Drop for ExpectedMessage {
    fn drop(&mut self) {
        self.waiting.lock().remove(&self.id);
    }
}

impl ReplicaInbox {
    pub(crate) fn new(store: &Arc<Store>) -> Self {
        let waiting = Arc::default();
        tokio::spawn(poll_store(Arc::downgrade(store), Arc::downgrade(&waiting)));
        Self {
            store: Arc::clone(store),
            waiting,
            cancelled: Arc::default(),
        }
    }

    /// Expects the message `id` from now on, until the result is dropped.
    pub(crate) fn expect(&self, id: ReplicaMessageId) -> ExpectedMessage {
        let is_there = CancellationToken::new();
        self.waiting.lock().insert(id, is_there.clone());
        ExpectedMessage {
            id,
            waiting: Arc::clone(&self.waiting),
            is_there,
        }
    }

    /// Sends a message to its receiver on any replica. A second message with the same id has no effect.
    pub(crate) async fn deliver(
        &self,
        id: ReplicaMessageId,
        sealed: Vec<u8>,
    ) -> Result<(), StoreError> {
        self.store.post_replica_message(id, sealed).await?;
        self.waiting.notify(id);
        Ok(())
    }

    /// Waits for the message. If the store is unavailable, it is asked again.
    pub(crate) async fn receive(&self, expected: &ExpectedMessage) -> Vec<u8> {
        loop {
            if let Ok(Some(replica_message)) = self.store.fetch_replica_message(expected.id).await {
                return replica_message;
            }
            if expected.is_there.is_cancelled() {
                sleep(LOOK).await;
            } else {
                let _ = timeout(ASK, expected.is_there.cancelled()).await;
            }
        }
    }

    /// Expects the cancellation of a call of a session.
    pub(crate) fn begin(&self, session: &StreamableSession, request: &RawValue) -> ExpectedMessage {
        self.expect(cancellation(session, request.get()))
    }

    /// Cancels the call `request`, on whichever replica it runs.
    pub(crate) async fn cancel(&self, session: &StreamableSession, request: &str) {
        let id = cancellation(session, request);
        if !self.waiting.notify(id) && self.cancelled.may_post(session.id) {
            // The store logs a failure. In that case the call runs to its end.
            let _ = self.store.post_replica_message(id, Vec::new()).await;
        }
    }
}

/// Returns the id of the message that cancels a call.
fn cancellation(session: &StreamableSession, request: &str) -> ReplicaMessageId {
    let request = spelt_alike(request);
    let about = About::new("cancelled")
        .and(&session.id.0)
        .and(request.as_bytes());
    ReplicaMessageId(about.digest())
}

/// Polls the store for as long as the replica runs.
async fn poll_store(store: Weak<Store>, waiting: Weak<WaitingMessages>) {
    loop {
        sleep(LOOK).await;
        let (Some(store), Some(waiting)) = (store.upgrade(), waiting.upgrade()) else {
            return;
        };
        let waited: Vec<ReplicaMessageId> = waiting.lock().keys().copied().collect();
        let there = store.replica_messages_among(&waited, RECENT).await;
        for id in there.unwrap_or_default() {
            waiting.notify(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_session_leaves_so_many_cancellations_a_minute_and_another_has_its_own() {
        let cancelled = CancellationQuota::default();
        let (one, other) = (SessionId([1; 16]), SessionId([2; 16]));
        let left = (0..1_000).filter(|_| cancelled.may_post(one)).count();
        assert_eq!(left, 60);
        assert!(cancelled.may_post(other));
        tokio::time::advance(CANCELLED_IN).await;
        assert!(cancelled.may_post(one));
    }
}
