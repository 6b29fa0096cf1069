//! The processor usage of this process.

use std::time::Duration;

use tokio::time::Instant;

use crate::concurrency::quota;

/// Fraction of the processor time from which on the processors count as busy.
const BUSY: f64 = 0.9;

/// A function that returns the processor time that the process has used since it began.
type ProcessorUse = Box<dyn Fn() -> Duration + Send>;

/// The processors on which this process may run.
pub(crate) struct Processors {
    /// The number of whole processors, at least one.
    count: usize,
    /// The number of processors for which there is time, which may be a fraction if the container has a quota.
    share: f64,
    used: ProcessorUse,
    last: (Instant, Duration),
}

impl std::fmt::Debug for Processors {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_tuple("Processors").field(&self.share).finish()
    }
}

impl Processors {
    pub(crate) fn of_this_process(now: Instant) -> Self {
        // This takes affinity and the quota of a container into account, but rounds to whole processors.
        let count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let all = Self::new(count, Box::new(used_by_this_process), now);
        match quota::of_this_process() {
            // The quota restores the fraction that was rounded.
            Some(quota) if quota < all.share + 1.0 => Self {
                share: quota,
                ..all
            },
            _ => all,
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "no machine has so many")]
    pub(crate) fn new(count: usize, used: ProcessorUse, now: Instant) -> Self {
        Self {
            count,
            share: count as f64,
            last: (now, used()),
            used,
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Returns whether the processors were busy since the last call.
    pub(crate) fn were_busy(&mut self, now: Instant) -> bool {
        let used = (self.used)();
        let (then, before) = std::mem::replace(&mut self.last, (now, used));
        let there_was = now.duration_since(then).as_secs_f64() * self.share;
        used.saturating_sub(before).as_secs_f64() >= there_was * BUSY
    }
}

/// Returns the processor time of this process, or zero if the kernel does not provide it, so that the processors never
/// count as busy.
#[cfg(unix)]
fn used_by_this_process() -> Duration {
    use nix::sys::resource::{Usage, UsageWho, getrusage};
    use nix::sys::time::{TimeVal, TimeValLike};
    let sum = |usage: Usage| {
        let micros = |time: TimeVal| u64::try_from(time.num_microseconds()).unwrap_or_default();
        Duration::from_micros(micros(usage.user_time()) + micros(usage.system_time()))
    };
    getrusage(UsageWho::RUSAGE_SELF)
        .map(sum)
        .unwrap_or_default()
}

#[cfg(not(unix))]
fn used_by_this_process() -> Duration {
    Duration::ZERO
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_busy_when_hardly_any_of_their_time_is_left() {
        let began = Instant::now();
        let second = Duration::from_secs(1);
        for (share, used_a_second, busy) in [
            (2.0, 1_700, false),
            (2.0, 1_900, true),
            (0.5, 400, false),
            (0.5, 480, true),
            (1.5, 1_000, false),
            (1.5, 1_400, true),
        ] {
            let calls = std::sync::atomic::AtomicU64::new(0);
            let used = move || {
                let seconds = calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                Duration::from_millis(seconds * used_a_second)
            };
            let mut processors = Processors {
                share,
                ..Processors::new(2, Box::new(used), began)
            };
            assert_eq!(processors.were_busy(began + second), busy);
            assert_eq!(processors.were_busy(began + 2 * second), busy);
        }
    }

    #[test]
    fn what_this_process_does_is_seen() {
        let before = used_by_this_process();
        while used_by_this_process() == before {
            std::hint::spin_loop();
        }
    }
}
