//! The tasks that ask.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;

use super::{Listing, Roster};
use crate::mcp::Upstream;

/// How often a server is asked that says nothing.
const REFRESH: Duration = Duration::from_mins(1);

/// How long a server may take for its whole list.
const PATIENCE: Duration = Duration::from_secs(30);

/// The shortest pause: a server that announces changes without end is not asked without end.
const PAUSE: Duration = Duration::from_secs(1);

/// The servers that are followed.
pub(crate) struct Followers<L: Listing> {
    roster: Roster<L::List>,
    running: Mutex<BTreeMap<String, Follower>>,
}

struct Follower {
    upstream: Arc<Upstream>,
    _task: AbortOnDropHandle<()>,
}

impl<L: Listing> Followers<L> {
    pub(crate) fn new(roster: Roster<L::List>) -> Self {
        Self {
            roster,
            running: Mutex::default(),
        }
    }

    /// Follows these and no others; one that is followed already goes on.
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

async fn follow<L: Listing>(source: String, upstream: Arc<Upstream>, roster: Roster<L::List>) {
    let mut changes = L::changes(&upstream);
    let mut health = upstream.health();
    let mut failures = 0;
    loop {
        changes.mark_unchanged();
        if let Ok(list) = L::ask(&upstream, Instant::now() + PATIENCE).await {
            failures = 0;
            roster.answered(&source, list);
        } else {
            // The client logs why a server is down.
            failures += 1;
            roster.failed(&source);
        }
        health.mark_unchanged();
        sleep(PAUSE).await;
        tokio::select! {
            () = sleep(wait(failures)) => {}
            _ = changes.changed() => {}
            _ = health.changed() => {}
        }
    }
}

/// The wait grows with every failure in a row, up to that between two answers.
fn wait(failures: u32) -> Duration {
    match failures {
        0 => REFRESH,
        _ => REFRESH.min(PAUSE * 2_u32.saturating_pow(failures)),
    }
}
