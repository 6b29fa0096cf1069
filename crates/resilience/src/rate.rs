//! Rate limits of callers: `60/m` allows 60 calls at once, then one more every second.
//!
//! This is the generic cell rate algorithm: a token bucket that is stored as one number, the instant at which the
//! bucket is full again.

use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

use quick_cache::sync::{Cache, EntryAction, EntryResult};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use wardgate_domain::Digest;

/// Maximum number of buckets, which take about 8 MB. The least used ones are evicted, because they are the fullest.
pub(crate) const BUCKETS: usize = 65_536;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// A number of calls in a period, as in configurations: `10/s`, `60/m`, `1000/h`, `5000/d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rate {
    calls: NonZeroU32,
    /// The period in nanoseconds.
    per: u64,
}

/// The text is not a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "write a rate as calls per second, minute, hour or day: `10/s`, `60/m`, `1000/h` or `5000/d`, with a whole number above 0"
)]
pub struct ParseRateError;

impl FromStr for Rate {
    type Err = ParseRateError;

    fn from_str(text: &str) -> Result<Self, ParseRateError> {
        let (calls, unit) = text.split_once('/').ok_or(ParseRateError)?;
        let seconds = match unit {
            "s" => 1,
            "m" => 60,
            "h" => 3_600,
            "d" => 86_400,
            _ => return Err(ParseRateError),
        };
        let digits_only = calls.bytes().all(|byte| byte.is_ascii_digit());
        match calls.parse() {
            Ok(calls) if digits_only => Ok(Self {
                calls,
                per: seconds * NANOS_PER_SECOND,
            }),
            _ => Err(ParseRateError),
        }
    }
}

impl TryFrom<String> for Rate {
    type Error = ParseRateError;

    fn try_from(text: String) -> Result<Self, ParseRateError> {
        text.parse()
    }
}

impl From<Rate> for String {
    fn from(rate: Rate) -> Self {
        let unit = match rate.per / NANOS_PER_SECOND {
            1 => "s",
            60 => "m",
            3_600 => "h",
            _ => "d",
        };
        format!("{}/{unit}", rate.calls)
    }
}

impl Rate {
    /// Creates a rate of calls per minute; 0 counts as 1.
    pub fn per_minute(calls: u32) -> Self {
        Self {
            calls: NonZeroU32::new(calls).unwrap_or(NonZeroU32::MIN),
            per: 60 * NANOS_PER_SECOND,
        }
    }

    /// Returns the number of calls of a full bucket.
    pub(crate) fn calls(self) -> u32 {
        self.calls.get()
    }

    /// Returns the time in which an empty bucket fills, in seconds.
    pub(crate) fn window(self) -> u64 {
        self.per / NANOS_PER_SECOND
    }

    /// Returns the number of calls left at the instant `now` in a bucket that is full at `full_at`, both in
    /// nanoseconds.
    pub(crate) fn remaining_calls(self, full_at: u64, now: u64) -> u32 {
        let used = full_at.saturating_sub(now).div_ceil(self.interval());
        let used = u32::try_from(used).unwrap_or(u32::MAX);
        self.calls().saturating_sub(used)
    }

    /// Returns the number of calls that a bucket lacks if it is full after this time, at most all. It is computed in
    /// microseconds, like in stores, where the interval of a call is not shorter than here.
    pub(crate) fn used_calls(self, full_in: Duration) -> u32 {
        let interval = u128::from(self.interval().div_ceil(1_000));
        let used = full_in.as_micros().div_ceil(interval);
        u32::try_from(used).unwrap_or(u32::MAX).min(self.calls())
    }

    /// Returns the time in which one call flows into the bucket, in nanoseconds. It is rounded up, so that the rate is
    /// never exceeded.
    pub(crate) fn interval(self) -> u64 {
        self.per.div_ceil(u64::from(self.calls.get()))
    }

    /// Returns the share of the rate that each of `replicas` may use, at least one call.
    pub(crate) fn share(self, replicas: u32) -> Self {
        let calls = self.calls.get() / replicas.max(1);
        Self {
            calls: NonZeroU32::new(calls).unwrap_or(NonZeroU32::MIN),
            per: self.per,
        }
    }

