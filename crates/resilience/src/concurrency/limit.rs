//! The adaptive concurrency limit: it falls when calls take longer than in calm, and rises otherwise.
//!
//! ```text
//!   duration of a call ÷ duration of its kind in calm = strain
//!
//!   strained, and at least half full      ─▶ limit × tolerance ÷ strain, reduced by half per window at most
//!   not strained, and at least half full  ─▶ limit + √limit ÷ 2, unless all processors are busy
//!   less than half full                   ─▶ back towards the initial limit
//! ```
//!
//! Strain alone reduces the limit to `min` at most, because calls may wait for something that is done for many of them
//! at once, such as writing the audit record. If the processors are busy too, more concurrent calls only wait for each
//! other, and the limit falls to the number of processors.
//!
//! The algorithm follows the gradient of Netflix's concurrency-limits and Envoy's adaptive concurrency filter. Calm is
//! when the calls in progress are at most an eighth of the limit and at most as many as there are processors. If calm
//! does not occur by itself while calls seem strained, or if no baseline is known yet, the limit is lowered to that
//! number for a moment. This prevents the baseline from rising with the load.
//!
//! Each kind of call is compared with its own baseline, and strain is a geometric mean. So neither a few slow calls nor
//! another mix of tools look like overload.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::concurrency::config::Config;
use crate::concurrency::processors::Processors;

/// Minimum duration of a window over which strain is measured.
const WINDOW: Duration = Duration::from_millis(100);
/// Minimum number of calls in a window.
const SAMPLES: u32 = 8;
/// Maximum duration of a window, after which it ends even with fewer calls.
const LONGEST_WINDOW: Duration = Duration::from_secs(1);
/// Smallest factor by which one window reduces the limit.
const STEEPEST: f64 = 0.5;
/// Time without calm after which calm is created.
const CALM_EVERY: Duration = Duration::from_secs(15);
/// The same if no baseline is known yet, or if the last calm period showed that the baseline was too high.
const CALM_SOON: Duration = Duration::from_millis(500);
/// Maximum of that time. It doubles each time a calm period measured no call.
const CALM_SELDOM: Duration = Duration::from_secs(240);
/// Duration of a created calm period, after the calls in progress have ended.
const CALM_LASTS: Duration = Duration::from_millis(100);
/// Maximum time to wait for the calls in progress to end.
const UNTIL_CALM: Duration = Duration::from_millis(400);
/// If the calls of a calm period take less than this fraction of the baseline, the baseline was too high.
const LOWER: f64 = 0.8;
/// Maximum factor to the normal duration with which a single call counts.
const MOST: f64 = 8.0;
/// Maximum number of kinds of calls that are distinguished.
const KINDS: usize = 1_024;
/// Factor by which a limit below `min` rises in a window in which the processors were not busy.
const BACK_TO_MIN: f64 = 1.5;
/// Weight of one call in the baseline, once at least as many calls as its inverse were seen.
const LEARNING: f64 = 0.05;

/// The duration of one kind of call in calm, as a mean of logarithms.
#[derive(Debug, Default)]
struct Baseline {
    ln: f64,
    samples: f64,
}

impl Baseline {
    fn add_sample(&mut self, ln: f64) {
        self.samples += 1.0;
        self.ln += (ln - self.ln) * (1.0 / self.samples).max(LEARNING);
    }
}

/// The factor to the normal duration over one window, as a sum of logarithms.
#[derive(Debug, Default)]
struct Strain {
    ln: f64,
    samples: u32,
}

impl Strain {
    fn add(&mut self, ln: f64) {
        self.ln += ln.clamp(-MOST.ln(), MOST.ln());
        self.samples += 1;
    }

    fn ratio(&self) -> f64 {
        if self.samples == 0 {
            return 1.0;
        }
        (self.ln / f64::from(self.samples)).exp()
    }
}

/// The origin of a measured duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DurationSource<'a> {
    /// A call of this kind.
    Call(&'a str),
    /// A service for which every call waits, whatever its kind, so that its capacity limits this service too.
    Neighbour,
}

#[derive(Debug)]
pub(crate) struct Limit {
    config: Config,
    processors: Processors,
    current: f64,
    kinds: HashMap<Arc<str>, Baseline>,
    neighbour: Baseline,
    calls_strain: Strain,
    neighbour_strain: Strain,
    window_began: Instant,
    /// The longest duration in the window.
    slowest: Duration,
    /// The maximum number of concurrent calls in the window.
    peak: usize,
    /// The last time of calm, whether it occurred or was created.
    last_calm: Instant,
    calm_every: Duration,
    /// The number of durations that were measured in calm.
    in_calm: f64,
    making_calm: Option<CalmPeriod>,
}

/// A calm period that is being created.
#[derive(Debug)]
struct CalmPeriod {
    until: Instant,
    found: Strain,
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "limits are small and positive"
)]
impl Limit {
    pub(crate) fn new(config: Config, processors: Processors, now: Instant) -> Self {
        Self {
            config,
            processors,
            current: config.initial as f64,
            kinds: HashMap::new(),
            neighbour: Baseline::default(),
            calls_strain: Strain::default(),
            neighbour_strain: Strain::default(),
            window_began: now,
            slowest: Duration::ZERO,
            peak: 0,
            last_calm: now,
            calm_every: CALM_SOON,
            in_calm: 0.0,
            making_calm: None,
        }
    }

    /// Returns the current limit.
    pub(crate) fn current(&self, now: Instant) -> usize {
        match &self.making_calm {
            // The calm period ends in time even if no call ends in the meantime.
            Some(calm) if now < calm.until => self.calm(),
            Some(_) | None => self.lasting_limit(),
        }
    }

