//! Many calls: as many at a time, or as many a second.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until};

use crate::client::{CallToolParams, Fault, McpClient};
use crate::report::{Report, Tally};

/// Calls of an open loop that may wait for their answers; one more is a fault of its own and not sent.
const MOST_WAITING: usize = 10_000;

/// How calls follow each other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// So many callers, each of which waits for its answer.
    Closed {
        /// At least one.
        callers: usize,
    },
    /// So many calls a second, whatever comes back. Latency counts from when a call was due.
    Open {
        /// More than none.
        per_second: f64,
    },
}

/// What to do.
#[derive(Debug, Clone)]
pub struct Load {
    /// Called in turn; at least one.
    pub tools: Vec<CallToolParams>,
    /// How calls follow each other.
    pub pace: Pace,
    /// How long calls are made that nobody counts.
    pub warm_up: Duration,
    /// How long calls are counted.
    pub duration: Duration,
}

/// Makes the calls, and says what came of them. Calls under way at the end are waited for and counted.
pub async fn run(client: &McpClient, load: &Load) -> Result<Report, Fault> {
    if load.tools.is_empty() {
        return Err(Fault::Settings("there is no tool to call".to_owned()));
    }
    let began = Instant::now();
    let from = began + load.warm_up;
    let until = from + load.duration;
    let calls = Arc::new(Calls {
        client: client.clone(),
        tools: load.tools.clone(),
        next: AtomicU64::new(0),
        from,
        empty: Tally::empty()?,
    });
    let tally = match load.pace {
        Pace::Closed { callers } => closed(&calls, callers, until).await,
        Pace::Open { per_second } => open(&calls, per_second, began, until).await?,
    };
    Ok(tally.report(load.duration))
}

/// What all callers share.
struct Calls {
    client: McpClient,
    tools: Vec<CallToolParams>,
    next: AtomicU64,
    /// When counting begins.
    from: Instant,
    /// What each caller counts from.
    empty: Tally,
}

impl Calls {
    /// Makes the next call, which was due at `due`, and counts it.
    async fn make(&self, due: Instant, tally: &mut Tally) {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let turn = usize::try_from(id).unwrap_or_default() % self.tools.len();
        let outcome = self.client.call(id, &self.tools[turn]).await;
        if due >= self.from {
            tally.count(due.elapsed(), &outcome);
        }
    }
}

async fn closed(calls: &Arc<Calls>, callers: usize, until: Instant) -> Tally {
    let mut running = JoinSet::new();
    for _ in 0..callers.max(1) {
        let calls = Arc::clone(calls);
        running.spawn(async move {
            let mut tally = calls.empty.clone();
            while Instant::now() < until {
                calls.make(Instant::now(), &mut tally).await;
            }
            tally
        });
    }
    together(calls.empty.clone(), running).await
}

async fn open(
    calls: &Arc<Calls>,
    per_second: f64,
    began: Instant,
    until: Instant,
) -> Result<Tally, Fault> {
    let every = Duration::try_from_secs_f64(1.0 / per_second)
        .ok()
        .filter(|every| !every.is_zero());
    let every = every
        .ok_or_else(|| Fault::Settings("the rate is no number of calls a second".to_owned()))?;
    let mut due = interval_at(began, every);
    // Late ones at once: they were due.
    due.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut running = JoinSet::new();
    let mut tally = calls.empty.clone();
    loop {
        let due = tokio::select! {
            due = due.tick() => due,
            () = sleep_until(until) => break,
        };
        while let Some(Ok(one)) = running.try_join_next() {
            tally.add(&one);
        }
        if running.len() >= MOST_WAITING {
            tally.count(Duration::ZERO, &Err(Fault::Transport("too many wait")));
            continue;
        }
        let calls = Arc::clone(calls);
        running.spawn(async move {
            let mut tally = calls.empty.clone();
            calls.make(due, &mut tally).await;
            tally
        });
    }
    Ok(together(tally, running).await)
}

/// `all`, and what is still counted.
async fn together(mut all: Tally, mut running: JoinSet<Tally>) -> Tally {
    while let Some(one) = running.join_next().await {
        if let Ok(one) = one {
            all.add(&one);
        }
    }
    all
}

#[cfg(test)]
mod tests;
