//! A load generator with a fixed number of callers or a fixed rate of calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until};

use crate::client::{CallToolParams, Fault, McpClient};
use crate::report::{Report, Tally};

/// Maximum number of unanswered calls in an open loop. Further calls are not sent and count as faults.
const MOST_WAITING: usize = 10_000;

/// The pace of calls.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// A fixed number of callers, each of which waits for its response.
    Closed {
        /// The number of callers, at least one.
        callers: usize,
    },
    /// A fixed rate of calls, independent of the responses. Latency is measured from the time at which a call was due.
    Open {
        /// The number of calls per second, more than zero.
        per_second: f64,
    },
}

/// The load to generate.
#[derive(Debug, Clone)]
pub struct Load {
    /// The tools, which are called in turn. There must be at least one.
    pub tools: Vec<CallToolParams>,
    /// The pace of calls.
    pub pace: Pace,
    /// The time before calls are counted.
    pub warm_up: Duration,
    /// The time for which calls are counted.
    pub duration: Duration,
}

/// Generates the load, and returns a report. Calls that are in progress at the end are waited for and counted.
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
        Pace::Closed { callers } => run_closed_loop(&calls, callers, until).await,
        Pace::Open { per_second } => run_open_loop(&calls, per_second, began, until).await?,
    };
    Ok(tally.report(load.duration))
}

/// The state that all callers share.
struct Calls {
    client: McpClient,
    tools: Vec<CallToolParams>,
    next: AtomicU64,
    /// The time from which calls are counted.
    from: Instant,
    /// An empty tally, which each caller clones.
    empty: Tally,
}

impl Calls {
    /// Makes the next call, which was due at `due`, and counts it.
    async fn make_call(&self, due: Instant, tally: &mut Tally) {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let turn = usize::try_from(id).unwrap_or_default() % self.tools.len();
        let outcome = self.client.call(id, &self.tools[turn]).await;
        if due >= self.from {
            tally.count(due.elapsed(), &outcome);
        }
    }
}

async fn run_closed_loop(calls: &Arc<Calls>, callers: usize, until: Instant) -> Tally {
    let mut running = JoinSet::new();
    for _ in 0..callers.max(1) {
        let calls = Arc::clone(calls);
        running.spawn(async move {
            let mut tally = calls.empty.clone();
            while Instant::now() < until {
                calls.make_call(Instant::now(), &mut tally).await;
            }
            tally
        });
    }
    together(calls.empty.clone(), running).await
}

async fn run_open_loop(
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
    // Late calls are made at once, because they were due.
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
            if due >= calls.from {
                tally.count(Duration::ZERO, &Err(Fault::Transport("too many wait")));
            }
            continue;
        }
        let calls = Arc::clone(calls);
        running.spawn(async move {
            let mut tally = calls.empty.clone();
            calls.make_call(due, &mut tally).await;
            tally
        });
    }
    Ok(together(tally, running).await)
}

/// Returns the sum of `all` and of the tallies of the tasks that are still running.
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
