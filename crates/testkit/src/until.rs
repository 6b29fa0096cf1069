//! Polling for conditions that the product does not announce.

use std::time::{Duration, Instant};

/// A timeout longer than anything takes, on a machine that is busy with builds.
pub const PATIENCE: Duration = Duration::from_mins(2);
/// Interval between two polls.
const PAUSE: Duration = Duration::from_millis(10);

/// Polls `look` until it returns a value, and panics with `what` if it never does.
pub async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(seen) = look().await {
            return seen;
        }
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        tokio::time::sleep(PAUSE).await;
    }
}

/// Polls `is_so` until it returns true.
pub async fn until_true(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    until(what, async || is_so().await.then_some(())).await;
}
