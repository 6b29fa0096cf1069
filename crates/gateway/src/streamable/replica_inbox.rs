//! What one gateway learns and another waits for: that a call is cancelled, what a client answered.
//!
//! ```text
//!  deliver(id) ─▶ the store, once for each id ─▶ every gateway looks, twice a second, while anything waits
//!          └────▶ whoever waits at this gateway, at once
//! ```

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use wardgate_domain::About;

use super::StreamableSession;
use crate::mcp::spelt_alike;
use crate::store::{ReplicaMessageId, SessionId, Store, StoreError};

/// How often the store is asked for what other gateways left there.
const LOOK: Duration = Duration::from_millis(500);

/// How old a letter may be that is still looked for: longer than any two clocks differ.
const RECENT: Duration = Duration::from_mins(1);

/// How often whoever waits for a letter asks for it, in case it was not found so.
const ASK: Duration = Duration::from_secs(2);

/// Cancellations that one session leaves for other gateways in so long; what it cancels beyond runs to its end.
const MOST_CANCELLED: u32 = 60;
const CANCELLED_IN: Duration = Duration::from_mins(1);

/// What is waited for here, and the store where it comes from.
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

/// How many cancellations each session left for other gateways, since when.
#[derive(Debug, Default)]
struct CancellationQuota(Mutex<Option<(Instant, HashMap<SessionId, u32>)>>);

impl CancellationQuota {
    /// Counts one more of the session's, if it may leave it.
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

/// A letter is waited for while this is kept.
#[derive(Debug)]
pub(crate) struct ExpectedMessage {
    id: ReplicaMessageId,
    waiting: Arc<WaitingMessages>,
    /// Is cancelled when the letter is there.
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

    /// From now on the letter of this id is waited for.
    pub(crate) fn expect(&self, id: ReplicaMessageId) -> ExpectedMessage {
        let is_there = CancellationToken::new();
        self.waiting.lock().insert(id, is_there.clone());
        ExpectedMessage {
            id,
            waiting: Arc::clone(&self.waiting),
            is_there,
        }
    }

    /// Leaves a letter for whoever waits for it; a second one of the same id changes nothing.
    pub(crate) async fn deliver(
        &self,
        id: ReplicaMessageId,
        sealed: Vec<u8>,
    ) -> Result<(), StoreError> {
        self.store.post_replica_message(id, sealed).await?;
        self.waiting.notify(id);
        Ok(())
    }

    /// The letter, when it comes. A store that is away is asked again.
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

    /// A call of a session begins, which can be cancelled while what this returns is kept.
    pub(crate) fn begin(&self, session: &StreamableSession, request: &RawValue) -> ExpectedMessage {
        self.expect(cancellation(session, request.get()))
    }

    /// Cancels the call of this id, wherever it runs, if it does.
    pub(crate) async fn cancel(&self, session: &StreamableSession, request: &str) {
        let id = cancellation(session, request);
        if !self.waiting.notify(id) && self.cancelled.may_post(session.id) {
            // A failure is told where it happens; the call then runs to its end.
            let _ = self.store.post_replica_message(id, Vec::new()).await;
        }
    }
}

/// Under what gateways tell each other that a call is cancelled.
fn cancellation(session: &StreamableSession, request: &str) -> ReplicaMessageId {
    let request = spelt_alike(request);
    let about = About::new("cancelled")
        .and(&session.id.0)
        .and(request.as_bytes());
    ReplicaMessageId(about.digest())
}

/// Looks again and again, as long as there is a gateway.
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
