//! What the moves of all stores from a former master key to the current one have in common. Each service defines the steps of its
//! own move.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::Address;

/// How often a step is tried before the move gives up. It can be started again, and continues.
const TRIES: u32 = 5;

/// Pause after the first failure of a step. Each further pause is longer by the same time.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// Minimum pause between two batches on SQLite.
const BATCH_PAUSE: Duration = Duration::from_millis(100);

/// The progress of the move of a store to another master key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RekeyProgress {
    /// The number of entries that this run moved to the current master key, or found there.
    pub done: u64,
    /// The number of entries that were left when this run began, or `done` if that is greater, because services added entries
    /// meanwhile. Zero if the run began without a count and `done` is zero.
    pub total: u64,
    /// The number of entries that cannot be decrypted, and that stay as they are. They are not in `done`.
    pub unreadable: u64,
}

impl RekeyProgress {
    /// Counts further entries that are done, and increases the total if more are done than it contains.
    pub fn count(&mut self, done: u64) {
        self.done += done;
        self.total = self.total.max(self.done);
    }
}

/// Runs a step of a move, and repeats it after a pause if `may_pass` returns true for its error. After five failures it returns the
/// last error. A step that failed must have changed nothing, or all that it was to change.
pub async fn retry_step<T, E>(
    may_pass: impl Fn(&E) -> bool,
    mut step: impl AsyncFnMut() -> Result<T, E>,
) -> Result<T, E> {
    let mut failures = 0;
    loop {
        // The future of a step is large.
        match Box::pin(step()).await {
            Err(error) if failures + 1 < TRIES && may_pass(&error) => {
                failures += 1;
                sleep(RETRY_PAUSE * failures).await;
            }
            done => return done,
        }
    }
}

/// Pauses after the batch that began at `began`, so that the services on the store can write. SQLite has no queue of writers: a
/// service polls for the lock, and would hardly get it between two batches.
pub async fn pause_after_batch(address: &Address, began: Instant) {
    if matches!(address, Address::Sqlite(_)) {
        sleep(began.elapsed().max(BATCH_PAUSE)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_step_is_tried_five_times_with_growing_pauses() {
        let (began, mut tries) = (tokio::time::Instant::now(), 0);
        let step = async || {
            tries += 1;
            Err::<(), _>("busy")
        };
        assert_eq!(retry_step(|_| true, step).await, Err("busy"));
        assert_eq!((tries, began.elapsed().as_secs()), (5, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_is_tried_again_only_while_its_error_may_pass() {
        let mut tries = 0;
        let step = async || {
            tries += 1;
            Err::<(), _>(if tries < 3 { "busy" } else { "refused" })
        };
        let may_pass = |error: &&str| *error == "busy";
        assert_eq!(retry_step(may_pass, step).await, Err("refused"));
        assert_eq!(tries, 3);
    }

    #[test]
    fn entries_that_were_added_meanwhile_count_in_the_total() {
        let mut so_far = RekeyProgress {
            total: 3,
            ..RekeyProgress::default()
        };
        so_far.count(2);
        assert_eq!((so_far.done, so_far.total), (2, 3));
        so_far.count(2);
        assert_eq!((so_far.done, so_far.total), (4, 4));
    }
}
