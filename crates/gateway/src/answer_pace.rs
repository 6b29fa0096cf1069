//! Delay of answers about names that do not exist. Such an answer is sent at a multiple of a fixed step after its request
//! arrived, so that response times do not tell a hidden name from a missing one.

use std::time::{Duration, Instant};

use tokio::time::sleep_until;

/// Interval between the instants at which such an answer may be sent. It is longer than the request itself takes, apart from
/// the delay that an overloaded service adds to all requests.
const STEP: Duration = Duration::from_millis(50);

/// Waits for the next instant at which an answer to a request that came at `arrived` may be sent.
pub(crate) async fn wait_for_step(arrived: Instant) {
    let passed = next_step(arrived.elapsed());
    sleep_until((arrived + passed).into()).await;
}

/// Returns the first multiple of [`STEP`] after `elapsed`.
fn next_step(elapsed: Duration) -> Duration {
    let rest = elapsed.as_nanos() % STEP.as_nanos();
    let rest = Duration::from_nanos(u64::try_from(rest).unwrap_or_default());
    elapsed.saturating_sub(rest).saturating_add(STEP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_it_took_the_answer_leaves_at_a_multiple_of_the_step() {
        for (took, leaves) in [(0, 50), (1, 50), (49, 50), (50, 100), (51, 100), (730, 750)] {
            let next = next_step(Duration::from_millis(took));
            assert_eq!(next, Duration::from_millis(leaves), "{took}");
        }
        let next = next_step(Duration::from_nanos(1_234_567));
        assert_eq!(next, STEP);
    }
}
