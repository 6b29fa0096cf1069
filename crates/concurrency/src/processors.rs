//! Whether this process has all of its processors at work.

use std::time::Duration;

use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};
use tokio::time::Instant;

/// With less than a tenth of their time left, processors are busy.
const BUSY: f64 = 0.9;

/// The processor time that a process has used since it began.
type Used = Box<dyn Fn() -> Duration + Send>;

/// Those that this process may run on.
pub(crate) struct Processors {
    count: usize,
    used: Used,
    last: (Instant, Duration),
}

impl std::fmt::Debug for Processors {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_tuple("Processors").field(&self.count).finish()
    }
}

impl Processors {
    pub(crate) fn of_this_process(now: Instant) -> Self {
        // It knows affinity and the quota of a container.
        let count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self::new(count, Box::new(used_by_this_process), now)
    }

    pub(crate) fn new(count: usize, used: Used, now: Instant) -> Self {
        let last = (now, used());
        Self { count, used, last }
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Whether they were busy since this was last asked.
    #[expect(clippy::cast_precision_loss, reason = "no machine has so many")]
    pub(crate) fn were_busy(&mut self, now: Instant) -> bool {
        let used = (self.used)();
        let (then, before) = std::mem::replace(&mut self.last, (now, used));
        let there_was = now.duration_since(then).as_secs_f64() * self.count as f64;
        used.saturating_sub(before).as_secs_f64() >= there_was * BUSY
    }
}

/// Zero where the kernel does not tell: then they are never busy.
fn used_by_this_process() -> Duration {
    let sum = |usage: Usage| {
        let micros = |time: TimeVal| u64::try_from(time.num_microseconds()).unwrap_or_default();
        Duration::from_micros(micros(usage.user_time()) + micros(usage.system_time()))
    };
    getrusage(UsageWho::RUSAGE_SELF)
        .map(sum)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_busy_when_hardly_any_of_their_time_is_left() {
        let began = Instant::now();
        let second = Duration::from_secs(1);
        for (used_a_second, busy) in [(1_700, false), (1_900, true)] {
            let calls = std::sync::atomic::AtomicU64::new(0);
            let used = move || {
                let seconds = calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                Duration::from_millis(seconds * used_a_second)
            };
            let mut two = Processors::new(2, Box::new(used), began);
            assert_eq!(two.were_busy(began + second), busy);
            assert_eq!(two.were_busy(began + 2 * second), busy);
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
