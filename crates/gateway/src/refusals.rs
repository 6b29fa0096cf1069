//! Requests that never became a call, counted and recorded once a second.
//!
//! A durable record for each would let a flood of bad tokens buy unbounded disk flushes; no record at all
//! would hide the flood.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use metrics::counter;
use wardgate_domain::{Ambient, Event, RefusalCount, Refusals as Window};
use wardgate_telemetry::names;

use crate::trail::Trail;

/// Kinds counted apart in one window; what comes on top is counted together.
const KINDS: usize = 256;

/// Reason, address, subject.
type Kind = (&'static str, String, String);

/// Counts refused requests.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    counts: Mutex<BTreeMap<Kind, u64>>,
}

impl Refusals {
    /// Counts one. `subject` is empty when the token itself was refused.
    pub(crate) fn count(&self, reason: &'static str, client_ip: &str, subject: &str) {
        counter!(names::REFUSED_REQUESTS, "reason" => reason).increment(1);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let kind = (reason, client_ip.to_owned(), subject.to_owned());
        let full = counts.len() >= KINDS && !counts.contains_key(&kind);
        let kind = if full {
            (reason, String::new(), String::new())
        } else {
            kind
        };
        *counts.entry(kind).or_default() += 1;
    }

    /// Records what was counted since the last time. What cannot be recorded now stays counted.
    pub(crate) async fn flush(&self, trail: &Trail, ambient: &Ambient) {
        let counts =
            std::mem::take(&mut *self.counts.lock().unwrap_or_else(PoisonError::into_inner));
        if counts.is_empty() {
            return;
        }
        let window = Window {
            window_start: ambient.now().minus(INTERVAL),
            counts: counts
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
            let mut current = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
            for (kind, count) in counts {
                *current.entry(kind).or_default() += count;
            }
        }
    }
}

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
