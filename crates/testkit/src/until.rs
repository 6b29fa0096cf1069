//! Waiting for what the product does not announce.

use std::time::{Duration, Instant};

/// Longer than anything takes, on a machine that is busy building.
pub const PATIENCE: Duration = Duration::from_mins(2);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(10);

/// Looks again and again until there is something, and fails as `what` when there never is.
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

/// The same until it `is_so`.
pub async fn until_true(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    until(what, async || is_so().await.then_some(())).await;
}
