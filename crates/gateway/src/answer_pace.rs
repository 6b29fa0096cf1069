//! When the answer leaves that says that there is no such thing: at one of few instants after the request came, so that
//! time does not tell what is hidden from its caller from what there is not.

use std::time::{Duration, Instant};

use tokio::time::sleep_until;

/// Such an answer leaves a multiple of this after its request came. Longer than such a request takes, apart from what an
/// overloaded service adds to all of them.
const STEP: Duration = Duration::from_millis(50);

/// Waits for the next instant at which such an answer to a request that came at `arrived` may leave.
pub(crate) async fn wait_for_step(arrived: Instant) {
    let passed = next_step(arrived.elapsed());
    sleep_until((arrived + passed).into()).await;
}

/// The first multiple of [`STEP`] after `elapsed`.
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
