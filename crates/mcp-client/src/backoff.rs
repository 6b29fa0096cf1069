//! Exponential backoff between attempts.

use std::time::Duration;

use wardgate_domain::Ambient;

use wardgate_resilience::jitter;

/// Exponential backoff with full jitter: a random delay of up to `first`, which doubles with each failure up to `longest`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Backoff {
    pub(super) first: Duration,
    pub(super) longest: Duration,
}

impl Backoff {
    /// Returns the delay after `failures` consecutive failures.
    pub(super) fn wait(self, failures: u32, ambient: &Ambient) -> Duration {
        let Some(doublings) = failures.checked_sub(1) else {
            return Duration::ZERO;
        };
        let factor = 2_u32.saturating_pow(doublings);
        jitter::up_to(self.first.saturating_mul(factor).min(self.longest), ambient)
    }
}
