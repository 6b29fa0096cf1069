//! A circuit breaker: keeps calls away from a failing source, and probes the source with one call at a time until it
//! answers.
//!
//! ```text
//!             N failures in a row                  probe_after
//!    closed ───────────────────────▶ open ──────────────────────▶ half-open: one call probes
//!      ▲                              ▲ └◀── the probe's caller left ──┘ │ │
//!      │                              └───────────── it failed ──────────┘ │
//!      └───────────────────────────────────────────── it answered ─────────┘
//! ```

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use metrics::{counter, gauge};
use tokio::time::Instant;
use tracing::{info, warn};
use wardgate_domain::{Ambient, Digest, Timestamp};
use wardgate_telemetry::names;

use super::jitter;

/// The settings of `breaker` of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BreakerSettings {
    /// Number of consecutive failures that open the breaker, at least one. The timeouts of a single caller count for
    /// half of them at most.
    pub failures: u32,
    /// Maximum time between the opening of the breaker and the next probe.
    pub probe_after: Duration,
}

impl Default for BreakerSettings {
    fn default() -> Self {
        Self {
            failures: 7,
            probe_after: Duration::from_secs(5),
        }
    }
}

/// The state of a breaker, as shown to operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerState {
    /// Calls are admitted.
    Closed,
    /// No calls are admitted.
    Open {
        /// The time of the failure that opened the breaker.
        since: Timestamp,
    },
    /// One call is probing the source.
    HalfOpen {
        /// The time of the failure that opened the breaker.
        since: Timestamp,
    },
}

/// The breaker is open. The next call may be admitted after `retry_after`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OpenCircuit {
    pub(super) retry_after: Duration,
}

/// The reason why an attempt failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailureCause {
    /// The source could not be reached, broke the connection, or reported that it cannot work.
    Source,
    /// The source did not answer in time. The reason may be the work that this caller requests, and the requests of one
    /// caller should not make a healthy source unavailable to everybody.
    Timeout { caller: Digest },
}

impl FailureCause {
    /// Returns the cause for a timeout, which belongs to `caller` if the source was used for one.
    pub(super) fn timeout(caller: Option<Digest>) -> Self {
        caller.map_or(Self::Source, |caller| Self::Timeout { caller })
    }
}

/// The circuit breaker of one source.
#[derive(Debug)]
pub(super) struct Breaker {
    source: String,
    settings: BreakerSettings,
    ambient: Ambient,
    state: Mutex<CircuitState>,
}

#[derive(Debug)]
enum CircuitState {
    Closed(FailureCount),
    /// The next call after `wait` is a probe.
    Open {
        since: Timestamp,
        waits_from: Instant,
        wait: Duration,
    },
    /// If a probe hangs for `probe_after`, the next call is another probe, because the source may be back in the
    /// meantime.
    HalfOpen {
        since: Timestamp,
        probes_from: Instant,
    },
}

/// The number of failures since the last success.
#[derive(Debug, Default)]
struct FailureCount {
    counted: u32,
    /// The counted timeouts by caller. Each entry stands for at least one counted failure, so there are never more
    /// entries than the settings allow failures.
    timeouts: HashMap<Digest, u32>,
}

impl FailureCount {
    /// Counts a failure, unless it is a timeout of a caller whose share is used up.
    fn add(&mut self, cause: FailureCause, threshold: u32) {
        if let FailureCause::Timeout { caller } = cause {
            let of_caller = self.timeouts.entry(caller).or_default();
            if *of_caller >= threshold.div_ceil(2) {
                return;
            }
            *of_caller += 1;
        }
        self.counted = self.counted.saturating_add(1);
    }
}

impl Breaker {
    pub(super) fn new(source: String, settings: BreakerSettings, ambient: Ambient) -> Self {
        gauge!(names::BREAKER_OPEN, "source" => source.clone()).set(0);
        Self {
            source,
            settings,
            ambient,
            state: Mutex::new(CircuitState::Closed(FailureCount::default())),
        }
    }

    pub(super) fn state(&self) -> BreakerState {
        match *self.lock() {
            CircuitState::Closed(_) => BreakerState::Closed,
            CircuitState::Open { since, .. } => BreakerState::Open { since },
            CircuitState::HalfOpen { since, .. } => BreakerState::HalfOpen { since },
        }
    }

