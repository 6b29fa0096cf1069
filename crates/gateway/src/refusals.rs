//! Requests that never became a call, counted and recorded once a second.
//!
//! A durable record for each would let a flood of bad tokens buy unbounded disk flushes; no record at all
//! would hide the flood.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use metrics::counter;
use wardgate_domain::{Ambient, Event, RefusalCount, Refusals as Window, Timestamp};
use wardgate_telemetry::names;

use crate::trail::Trail;

/// Kinds counted apart in one window; what comes on top is counted together.
const KINDS: usize = 256;

/// Reason, address, subject.
type Kind = (&'static str, String, String);

/// Counts refused requests.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    by_kind: BTreeMap<Kind, u64>,
    /// Start of the first window that could not be recorded; none when all were.
    since: Option<Timestamp>,
}

impl Counts {
    fn add(&mut self, kind: Kind, count: u64) {
        let full = self.by_kind.len() >= KINDS && !self.by_kind.contains_key(&kind);
        let kind = if full {
            (kind.0, String::new(), String::new())
        } else {
            kind
        };
        *self.by_kind.entry(kind).or_default() += count;
    }
}

impl Refusals {
    /// Counts one. `subject` is empty when the token itself was refused.
    pub(crate) fn count(&self, reason: &'static str, client_ip: &str, subject: &str) {
        counter!(names::REFUSED_REQUESTS, "reason" => reason).increment(1);
        let kind = (reason, client_ip.to_owned(), subject.to_owned());
        self.counts().add(kind, 1);
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records what was counted since the last time. What cannot be recorded now stays counted.
    pub(crate) async fn flush(&self, trail: &Trail, ambient: &Ambient) {
        let counts = std::mem::take(&mut *self.counts());
        if counts.by_kind.is_empty() {
            return;
        }
        let window_start = counts
            .since
            .unwrap_or_else(|| ambient.now().minus(INTERVAL));
        let mut rest = counts.by_kind.into_iter().peekable();
        while rest.peek().is_some() {
            let some: Vec<_> = rest.by_ref().take(KINDS_A_RECORD).collect();
            let window = Window {
                window_start,
                counts: some
                    .iter()
                    .map(|((reason, client_ip, subject), count)| RefusalCount {
                        reason: (*reason).to_owned(),
                        client_ip: client_ip.clone(),
                        subject: subject.clone(),
                        count: *count,
                    })
                    .collect(),
            };
            if trail.append(Event::Refusals(window)).await.is_err() {
                let mut current = self.counts();
                current.since = Some(window_start);
                for (kind, count) in some.into_iter().chain(rest) {
                    current.add(kind, count);
                }
                return;
            }
        }
    }
}

/// Kinds in one record; with the longest subjects they still fit its 65,535 bytes.
const KINDS_A_RECORD: usize = 64;

/// Length of a window.
const INTERVAL: Duration = Duration::from_secs(1);

/// Records the counts every second, for as long as the gateway runs.
pub(crate) async fn record(refusals: Arc<Refusals>, trail: Arc<Trail>, ambient: Ambient) {
    let mut ticks = tokio::time::interval(INTERVAL);
    loop {
        ticks.tick().await;
        refusals.flush(&trail, &ambient).await;
    }
}
