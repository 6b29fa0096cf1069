//! The feed of changes: every watcher gets the changes of all replicas.
//!
//! ```text
//!   add, clear, erase … ──▶ a row of `change`, in the same transaction
//!                               │ read at once when it was made here, within a second in any case
//!                               ▼
//!                          ChangeFeed ──▶ a stream per gateway
//! ```
//!
//! The store is read once, however many watch.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::{Stream, stream};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Mutex, Notify, broadcast};
use tokio::time::Instant;
use tracing::{info, warn};
use wardgate_domain::ConversationChanges;

use crate::Error;
use crate::store::{LIMIT, MemoryStore};

/// How often the store is read for what other replicas changed.
const POLL: Duration = Duration::from_secs(1);

/// What this replica changes meanwhile is read together.
const PAUSE: Duration = Duration::from_millis(50);

/// By then a number that was given is in the log, or never will be: no operation takes longer than [`LIMIT`].
const SETTLED: Duration = LIMIT.saturating_mul(2);

/// Numbers that can be missing at once.
const MOST_MISSING: i64 = 1_000;

/// How long a change stays in the log, at least.
const RETENTION: Duration = Duration::from_mins(1);

/// Whoever did not read the log for so long may have missed something that is forgotten.
const TOO_LONG: Duration = Duration::from_secs(30);

/// Readings that a slow watcher may be behind; beyond that it is told that it missed some.
const BEHIND: usize = 64;

/// Who may watch at once: there is one per gateway.
const MOST_WATCHERS: usize = 256;

/// The feed. It follows the log until it is dropped.
pub(crate) struct ChangeFeed {
    store: MemoryStore,
    watchers: broadcast::Sender<Arc<ConversationChanges>>,
    state: Mutex<FeedState>,
}

/// The state between two readings of the log.
#[derive(Default)]
struct FeedState {
    /// None until the log was read once.
    position: Option<FeedPosition>,
    failed: bool,
}

/// The position up to which the log was read.
struct FeedPosition {
    last: i64,
    /// Numbers before that were not there, and since when that is known.
    missing: BTreeMap<i64, Instant>,
    /// When the log was last read.
    at: Instant,
    /// The last number at some time before, and when that was.
    forget: (i64, Instant),
}

impl FeedPosition {
    fn new(last: i64, now: Instant) -> Self {
        Self {
            last,
            missing: BTreeMap::new(),
            at: now,
            forget: (last, now),
        }
    }

    /// Everything up to here is known.
    fn known(&self) -> i64 {
        let first_missing = self.missing.keys().next();
        first_missing.map_or(self.last, |missing| missing - 1)
    }

    /// Whether a change of that number is new.
    fn takes(&mut self, number: i64, now: Instant) -> bool {
        if number <= self.last {
            return self.missing.remove(&number).is_some();
        }
        let first = (self.last + 1).max(number - MOST_MISSING);
        self.missing.extend((first..number).map(|one| (one, now)));
        self.last = number;
        true
    }

    /// Gives up on numbers that were not there although they were settled when the reading began.
    fn settle(&mut self, began: Instant) {
        self.missing
            .retain(|_, since| began.duration_since(*since) < SETTLED);
        // Of two readings the one that began earlier may end later.
        self.at = self.at.max(began);
    }
}

impl ChangeFeed {
    /// Follows the log of a store that should be there; one that is away is waited for.
    pub(crate) async fn start(store: MemoryStore) -> Arc<Self> {
        let change_signal = store.change_signal();
        let change_feed = Arc::new(Self {
            store,
            watchers: broadcast::Sender::new(BEHIND),
            state: Mutex::default(),
        });
        change_feed.poll(Instant::now()).await;
        tokio::spawn(follow(Arc::downgrade(&change_feed), change_signal));
        change_feed
    }

    /// What changes from now on. It begins with the word that what was before went unseen.
    pub(crate) fn watch(
        &self,
    ) -> Result<impl Stream<Item = Arc<ConversationChanges>> + use<>, Error> {
        if self.watchers.receiver_count() >= MOST_WATCHERS {
            return Err(Error::TooManyWatchers(MOST_WATCHERS));
        }
        let unseen = || {
            Arc::new(ConversationChanges {
                unseen: true,
                changes: Vec::new(),
            })
        };
        let watcher = self.watchers.subscribe();
        let rest = stream::unfold(watcher, move |mut watcher| async move {
            let changes = match watcher.recv().await {
                Ok(changes) => changes,
                Err(RecvError::Lagged(_)) => unseen(),
                Err(RecvError::Closed) => return None,
            };
            Some((changes, watcher))
        });
        Ok(futures::StreamExt::chain(stream::iter([unseen()]), rest))
    }

