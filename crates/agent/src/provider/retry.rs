//! Decides on retries of a request to a model: exponential backoff with full jitter.

use std::time::Duration;

use wardgate_domain::Ambient;
use wardgate_resilience::jitter;

use crate::model::ModelError;

/// Maximum pause before the second attempt. It doubles with every further attempt.
const FIRST: Duration = Duration::from_millis(500);
/// Maximum pause, not counting a pause that the provider asks for.
const LONGEST: Duration = Duration::from_secs(8);
/// Longest pause that a provider may ask for. If it asks for more, the request fails instead.
const MOST_ASKED_FOR: Duration = Duration::from_secs(30);

/// Returns the pause after attempt number `made` failed, which is at least what the provider asked for, or `None` if no further
/// attempt should be made.
pub(super) fn pause(
    made: u32,
    attempts: u32,
    error: &ModelError,
    ambient: &Ambient,
) -> Option<Duration> {
    let asked_for = match error {
        ModelError::Busy { retry_after } => retry_after.unwrap_or_default(),
        ModelError::Unreachable | ModelError::Failed { .. } | ModelError::Cut => Duration::ZERO,
        _ => return None,
    };
    if made >= attempts || asked_for > MOST_ASKED_FOR {
        return None;
    }
    // Most likely the server had closed a pooled connection. Some servers do so after every stream without announcing it.
    if made == 1 && *error == ModelError::Cut {
        return Some(Duration::ZERO);
    }
    let longest = 2_u32
        .checked_pow(made.saturating_sub(1))
        .map_or(LONGEST, |factor| FIRST.saturating_mul(factor))
        .min(LONGEST);
    Some(asked_for + jitter::up_to(longest, ambient))
}

#[cfg(test)]
mod tests {
    use wardgate_testkit::{highest_chance, lowest_chance};

    use super::*;

    const BUSY: ModelError = ModelError::Busy { retry_after: None };

    fn busy_for(seconds: u64) -> ModelError {
        ModelError::Busy {
            retry_after: Some(Duration::from_secs(seconds)),
        }
    }

    #[test]
    fn the_longest_wait_doubles_up_to_the_limit() {
        let longest: Vec<_> = (1..60)
            .map(|made| pause(made, 60, &BUSY, &highest_chance()).unwrap())
            .map(|pause| pause.as_millis() + 1)
            .collect();
        assert_eq!(longest[..5], [500, 1_000, 2_000, 4_000, 8_000]);
        assert!(longest[5..].iter().all(|&millis| millis == 8_000));
    }

    #[test]
    fn jitter_is_full_and_never_undercuts_what_the_provider_asked_for() {
        let pause = |ambient: &Ambient| pause(1, 3, &busy_for(3), ambient).unwrap();
        assert_eq!(pause(&lowest_chance()), Duration::from_secs(3));
        assert!(pause(&highest_chance()) <= Duration::from_millis(3_500));
    }

    #[test]
    fn attempts_end_and_a_provider_that_asks_for_too_much_is_not_waited_for() {
        let ambient = lowest_chance();
        assert!(pause(2, 3, &BUSY, &ambient).is_some());
        assert_eq!(pause(3, 3, &BUSY, &ambient), None);
        assert_eq!(pause(1, 1, &BUSY, &ambient), None);
        assert!(pause(1, 3, &busy_for(30), &ambient).is_some());
        assert_eq!(pause(1, 3, &busy_for(31), &ambient), None);
    }

    #[test]
    fn a_connection_that_broke_is_replaced_at_once() {
        let ambient = highest_chance();
        let pause = |made| pause(made, 3, &ModelError::Cut, &ambient).unwrap();
        assert_eq!(pause(1), Duration::ZERO);
        assert!(pause(2) > Duration::ZERO);
    }

    #[test]
    fn only_what_may_pass_is_tried_again() {
        let ambient = lowest_chance();
        for error in [
            ModelError::Unreachable,
            ModelError::Failed { status: 500 },
            ModelError::Cut,
        ] {
            assert!(pause(1, 3, &error, &ambient).is_some(), "{error}");
        }
        for error in [
            ModelError::Late,
            ModelError::Credentials { status: 401 },
            ModelError::UnknownModel,
            ModelError::TooLong,
            ModelError::Refused { status: 400 },
            ModelError::Unreadable,
            ModelError::TooLarge,
        ] {
            assert_eq!(pause(1, 3, &error, &ambient), None, "{error}");
        }
    }
}
