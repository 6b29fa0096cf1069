//! The feed of conversation changes: every watcher receives the changes of all replicas.
//!
//! ```text
//!   add, clear, erase … ──▶ a row of `change`, in the same transaction
//!                               │ read at once when it was made here, within a second in any case
//!                               ▼
//!                          ChangeFeed ──▶ a stream per gateway
//! ```
//!
//! The store is read once per interval, however many watchers there are.

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

/// Interval between two readings of the log for changes by other replicas.
const POLL: Duration = Duration::from_secs(1);

/// Pause between two readings, so that several changes by this replica are read together.
const PAUSE: Duration = Duration::from_millis(50);

/// Time after which a number that was assigned is either in the log or never will be, because no operation takes longer
/// than [`LIMIT`].
const SETTLED: Duration = LIMIT.saturating_mul(2);

/// Maximum number of missing numbers that are tracked at once.
const MOST_MISSING: i64 = 1_000;

/// Minimum time for which a change stays in the log.
const RETENTION: Duration = Duration::from_mins(1);

/// Time without a reading after which the feed starts over, because changes may have been deleted from the log unread.
const TOO_LONG: Duration = Duration::from_secs(30);

/// Number of events that a slow watcher may lag behind before it misses some and receives an `unseen` event instead.
const BEHIND: usize = 64;

/// Maximum number of concurrent watchers. Every gateway needs one.
const MOST_WATCHERS: usize = 256;

/// The feed of changes. It follows the log until it is dropped.
pub(crate) struct ChangeFeed {
    store: MemoryStore,
    watchers: broadcast::Sender<Arc<ConversationChanges>>,
    state: Mutex<FeedState>,
}

/// The state between two readings of the log.
#[derive(Default)]
struct FeedState {
    /// The position in the log, or `None` until the log was read once.
    position: Option<FeedPosition>,
    failed: bool,
}

/// The position up to which the log was read.
struct FeedPosition {
    last: i64,
    /// Numbers up to `last` that were not in the log, and when each was first found missing.
    missing: BTreeMap<i64, Instant>,
    /// The time of the last reading.
    at: Instant,
    /// The last number at an earlier time, and that time. Changes up to this number are deleted after [`RETENTION`].
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

    /// Returns the number up to which every change was read.
    fn last_contiguous(&self) -> i64 {
        let first_missing = self.missing.keys().next();
        first_missing.map_or(self.last, |missing| missing - 1)
    }

    /// Records that the change `number` was read, and returns whether it is new.
    fn takes(&mut self, number: i64, now: Instant) -> bool {
        if number <= self.last {
            return self.missing.remove(&number).is_some();
        }
        let first = (self.last + 1).max(number - MOST_MISSING);
        self.missing.extend((first..number).map(|one| (one, now)));
        self.last = number;
        true
    }

    /// Stops waiting for numbers that were first found missing at least [`SETTLED`] before `began`.
    fn settle(&mut self, began: Instant) {
        self.missing
            .retain(|_, since| began.duration_since(*since) < SETTLED);
        // A reading that began earlier may end later.
        self.at = self.at.max(began);
    }
}

impl ChangeFeed {
    /// Starts to follow the log of `store`. If the store is unavailable, the feed retries until it is available.
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

    /// Returns the changes from now on. The first event is `unseen`, because the watcher may have missed earlier
    /// changes.
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
                warn!(store = %self.store, cause, "the changes of conversations cannot be read now");
            }
            Ok(()) if state.failed => {
                info!(store = %self.store, "the changes of conversations are readable again");
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
        // After a gap that long, changes may have been deleted from the log unread, so the feed starts over.
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

    /// Skips the changes that are in the log already and publishes an `unseen` event.
    async fn begin(&self, now: Instant) -> Result<FeedPosition, Error> {
        let last = self.store.latest_change().await?;
        // Transactions in progress have numbers near the last one.
        let mut position = FeedPosition::new((last - MOST_MISSING).max(0), now);
        self.read_on(&mut position, now, |_| {}).await?;
        self.publish(ConversationChanges {
            unseen: true,
            changes: Vec::new(),
        });
        Ok(position)
    }

    /// Reads the log to its end, page by page.
    async fn read_on(
        &self,
        position: &mut FeedPosition,
        now: Instant,
        publish: impl Fn(ConversationChanges),
    ) -> Result<(), Error> {
        let mut after = position.last_contiguous();
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
        // The send fails if there are no watchers, which is not an error.
        let _ = self.watchers.send(Arc::new(changes));
    }
}

async fn follow(change_feed: Weak<ChangeFeed>, change_signal: Arc<Notify>) {
    loop {
        // Changes by other replicas do not notify the signal of this replica.
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
        assert_eq!(position.last_contiguous(), 13);
    }

    #[test]
    fn a_number_that_comes_late_is_waited_for_until_it_cannot_come_any_more() {
        let (mut position, now) = position();
        assert!(position.takes(14, now));
        assert_eq!(position.last_contiguous(), 10);
        assert!(position.takes(12, now));
        position.settle(now + SETTLED / 2);
        assert_eq!(position.last_contiguous(), 10);
        assert!(position.takes(11, now));
        assert_eq!(position.last_contiguous(), 12);
        position.settle(now + SETTLED);
        assert_eq!(position.last_contiguous(), 14);
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
        assert_eq!(position.last_contiguous(), 1_000_000 - MOST_MISSING - 1);
    }
}
