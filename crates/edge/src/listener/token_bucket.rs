//! A token bucket, which limits the rate of a client and allows bursts.

use tokio::time::Instant;

/// Number of units per token; the bucket counts thousandths.
const MILLI: u64 = 1_000;

/// A token bucket that is full initially.
#[derive(Debug)]
pub(super) struct TokenBucket {
    /// The number of tokens gained per second.
    rate: u64,
    /// The number of tokens up to which time alone fills the bucket.
    burst: u64,
    /// The remaining thousandths of tokens.
    left: u64,
    refilled: Instant,
}

/// An error because the bucket has fewer tokens than requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BudgetExceeded;

impl TokenBucket {
    pub(super) fn new(rate: u64, burst: u64) -> Self {
        Self {
            rate,
            burst,
            left: burst * MILLI,
            refilled: Instant::now(),
        }
    }

    /// Takes `cost` tokens, or none if fewer are left.
    pub(super) fn charge(&mut self, cost: u64) -> Result<(), BudgetExceeded> {
        self.refill();
        let left = self.left.checked_sub(cost.saturating_mul(MILLI));
        self.left = left.ok_or(BudgetExceeded)?;
        Ok(())
    }

    /// Adds thousandths of tokens, up to `most` tokens or the burst, whichever is more.
    pub(super) fn credit(&mut self, thousandths: u64, most: u64) {
        let most = most.max(self.burst).saturating_mul(MILLI);
        self.left = self.left.saturating_add(thousandths).min(most);
    }

    /// Returns whether the bucket is as full as time alone fills it.
    pub(super) fn is_full(&mut self) -> bool {
        self.refill();
        self.left >= self.burst * MILLI
    }

    fn refill(&mut self) {
        let now = Instant::now();
        let micros = now.duration_since(self.refilled).as_micros();
        let micros = u64::try_from(micros).unwrap_or(u64::MAX);
        let earned = micros.saturating_mul(self.rate) / 1_000;
        if earned == 0 {
            return;
        }
        self.refilled = now;
        let most = self.burst * MILLI;
        if self.left < most {
            self.left = self.left.saturating_add(earned).min(most);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_spent_comes_back_with_time_up_to_the_burst() {
        let mut budget = TokenBucket::new(10, 20);
        budget.charge(20).unwrap();
        assert_eq!(budget.charge(1), Err(BudgetExceeded));
        tokio::time::advance(Duration::from_millis(100)).await;
        budget.charge(1).unwrap();
        assert!(!budget.is_full());
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(budget.is_full());
        assert_eq!(budget.charge(21), Err(BudgetExceeded));
        budget.charge(20).unwrap();
    }
}
