//! The limit itself: down when calls take longer than in calm, up when they do not.
//!
//! ```text
//!   how long a call took ÷ how long its kind takes in calm = how strained the service is
//!
//!   strained, and at least half full      ─▶ limit × tolerance ÷ strain, at most by half a window
//!   not strained, and at least half full  ─▶ limit + √limit ÷ 2, unless all processors are busy
//!   not even half full                    ─▶ back towards where it began
//! ```
//!
//! Strain alone takes the limit no lower than `min`: what calls wait for may be done for many at once, as the record
//! is written. Where processors are busy too, calls at once only wait for each other, and it falls to one a processor.
//!
//! After the gradient of Netflix's concurrency-limits and Envoy's adaptive concurrency filter. Calm is when no more than
//! an eighth of the limit is under way, and no more than there are processors. Where that does not come by itself while
//! calls are held to be strained, or nothing is known yet, the limit is so low for a moment: so that what is held to be
//! normal does not rise with the load.
//!
//! Each kind of call is compared with itself, and strain is a geometric mean: neither a few slow calls nor another mix of
//! tools look like overload.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::concurrency::config::Config;
use crate::concurrency::processors::Processors;

/// Strain is judged over so long.
const WINDOW: Duration = Duration::from_millis(100);
/// And over so many calls.
const SAMPLES: u32 = 8;
/// A window with fewer calls ends all the same.
const LONGEST_WINDOW: Duration = Duration::from_secs(1);
/// A window takes no more than this from the limit.
const STEEPEST: f64 = 0.5;
/// So long there may be no calm before it is made.
const CALM_EVERY: Duration = Duration::from_secs(15);
/// The same where nothing is known yet, or the last time showed that what was held to be normal was not.
const CALM_SOON: Duration = Duration::from_millis(500);
/// Where making it has led to nothing, twice as long each time, and so long at the most.
const CALM_SELDOM: Duration = Duration::from_secs(240);
/// How long it is made for, once what is under way has ended,
const CALM_LASTS: Duration = Duration::from_millis(100);
/// for which it waits no longer than this.
const UNTIL_CALM: Duration = Duration::from_millis(400);
/// Normal was less than that part of what it was held to be.
const LOWER: f64 = 0.8;
/// No call counts for more than so many times its normal duration.
const MOST: f64 = 8.0;
/// Kinds that are told apart.
const KINDS: usize = 1_024;
/// A limit below `min` rises by so much in a window in which processors had time left.
const BACK_TO_MIN: f64 = 1.5;
/// How much one call changes what is normal, once so many (its inverse) were seen.
const LEARNING: f64 = 0.05;

/// How long one kind of call takes in calm: the mean of logarithms.
#[derive(Debug, Default)]
struct Baseline {
    ln: f64,
    samples: f64,
}

impl Baseline {
    fn learn(&mut self, ln: f64) {
        self.samples += 1.0;
        self.ln += (ln - self.ln) * (1.0 / self.samples).max(LEARNING);
    }
}

/// How much longer than normal something took, over one window.
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

/// What a duration was measured of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DurationSource<'a> {
    /// A call of that kind.
    Call(&'a str),
    /// What every call waits for, whatever its kind: a neighbour whose capacity is part of ours.
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
    /// The call of the window that took longest.
    slowest: Duration,
    /// The most calls under way at once in the window.
    peak: usize,
    /// When calm was last seen or made.
    last_calm: Instant,
    calm_every: Duration,
    /// How many calls are known from calm.
    in_calm: f64,
    making_calm: Option<CalmPeriod>,
}

/// While calm is made.
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

    /// How many calls there may be at once.
    pub(crate) fn current(&self, now: Instant) -> usize {
        match &self.making_calm {
            // It ends in time, also where no call comes to its end meanwhile.
            Some(calm) if now < calm.until => self.calm(),
            Some(_) | None => self.lasting(),
        }
    }

    /// The same, also while calm is made.
    pub(crate) fn lasting(&self) -> usize {
        self.current as usize
    }

    /// So many at once are calm.
    fn calm(&self) -> usize {
        (self.current as usize / 8).clamp(1, self.processors.count())
    }

    /// Below so many at once the limit says nothing.
    fn half(&self) -> usize {
        (self.current as usize).div_ceil(2)
    }

    /// One more than the `under_way` has to wait. Where none of them ends for long, the window does all the same.
    pub(crate) fn has_to_wait(&mut self, now: Instant, under_way: usize) {
        self.peak = self.peak.max(under_way);
        self.turn_window(now);
    }

    /// A call begins or ends, as one of `under_way`. True if that is calm.
    pub(crate) fn is_calm(&mut self, now: Instant, under_way: usize) -> bool {
        self.peak = self.peak.max(under_way);
        let is_calm = under_way <= self.calm();
        if is_calm {
            self.last_calm = now;
        }
        is_calm
    }

    /// Something took `took`.
    pub(crate) fn learn(
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
                // What is beyond the bound shares one kind.
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
            normal.learn(ln);
        }
        if in_calm {
            self.in_calm += 1.0;
        }
        self.turn_window(now);
    }

    /// A neighbour turned a call away.
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
            // Slowly: overload that comes and goes should not begin anew each time.
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