    /// Reads the new changes of the log and publishes them.
    pub(crate) async fn poll(&self, now: Instant) {
        let mut state = self.state.lock().await;
        let read = self.read_log(&mut state.position, now).await;
        match &read {
            Err(error) if !state.failed => {
                let cause = error as &dyn std::error::Error;
                warn!(store = %self.store, cause, "what changed in conversations cannot be read now");
            }
            Ok(()) if state.failed => {
                info!(store = %self.store, "what changed in conversations can be read again");
            }
            Ok(()) | Err(_) => {}
        }
        state.failed = read.is_err();
    }

    async fn read_log(
        &self,
        position: &mut Option<FeedPosition>,
        began: Instant,
    ) -> Result<(), Error> {
        // Whoever was away so long begins anew: what was forgotten meanwhile is not to be had.
        let fresh = match position.take() {
            Some(position) if began.duration_since(position.at) < TOO_LONG => position,
            Some(_) | None => self.begin(began).await?,
        };
        let position = position.insert(fresh);
        self.read_on(position, began, |changes| self.publish(changes))
            .await?;
        position.settle(began);
        let (up_to, since) = position.forget;
        if began.duration_since(since) >= RETENTION {
            self.store.forget_changes(up_to).await?;
            position.forget = (position.last, began);
        }
        Ok(())
    }

    /// Passes over what is in the log already, and says so.
    async fn begin(&self, now: Instant) -> Result<FeedPosition, Error> {
        let last = self.store.latest_change().await?;
        // What is under way now has a number near the last.
        let mut position = FeedPosition::new((last - MOST_MISSING).max(0), now);
        self.read_on(&mut position, now, |_| {}).await?;
        self.publish(ConversationChanges {
            unseen: true,
            changes: Vec::new(),
        });
        Ok(position)
    }

    /// Reads the log to its end, a page at a time.
    async fn read_on(
        &self,
        position: &mut FeedPosition,
        now: Instant,
        publish: impl Fn(ConversationChanges),
    ) -> Result<(), Error> {
        let mut after = position.known();
        loop {
            let page = self.store.changes_after(after).await?;
            let Some(last) = page.last() else {
                return Ok(());
            };
            after = last.number;
            let new = page
                .into_iter()
                .filter(|logged| position.takes(logged.number, now));
            let changes: Vec<_> = new.filter_map(|logged| logged.change).collect();
            if !changes.is_empty() {
                publish(ConversationChanges {
                    unseen: false,
                    changes,
                });
            }
        }
    }

    fn publish(&self, changes: ConversationChanges) {
        // That nobody watches is no fault.
        let _ = self.watchers.send(Arc::new(changes));
    }
}

async fn follow(change_feed: Weak<ChangeFeed>, change_signal: Arc<Notify>) {
    loop {
        // What other replicas changed, nobody rings for.
        let _ = tokio::time::timeout(POLL, change_signal.notified()).await;
        let Some(change_feed) = change_feed.upgrade() else {
            return;
        };
        change_feed.poll(Instant::now()).await;
        drop(change_feed);
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position() -> (FeedPosition, Instant) {
        let now = Instant::now();
        (FeedPosition::new(10, now), now)
    }

    #[test]
    fn each_number_is_new_once() {
        let (mut position, now) = position();
        for number in [11, 12, 13] {
            assert!(position.takes(number, now));
            assert!(!position.takes(number, now));
        }
        assert!(!position.takes(10, now));
        assert_eq!(position.known(), 13);
    }

    #[test]
    fn a_number_that_comes_late_is_waited_for_until_it_cannot_come_any_more() {
        let (mut position, now) = position();
        assert!(position.takes(14, now));
        assert_eq!(position.known(), 10);
        assert!(position.takes(12, now));
        position.settle(now + SETTLED / 2);
        assert_eq!(position.known(), 10);
        assert!(position.takes(11, now));
        assert_eq!(position.known(), 12);
        position.settle(now + SETTLED);
        assert_eq!(position.known(), 14);
        assert!(!position.takes(13, now));
    }

    #[test]
    fn a_reading_that_began_earlier_does_not_put_the_log_back() {
        let (mut position, now) = position();
        position.settle(now + RETENTION);
        position.settle(now);
        assert_eq!(position.at, now + RETENTION);
    }

    #[test]
    fn of_a_leap_only_so_many_numbers_are_waited_for() {
        let (mut position, now) = position();
        assert!(position.takes(1_000_000, now));
        assert_eq!(position.missing.len(), 1_000);
        assert_eq!(position.known(), 1_000_000 - MOST_MISSING - 1);
    }
}
