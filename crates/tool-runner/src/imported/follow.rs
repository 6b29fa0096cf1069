//! Asks each server for its tools: at the start, when it says that they changed, when a call finds it gone or
//! back, and every minute.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;

use super::roster::Roster;
use crate::mcp::Upstream;

/// How often a server is asked that says nothing.
const REFRESH: Duration = Duration::from_mins(1);

/// How long a server may take for its whole list.
const PATIENCE: Duration = Duration::from_secs(30);

/// The shortest pause: a server that announces changes without end is not asked without end.
const PAUSE: Duration = Duration::from_secs(1);

/// The servers that are followed.
pub(super) struct Followers {
    roster: Roster,
    running: Mutex<BTreeMap<String, Follower>>,
}

struct Follower {
    upstream: Arc<Upstream>,
    _task: AbortOnDropHandle<()>,
}

impl Followers {
    pub(super) fn new(roster: Roster) -> Self {
        Self {
            roster,
            running: Mutex::default(),
        }
    }

    /// Follows these and no others; one that is followed already goes on.
    pub(super) fn follow(&self, upstreams: &BTreeMap<String, Arc<Upstream>>) {
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
                let task = follow(source.clone(), Arc::clone(upstream), self.roster.clone());
                Follower {
                    _task: AbortOnDropHandle::new(tokio::spawn(task)),
                    upstream: Arc::clone(upstream),
                }
            });
        }
    }
}

async fn follow(source: String, upstream: Arc<Upstream>, roster: Roster) {
    let mut changes = upstream.tools_changed();
    let mut health = upstream.health();
    let mut failures = 0;
    loop {
        changes.mark_unchanged();
        if let Ok(tools) = upstream.list_tools(Instant::now() + PATIENCE).await {
            failures = 0;
            let list = tools.iter().map(|tool| tool.raw.get().to_owned());
            roster.answered(&source, list.collect());
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
