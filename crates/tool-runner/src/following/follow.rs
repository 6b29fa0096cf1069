//! The background tasks that request the lists.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;

use super::{Roster, ServerListing};
use wardgate_mcp_client::Upstream;

/// Interval between two requests to a server that announces no changes.
const REFRESH: Duration = Duration::from_mins(1);

/// Maximum time that a server may take for its whole list.
const PATIENCE: Duration = Duration::from_secs(30);

/// Minimum pause between an answer and the next request.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Time without requests after which the pause is reset to the minimum.
const QUIET: Duration = Duration::from_secs(2);

/// The servers that are followed, each by its own task.
pub(crate) struct Followers<L: ServerListing> {
    roster: Roster<L::List>,
    running: Mutex<BTreeMap<String, Follower>>,
}

struct Follower {
    upstream: Arc<Upstream>,
    _task: AbortOnDropHandle<()>,
}

impl<L: ServerListing> Followers<L> {
    pub(crate) fn new(roster: Roster<L::List>) -> Self {
        Self {
            roster,
            running: Mutex::default(),
        }
    }

    /// Follows exactly these servers. A server that is already followed keeps its task.
    pub(crate) fn follow(&self, upstreams: &BTreeMap<String, Arc<Upstream>>) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.retain(|source, follower| {
            let goes_on = upstreams
                .get(source)
                .is_some_and(|upstream| Arc::ptr_eq(upstream, &follower.upstream));
            if !goes_on {
                self.roster.forget(source);
            }
            goes_on
        });
        for (source, upstream) in upstreams {
            running.entry(source.clone()).or_insert_with(|| {
                let roster = self.roster.clone();
                let task = follow::<L>(source.clone(), Arc::clone(upstream), roster);
                Follower {
                    _task: AbortOnDropHandle::new(tokio::spawn(task)),
                    upstream: Arc::clone(upstream),
                }
            });
        }
    }
}

async fn follow<L: ServerListing>(
    source: String,
    upstream: Arc<Upstream>,
    roster: Roster<L::List>,
) {
    let mut changes = L::changes(&upstream);
    let mut health = upstream.health();
    let mut failures = 0;
    let mut pause = Pause::default();
    loop {
        changes.mark_unchanged();
        if let Ok(list) = L::fetch(&upstream, Instant::now() + PATIENCE).await {
            failures = 0;
            roster.record_list(&source, list);
        } else {
            // The reason is not logged here, because the client of the server logs it.
            failures += 1;
            roster.record_failure(&source);
        }
        health.mark_unchanged();
        let answered = Instant::now();
        sleep(pause.0).await;
        tokio::select! {
            () = sleep(wait(failures)) => {}
            _ = changes.changed() => {}
            _ = health.changed() => {}
        }
        pause = pause.before_the_next(answered.elapsed());
    }
}

/// The pause before the next request, which grows with each request that follows soon after an answer: a single change
/// is looked at immediately, and a server that announces changes continuously is not asked continuously.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pause(Duration);

impl Default for Pause {
    fn default() -> Self {
        Self(SHORTEST_PAUSE)
    }
}

impl Pause {
    fn before_the_next(self, since_answer: Duration) -> Self {
        if since_answer < QUIET {
            Self(LONGEST_PAUSE.min(self.0 * 2))
        } else {
            Self::default()
        }
    }
}

/// Returns the time to wait after `failures` failures in a row. The time grows with each failure, up to the interval
/// for a working server.
fn wait(failures: u32) -> Duration {
    match failures {
        0 => REFRESH,
        _ => REFRESH.min(LONGEST_PAUSE * 2_u32.saturating_pow(failures)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_looked_at_at_once_and_changes_without_end_once_a_second() {
        let mut pause = Pause::default();
        assert!(pause.0 < Duration::from_millis(100));
        for _ in 0..10 {
            pause = pause.before_the_next(pause.0);
        }
        assert_eq!(pause.0, Duration::from_secs(1));
        let asks_in_a_row = pause.before_the_next(pause.0);
        assert_eq!(asks_in_a_row, pause);
        assert_eq!(pause.before_the_next(QUIET), Pause::default());
    }
}