    /// Admits one attempt, or refuses it while the breaker is open.
    pub(super) fn admit(&self) -> Result<Trial<'_>, OpenCircuit> {
        let mut state = self.lock();
        let (since, retry_after) = match *state {
            CircuitState::Closed(_) => return Ok(self.trial(false)),
            CircuitState::Open {
                since,
                waits_from,
                wait,
            } => (since, wait.saturating_sub(waits_from.elapsed())),
            CircuitState::HalfOpen { since, probes_from } => {
                let place = self.settings.probe_after;
                (since, place.saturating_sub(probes_from.elapsed()))
            }
        };
        if !retry_after.is_zero() {
            return Err(OpenCircuit { retry_after });
        }
        *state = CircuitState::HalfOpen {
            since,
            probes_from: Instant::now(),
        };
        Ok(self.trial(true))
    }

    fn trial(&self, is_probe: bool) -> Trial<'_> {
        Trial {
            breaker: self,
            is_probe,
        }
    }

    fn record_success(&self, is_probe: bool) {
        let mut state = self.lock();
        match &mut *state {
            CircuitState::Closed(failures) => *failures = FailureCount::default(),
            CircuitState::Open { .. } | CircuitState::HalfOpen { .. } if is_probe => {
                *state = CircuitState::Closed(FailureCount::default());
                gauge!(names::BREAKER_OPEN, "source" => self.source.clone()).set(0);
                info!("the source `{}` answers again", self.source);
            }
            // The response belongs to a call that began before the breaker opened.
            CircuitState::Open { .. } | CircuitState::HalfOpen { .. } => {}
        }
    }

    fn record_failure(&self, is_probe: bool, cause: FailureCause) {
        let mut state = self.lock();
        match &mut *state {
            CircuitState::Closed(failures) => {
                failures.add(cause, self.settings.failures);
                if failures.counted >= self.settings.failures {
                    *state = self.open(self.ambient.now());
                    counter!(names::BREAKER_OPENED, "source" => self.source.clone()).increment(1);
                    gauge!(names::BREAKER_OPEN, "source" => self.source.clone()).set(1);
                    warn!(
                        "the source `{}` failed {} times in succession; until it answers, one call is sent every {:?}",
                        self.source, self.settings.failures, self.settings.probe_after
                    );
                }
            }
            CircuitState::HalfOpen { since, .. } if is_probe => *state = self.open(*since),
            CircuitState::Open { .. } | CircuitState::HalfOpen { .. } => {}
        }
    }

    /// Lets the next call probe at once, because the caller of the probe went away.
    fn probe_left(&self) {
        let mut state = self.lock();
        if let CircuitState::HalfOpen { since, .. } = *state {
            *state = CircuitState::Open {
                since,
                waits_from: Instant::now(),
                wait: Duration::ZERO,
            };
        }
    }

    /// Returns the open state. The last fifth of its wait is random, so that replicas do not probe at the same time.
    fn open(&self, since: Timestamp) -> CircuitState {
        let fifth = self.settings.probe_after / 5;
        CircuitState::Open {
            since,
            waits_from: Instant::now(),
            wait: fifth * 4 + jitter::up_to(fifth, &self.ambient),
        }
    }

    fn lock(&self) -> MutexGuard<'_, CircuitState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Breaker {
    /// Resets the metric, because a source that is no longer configured is not down.
    fn drop(&mut self) {
        gauge!(names::BREAKER_OPEN, "source" => self.source.clone()).set(0);
    }
}

/// An admitted attempt. If it is dropped without a result, it does not count.
#[derive(Debug)]
#[must_use]
pub(super) struct Trial<'a> {
    breaker: &'a Breaker,
    is_probe: bool,
}

impl Trial<'_> {
    /// Records that the source did its work, whether or not the response is useful for the call.
    pub(super) fn record_success(mut self) {
        self.breaker.record_success(self.is_probe);
        self.is_probe = false;
    }

    /// Records that the source did not do its work.
    pub(super) fn record_failure(mut self, cause: FailureCause) {
        self.breaker.record_failure(self.is_probe, cause);
        self.is_probe = false;
    }
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        if self.is_probe {
            self.breaker.probe_left();
        }
    }
}

#[cfg(test)]
mod tests;
