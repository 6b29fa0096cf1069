//! Delay of answers about names that do not exist. Such an answer is sent at a multiple of a fixed step after its request
//! arrived, so that response times do not tell a hidden name from a missing one.

use std::time::{Duration, Instant};

use tokio::time::sleep_until;
use wardgate_resilience::next_step;

/// Interval between the instants at which such an answer may be sent. It is longer than the request itself takes, apart from
/// the delay that an overloaded service adds to all requests.
const STEP: Duration = Duration::from_millis(50);

/// Waits for the next instant at which an answer to a request that came at `arrived` may be sent.
pub(crate) async fn wait_for_step(arrived: Instant) {
    let passed = next_step(arrived.elapsed(), STEP);
    sleep_until((arrived + passed).into()).await;
}
