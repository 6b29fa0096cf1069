//! Time limits that adapt to the measured latency of the work that they bound.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Factor from the latency of the slowest recent run to the limit. It covers a run that was under way already, the work itself,
/// and a
/// checkpoint of the store between the two.
const HEADROOM: u32 = 3;

/// Time after which the weight of a slow run has halved.
const HALF_LIFE: Duration = Duration::from_mins(5);

/// A time limit that adapts to the measured latency of the work that it bounds.
///
/// The limit is the floor for a store of usual speed. If the slowest recent run took more than a sixth of the floor, the limit
/// grows to half of the floor plus [`HEADROOM`] times that run, up to the ceiling. Only successful runs are measured, so that
/// work that never ends does not raise the limit.
#[derive(Debug)]
pub struct LatencyLimit {
    floor: Duration,
    ceiling: Duration,
    slowest: Mutex<Option<Measurement>>,
}

#[derive(Debug, Clone, Copy)]
struct Measurement {
    latency: Duration,
    at: Instant,
}

impl Measurement {
    /// Returns the latency of this run with its weight at `now`.
    fn weight(self, now: Instant) -> Duration {
        let half_lives = now.duration_since(self.at).div_duration_f64(HALF_LIFE);
        self.latency.mul_f64((-half_lives).exp2())
    }
}

impl LatencyLimit {
    /// Creates a limit between `floor` and `ceiling` without measurements.
    pub fn new(floor: Duration, ceiling: Duration) -> Self {
        Self {
            floor,
            ceiling,
            slowest: Mutex::new(None),
        }
    }

    /// Returns the limit for the next run.
    pub fn current(&self) -> Duration {
        let slowest = *self.slowest.lock().unwrap_or_else(PoisonError::into_inner);
        let slowest = slowest.map_or(Duration::ZERO, |slowest| slowest.weight(Instant::now()));
        (self.floor / 2 + slowest * HEADROOM).clamp(self.floor, self.ceiling)
    }

    /// Returns the maximum of [`LatencyLimit::current`].
    pub(crate) fn ceiling(&self) -> Duration {
        self.ceiling
    }

    /// Records the latency of a successful run.
    pub fn observe(&self, latency: Duration) {
        let now = Instant::now();
        let mut slowest = self.slowest.lock().unwrap_or_else(PoisonError::into_inner);
        if slowest.is_none_or(|slowest| slowest.weight(now) <= latency) {
            *slowest = Some(Measurement { latency, at: now });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOOR: Duration = Duration::from_millis(600);
    const CEILING: Duration = Duration::from_secs(4);

    fn limit() -> LatencyLimit {
        LatencyLimit::new(FLOOR, CEILING)
    }

    #[tokio::test(start_paused = true)]
    async fn a_fast_store_has_the_floor_for_its_limit() {
        let limit = limit();
        assert_eq!(limit.current(), FLOOR);
        for milliseconds in [1, 4, 20, 100] {
            limit.observe(Duration::from_millis(milliseconds));
            assert_eq!(limit.current(), FLOOR);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_limit_follows_the_slowest_of_the_recent_runs() {
        let limit = limit();
        limit.observe(Duration::from_secs(1));
        limit.observe(Duration::from_millis(5));
        assert_eq!(limit.current(), Duration::from_millis(3_300));
        tokio::time::advance(HALF_LIFE).await;
        assert_eq!(limit.current(), Duration::from_millis(1_800));
        tokio::time::advance(HALF_LIFE * 4).await;
        assert_eq!(limit.current(), FLOOR);
    }

    #[tokio::test(start_paused = true)]
    async fn no_limit_is_above_the_ceiling() {
        let limit = limit();
        limit.observe(Duration::from_mins(1));
        assert_eq!(limit.current(), CEILING);
        assert_eq!(limit.ceiling(), CEILING);
    }
}