    /// Returns the limit without the effect of a calm period.
    pub(crate) fn lasting_limit(&self) -> usize {
        self.current as usize
    }

    /// Returns the maximum number of concurrent calls that counts as calm.
    fn calm(&self) -> usize {
        (self.current as usize / 8).clamp(1, self.processors.count())
    }

    /// Returns half of the limit. A window with fewer concurrent calls says nothing about the limit.
    fn half(&self) -> usize {
        (self.current as usize).div_ceil(2)
    }

    /// Records that a call has to wait in addition to the `under_way` ones. This also ends a window if no call ends for
    /// a long time.
    pub(crate) fn has_to_wait(&mut self, now: Instant, under_way: usize) {
        self.peak = self.peak.max(under_way);
        self.turn_window(now);
    }

    /// Records that one of `under_way` calls begins or ends. Returns whether this is calm.
    pub(crate) fn is_calm(&mut self, now: Instant, under_way: usize) -> bool {
        self.peak = self.peak.max(under_way);
        let is_calm = under_way <= self.calm();
        if is_calm {
            self.last_calm = now;
        }
        is_calm
    }

    /// Records a duration.
    pub(crate) fn record_duration(
        &mut self,
        now: Instant,
        of: DurationSource<'_>,
        took: Duration,
        in_calm: bool,
    ) {
        self.slowest = self.slowest.max(took);
        let ln = took.as_secs_f64().max(1e-6).ln();
        let (normal, strain) = match of {
            DurationSource::Call(kind) => {
                // Kinds beyond the maximum share one baseline.
                let full = self.kinds.len() >= KINDS && !self.kinds.contains_key(kind);
                let kind = if full { "" } else { kind };
                if !self.kinds.contains_key(kind) {
                    self.kinds.insert(kind.into(), Baseline::default());
                }
                let Some(normal) = self.kinds.get_mut(kind) else {
                    return;
                };
                (normal, &mut self.calls_strain)
            }
            DurationSource::Neighbour => (&mut self.neighbour, &mut self.neighbour_strain),
        };
        let is_known = normal.samples * LEARNING >= 1.0;
        if is_known {
            strain.add(ln - normal.ln);
            if let Some(calm) = self.making_calm.as_mut().filter(|_| in_calm) {
                calm.found.add(ln - normal.ln);
            }
        }
        if in_calm || !is_known {
            normal.add_sample(ln);
        }
        if in_calm {
            self.in_calm += 1.0;
        }
        self.turn_window(now);
    }

    /// Records that a neighbour refused a call because of overload.
    pub(crate) fn turned_away(&mut self, now: Instant) {
        self.neighbour_strain.add(MOST.ln());
        self.turn_window(now);
    }

    fn turn_window(&mut self, now: Instant) {
        if self.config.min == self.config.max {
            return;
        }
        let age = now.duration_since(self.window_began);
        let samples = self.calls_strain.samples.max(self.neighbour_strain.samples);
        if age < WINDOW || (samples < SAMPLES && age < LONGEST_WINDOW) {
            return;
        }
        let calls = std::mem::take(&mut self.calls_strain).ratio();
        let neighbour = std::mem::take(&mut self.neighbour_strain).ratio();
        let peak = std::mem::take(&mut self.peak);
        let slowest = std::mem::take(&mut self.slowest);
        self.window_began = now;
        let busy = self.processors.were_busy(now);
        if self.making_calm.is_none() {
            self.adjust(calls.max(neighbour), peak, busy);
        }
        self.see_to_calm(now, peak, slowest);
    }

    fn adjust(&mut self, strain: f64, peak: usize, busy: bool) {
        let Config {
            min,
            max,
            initial,
            tolerance,
            ..
        } = self.config;
        let (min, initial) = (min as f64, initial as f64);
        let next = if peak < self.half() {
            // The limit returns slowly, so that recurring overload does not start over each time.
            let step = self.current.sqrt() / 8.0;
            if self.current < initial {
                (self.current + step).min(initial)
            } else {
                (self.current - step).max(initial)
            }
        } else if strain > tolerance {
            let lowest = if busy {
                min.min(self.processors.count() as f64)
            } else {
                min
            };
            let lower = self.current * (tolerance / strain).max(STEEPEST);
            lower.max(lowest.min(self.current))
        } else if busy {
            self.current
        } else if self.current < min {
            (self.current * BACK_TO_MIN).min(min)
        } else {
            self.current + self.current.sqrt() / 2.0
        };
        self.current = next.min(max as f64);
    }

    fn see_to_calm(&mut self, now: Instant, peak: usize, slowest: Duration) {
        match self.making_calm.take() {
            Some(calm) if now < calm.until => self.making_calm = Some(calm),
            Some(calm) => {
                self.calm_every = if calm.found.samples == 0 {
                    (self.calm_every * 2).min(CALM_SELDOM)
                } else if calm.found.ratio() < LOWER {
                    CALM_SOON
                } else {
                    CALM_EVERY
                };
                self.last_calm = now;
            }
            None => {
                let known = self.in_calm * LEARNING >= 1.0;
                let strained = self.current < self.config.initial as f64;
                let due = now.duration_since(self.last_calm) >= self.calm_every;
                let can_be = peak >= self.half() && self.current as usize > self.calm();
                if (strained || !known) && due && can_be {
                    self.making_calm = Some(CalmPeriod {
                        until: now + slowest.min(UNTIL_CALM) + CALM_LASTS,
                        found: Strain::default(),
                    });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