    /// Takes `cost` calls, at most a full bucket, at the instant `now` out of a bucket that is full at `full_at`, both
    /// in nanoseconds. Returns the instant at which the bucket is full after that, or how long the caller has to wait.
    pub(crate) fn try_acquire_calls(
        self,
        cost: u32,
        full_at: u64,
        now: u64,
    ) -> Result<u64, Duration> {
        let (interval, cost) = (self.interval(), cost.min(self.calls()));
        let full_at = full_at.max(now);
        let most = interval * u64::from(self.calls() - cost);
        match (full_at - now).checked_sub(most) {
            None | Some(0) => Ok(full_at + interval * u64::from(cost)),
            Some(wait) => Err(Duration::from_nanos(wait)),
        }
    }
}

/// The buckets of all tools and callers. They outlive a reload of the catalogue, so that a reload does not fill them.
#[derive(Debug)]
pub struct RateLimiter {
    started: Instant,
    /// The instant at which each bucket is full again, in nanoseconds since the start.
    buckets: Cache<Digest, u64>,
}

impl Default for RateLimiter {
    /// Creates a limiter in which all buckets are full.
    fn default() -> Self {
        Self {
            started: Instant::now(),
            buckets: Cache::new(BUCKETS),
        }
    }
}

impl RateLimiter {
    /// Takes one call out of a bucket. If it is empty, returns how long to wait as an error.
    pub fn try_acquire_call(&self, bucket: Digest, rate: Rate) -> Result<(), Duration> {
        let now = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let entry = self.buckets.entry(&bucket, None, |_, full_at| {
            let taken = rate.try_acquire_calls(1, *full_at, now);
            if let Ok(later) = taken {
                *full_at = later;
            }
            EntryAction::Retain(taken)
        });
        match entry {
            EntryResult::Retained(taken) => taken.map(drop),
            EntryResult::Vacant(guard) => {
                let taken = rate.try_acquire_calls(1, now, now)?;
                // The insertion fails only if the entry was removed in the meantime, which never happens.
                let _ = guard.insert(taken);
                Ok(())
            }
            // The closure never asks for a removal, a replacement or a time limit.
            EntryResult::Removed(..) | EntryResult::Replaced(..) | EntryResult::Timeout => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rate(text: &str) -> Rate {
        text.parse().unwrap()
    }

    #[test]
    fn rates_are_read_as_people_write_them_and_nothing_else_is() {
        for (text, calls, seconds) in [
            ("10/s", 10, 1),
            ("60/m", 60, 60),
            ("1000/h", 1_000, 3_600),
            ("5000/d", 5_000, 86_400),
        ] {
            let per = seconds * NANOS_PER_SECOND;
            let calls = NonZeroU32::new(calls).unwrap();
            assert_eq!(text.parse(), Ok(Rate { calls, per }), "{text}");
            assert_eq!(String::from(Rate { calls, per }), text);
        }
        for junk in [
            "",
            "/",
            "60",
            "60/",
            "/m",
            "0/s",
            "-1/s",
            "+1/s",
            "1.5/s",
            "60 / m",
            "60/min",
            "60/w",
            "60/M",
            "4294967296/s",
            "60/m/s",
            "٦/s",
        ] {
            assert_eq!(junk.parse::<Rate>(), Err(ParseRateError), "{junk}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_who_waits_exactly_as_told_is_let_through_and_one_nanosecond_earlier_is_not() {
        let limiter = RateLimiter::default();
        let caller = Digest::compute(b"caller");
        for _ in 0..60 {
            assert_eq!(limiter.try_acquire_call(caller, rate("60/m")), Ok(()));
        }
        let wait = limiter.try_acquire_call(caller, rate("60/m")).unwrap_err();
        assert_eq!(wait, Duration::from_secs(1));
        let nanosecond = Duration::from_nanos(1);
        tokio::time::advance(Duration::from_nanos(999_999_999)).await;
        assert_eq!(
            limiter.try_acquire_call(caller, rate("60/m")),
            Err(nanosecond)
        );
        tokio::time::advance(nanosecond).await;
        assert_eq!(limiter.try_acquire_call(caller, rate("60/m")), Ok(()));
        assert_eq!(limiter.try_acquire_call(caller, rate("60/m")), Err(wait));
    }

    #[tokio::test(start_paused = true)]
    async fn a_greedy_caller_takes_nothing_from_another() {
        let limiter = RateLimiter::default();
        let greedy = Digest::compute(b"greedy");
        let taken = (0..10_000)
            .filter(|_| limiter.try_acquire_call(greedy, rate("10/s")).is_ok())
            .count();
        assert_eq!(taken, 10);
        let other = Digest::compute(b"other");
        for _ in 0..10 {
            assert_eq!(limiter.try_acquire_call(other, rate("10/s")), Ok(()));
        }
    }

    #[test]
    fn a_million_callers_take_no_more_memory_than_the_buckets_kept() {
        let limiter = RateLimiter::default();
        for caller in 0..1_000_000_u32 {
            let bucket = Digest::compute(&caller.to_be_bytes());
            assert_eq!(limiter.try_acquire_call(bucket, rate("1/h")), Ok(()));
        }
        assert!(limiter.buckets.len() <= BUCKETS);
        let memory = limiter.buckets.memory_used();
        assert!(memory.entries + memory.map < 16 * 1_024 * 1_024);
    }

    #[test]
    fn callers_who_come_at_the_same_instant_share_one_bucket_exactly() {
        let limiter = RateLimiter::default();
        let taken = std::sync::atomic::AtomicU32::new(0);
        std::thread::scope(|threads| {
            for _ in 0..8 {
                threads.spawn(|| {
                    for _ in 0..1_000 {
                        if limiter
                            .try_acquire_call(Digest::compute(b"caller"), rate("500/h"))
                            .is_ok()
                        {
                            taken.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        // One call flows back every 7.2 s, which is far longer than the loop takes.
        assert_eq!(taken.into_inner(), 500);
    }

    fn rates() -> impl Strategy<Value = Rate> {
        let per = prop::sample::select(vec![1_u64, 60, 3_600]);
        (1_u32..10_000, per).prop_map(|(calls, seconds)| Rate {
            calls: NonZeroU32::new(calls).unwrap(),
            per: seconds * NANOS_PER_SECOND,
        })
    }

    proptest! {
        #[test]
        fn no_stretch_of_time_sees_more_calls_than_a_full_bucket_and_what_flows_in(
            rate in rates(),
            gaps in prop::collection::vec(0_u64..2_000_000_000, 1..300),
        ) {
            let (mut now, mut full_at) = (0, 0);
            let mut taken = Vec::new();
            for gap in gaps {
                now += gap;
                if let Ok(later) = rate.try_acquire_calls(1, full_at, now) {
                    full_at = later;
                    taken.push(now);
                }
            }
            let calls = u64::from(rate.calls.get());
            for (index, &from) in taken.iter().enumerate() {
                for (count, &to) in (1_u64..).zip(&taken[index..]) {
                    let flowed_in = u128::from(to - from) * u128::from(calls) / u128::from(rate.per);
                    prop_assert!(u128::from(count) <= u128::from(calls) + flowed_in);
                }
            }
        }

        #[test]
        fn the_wait_that_is_told_is_the_shortest_that_helps(
            rate in rates(),
            now in 0_u64..1_000_000_000_000,
            ahead in 0_u64..10_000_000_000_000,
        ) {
            let full_at = now + ahead;
            if let Err(wait) = rate.try_acquire_calls(1, full_at, now) {
                let wait = u64::try_from(wait.as_nanos()).unwrap();
                prop_assert!(rate.try_acquire_calls(1, full_at, now + wait).is_ok());
                prop_assert!(rate.try_acquire_calls(1, full_at, now + wait - 1).is_err());
            }
        }
    }
}
