//! Steps of time at which answers are sent, so that the time of an answer does not tell what it depends on.

use std::time::Duration;

/// Returns the first multiple of `step`, which is not zero, after `elapsed`.
pub fn next_step(elapsed: Duration, step: Duration) -> Duration {
    let rest = elapsed.as_nanos() % step.as_nanos();
    let rest = Duration::from_nanos(u64::try_from(rest).unwrap_or_default());
    elapsed.saturating_sub(rest).saturating_add(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(50);

    #[test]
    fn whatever_it_took_the_answer_leaves_at_a_multiple_of_the_step() {
        for (took, leaves) in [(0, 50), (1, 50), (49, 50), (50, 100), (51, 100), (730, 750)] {
            let next = next_step(Duration::from_millis(took), STEP);
            assert_eq!(next, Duration::from_millis(leaves), "{took}");
        }
        let next = next_step(Duration::from_nanos(1_234_567), STEP);
        assert_eq!(next, STEP);
        assert_eq!(next_step(Duration::MAX, STEP), Duration::MAX);
    }
}
