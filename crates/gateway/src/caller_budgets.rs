//! How often each caller may do something: so many times at once, and then one more whenever its share of a minute has
//! passed.
//!
//! The generic cell rate algorithm: a token bucket that is one number a caller, the time at which the bucket would be full
//! again.

use std::time::Duration;

use quick_cache::sync::{Cache, EntryAction, EntryResult};
use tokio::time::Instant;
use wardgate_domain::Digest;

/// Buckets kept. The ones used least make room: they are the fullest.
const BUCKETS: usize = 65_536;

/// The budgets of all callers, each known by [`wardgate_domain::Caller::person`].
#[derive(Debug)]
pub(crate) struct CallerBudgets {
    started: Instant,
    /// After this time a caller may do it once more.
    interval: Duration,
    /// The time in which an empty bucket becomes full.
    minute: Duration,
    /// When each bucket is full again, since the start.
    full_at: Cache<Digest, Duration>,
}

impl CallerBudgets {
    /// Budgets of `times` at once and in each minute after that; 0 counts as 1.
    pub(crate) fn per_minute(times: u32) -> Self {
        let times = times.max(1);
        let interval = Duration::from_secs(60) / times;
        Self {
            started: Instant::now(),
            interval,
            minute: interval * times,
            full_at: Cache::new(BUCKETS),
        }
    }

    /// Takes one out of the budget of `caller`, or says how long to wait for the next.
    pub(crate) fn spend(&self, caller: Digest) -> Result<(), Duration> {
        let now = self.started.elapsed();
        let entry = self.full_at.entry(&caller, None, |_, full_at| {
            let later = (*full_at).max(now) + self.interval;
            EntryAction::Retain(match later.checked_sub(now + self.minute) {
                None | Some(Duration::ZERO) => {
                    *full_at = later;
                    Ok(())
                }
                Some(wait) => Err(wait),
            })
        });
        match entry {
            EntryResult::Retained(spent) => spent,
            EntryResult::Vacant(guard) => {
                // Fails only where the bucket was removed meanwhile, and none ever is.
                let _ = guard.insert(now + self.interval);
                Ok(())
            }
            // What the closure never asks for: a removal, a replacement or a time limit.
            EntryResult::Removed(..) | EntryResult::Replaced(..) | EntryResult::Timeout => Ok(()),
        }
    }

    #[cfg(test)]
    pub(crate) fn kept(&self) -> usize {
        self.full_at.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_caller_who_waits_as_told_goes_on_and_one_millisecond_earlier_does_not() {
        let budgets = CallerBudgets::per_minute(60);
        let (greedy, other) = (Digest::of(b"greedy"), Digest::of(b"other"));
        for _ in 0..60 {
            assert_eq!(budgets.spend(greedy), Ok(()));
        }
        assert_eq!(budgets.spend(greedy), Err(Duration::from_secs(1)));
        assert_eq!(budgets.spend(other), Ok(()), "others are not concerned");
        let millisecond = Duration::from_millis(1);
        tokio::time::advance(Duration::from_millis(999)).await;
        assert_eq!(budgets.spend(greedy), Err(millisecond));
        tokio::time::advance(millisecond).await;
        assert_eq!(budgets.spend(greedy), Ok(()));
        assert_eq!(budgets.spend(greedy), Err(Duration::from_secs(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn in_an_hour_a_caller_spends_one_budget_and_what_comes_back_of_it() {
        let budgets = CallerBudgets::per_minute(600);
        let caller = Digest::of(b"caller");
        let mut spent = 0;
        for _ in 0..36_000 {
            while budgets.spend(caller).is_ok() {
                spent += 1;
            }
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        assert_eq!(spent, 600 + 35_999);
    }

    #[test]
    fn however_many_callers_there_are_the_budgets_are_bounded() {
        let budgets = CallerBudgets::per_minute(1);
        for caller in 0..200_000_u32 {
            assert_eq!(budgets.spend(Digest::of(&caller.to_be_bytes())), Ok(()));
        }
        assert!(budgets.kept() <= BUCKETS);
    }
}
