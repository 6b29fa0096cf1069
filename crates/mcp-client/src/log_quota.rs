//! Rate limit of log lines about a server.

use std::time::Duration;

use tokio::time::Instant;

/// Limits log lines to a number per second, and counts those that are left out.
#[derive(Debug)]
pub(super) struct LogQuota {
    per_second: u32,
    second: Instant,
    used: u32,
    left_out: u64,
}

impl LogQuota {
    pub(super) fn new(per_second: u32) -> Self {
        Self {
            per_second,
            second: Instant::now(),
            used: 0,
            left_out: 0,
        }
    }

    /// Returns the number of lines left out since the last one if another line may be logged, or `None` if it may not.
    pub(super) fn admit_line(&mut self) -> Option<u64> {
        if self.second.elapsed() >= Duration::from_secs(1) {
            (self.second, self.used) = (Instant::now(), 0);
        }
        if self.used == self.per_second {
            self.left_out += 1;
            return None;
        }
        self.used += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}
