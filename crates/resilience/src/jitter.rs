//! Random waits (jitter), so that callers and replicas that fail at the same time do not retry at the same time.

use std::time::Duration;

use wardgate_domain::Ambient;

/// Returns a uniformly distributed duration from zero to `longest`.
pub fn up_to(longest: Duration, ambient: &Ambient) -> Duration {
    let nanos = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
    let fraction = u64::from_ne_bytes(ambient.random());
    let product = u128::from(nanos) * u128::from(fraction);
    Duration::from_nanos(u64::try_from(product >> u64::BITS).unwrap_or(nanos))
}

#[cfg(test)]
mod tests {
    use wardgate_testkit::{highest_chance, lowest_chance};

    use super::*;

    #[test]
    fn a_wait_lies_between_nothing_and_the_longest() {
        let longest = Duration::from_secs(10);
        assert_eq!(up_to(longest, &lowest_chance()), Duration::ZERO);
        let most = up_to(longest, &highest_chance());
        assert!(most <= longest && most + Duration::from_millis(1) > longest);
        assert!(up_to(Duration::MAX, &highest_chance()) <= Duration::MAX);
    }

    #[test]
    fn waits_are_spread_over_the_whole_length() {
        let longest = Duration::from_secs(1);
        let mut tenths = [0_u32; 10];
        for _ in 0..10_000 {
            let wait = up_to(longest, &Ambient::system());
            tenths[usize::try_from(wait.as_millis() / 100).unwrap()] += 1;
        }
        // The expected count is 1,000 in each tenth; 800 is more than six standard deviations away.
        assert!(tenths.iter().all(|&count| count > 800), "{tenths:?}");
    }
}
