//! Retries of failed attempts: exponential backoff with full jitter.

use std::time::Duration;

use wardgate_domain::Ambient;

use super::jitter;

/// The settings of `retry` of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetrySettings {
    /// Maximum number of attempts including the first one, which is always made.
    pub attempts: u32,
    /// Maximum wait before the second attempt. It doubles for every further attempt.
    pub first: Duration,
    /// Maximum backoff. The wait is longer only if the source asked for it.
    pub longest: Duration,
}

impl Default for RetrySettings {
    fn default() -> Self {
        Self {
            attempts: 3,
            first: Duration::from_millis(50),
            longest: Duration::from_secs(2),
        }
    }
}

impl RetrySettings {
    /// Returns the time to wait after `made` attempts, which is never less than the source asked for, or `None` if
    /// there are no more attempts.
    pub fn pause(&self, made: u32, asked_for: Duration, ambient: &Ambient) -> Option<Duration> {
        if made >= self.attempts {
            return None;
        }
        let doublings = made.saturating_sub(1);
        let backoff = 2_u32
            .checked_pow(doublings)
            .map_or(self.longest, |factor| self.first.saturating_mul(factor))
            .min(self.longest);
        Some(asked_for.saturating_add(jitter::up_to(backoff, ambient)))
    }
}

#[cfg(test)]
mod tests {
    use wardgate_testkit::{highest_chance, lowest_chance};

    use super::*;

    fn settings(attempts: u32) -> RetrySettings {
        RetrySettings {
            attempts,
            ..RetrySettings::default()
        }
    }

    #[test]
    fn the_longest_wait_doubles_up_to_the_limit() {
        let longest: Vec<_> = (1..100)
            .map(|made| {
                let pause = settings(100).pause(made, Duration::ZERO, &highest_chance());
                pause.unwrap().as_millis() + 1
            })
            .collect();
        assert_eq!(longest[..7], [50, 100, 200, 400, 800, 1_600, 2_000]);
        assert!(longest[7..].iter().all(|&millis| millis == 2_000));
    }

    #[test]
    fn jitter_is_full_and_never_undercuts_what_the_source_asked_for() {
        let asked_for = Duration::from_secs(3);
        let pause = |ambient: &Ambient| settings(3).pause(2, asked_for, ambient).unwrap();
        assert_eq!(pause(&lowest_chance()), asked_for);
        assert!(pause(&highest_chance()) <= asked_for + Duration::from_millis(100));
    }

    #[test]
    fn attempts_end() {
        let pause = |made| settings(3).pause(made, Duration::ZERO, &lowest_chance());
        assert!(pause(1).is_some() && pause(2).is_some());
        assert_eq!((pause(3), pause(u32::MAX)), (None, None));
        assert_eq!(settings(1).pause(1, Duration::ZERO, &lowest_chance()), None);
    }
}
