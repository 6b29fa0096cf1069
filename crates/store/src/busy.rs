//! Waiting for a busy store at startup.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::{Address, MigrationError, is_busy};

/// Maximum time for which startup waits for a busy store.
const PATIENCE: Duration = Duration::from_mins(1);

/// Interval between two attempts.
const PAUSE: Duration = Duration::from_millis(100);

/// Interval between two log messages about the store that startup waits for.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);

/// Prepares the store at `address` by `prepare`, which is repeated for as long as the store is busy, but for at most a minute.
/// A file is busy if another program has locked it, or if a busy machine opens it slowly.
pub async fn prepare_when_free<F>(
    address: &Address,
    prepare: impl Fn() -> F,
) -> Result<(), MigrationError>
where
    F: Future<Output = Result<(), MigrationError>>,
{
    let mut wait = StartWait::for_store(address);
    loop {
        match prepare().await {
            Err(MigrationError::Database(cause)) if is_busy(&cause) && wait.pause(&cause).await => {
            }
            prepared => return prepared,
        }
    }
}

/// The wait of one startup for one store.
#[derive(Debug)]
pub struct StartWait {
    store: String,
    began: Instant,
    reported: Option<Instant>,
}

impl StartWait {
    /// Creates a wait for `store`. The log names it as it is displayed, so this must be without credentials.
    pub fn for_store(store: &impl fmt::Display) -> Self {
        Self {
            store: store.to_string(),
            began: Instant::now(),
            reported: None,
        }
    }

    /// Waits until the next attempt is due and returns true, or returns false once the wait has lasted a minute. From
    /// time to time it logs the store and the cause of the wait.
    pub async fn pause(&mut self, cause: &(dyn Error + Send + Sync + 'static)) -> bool {
        let waited = self.began.elapsed();
        if waited >= PATIENCE {
            return false;
        }
        if self
            .reported
            .is_none_or(|reported| reported.elapsed() >= REPORT_INTERVAL)
        {
            self.reported = Some(Instant::now());
            tracing::warn!(
                store = self.store,
                waited_s = waited.as_secs(),
                cause,
                "waiting for the store, which is busy"
            );
        }
        sleep(PAUSE).await;
        true
    }
}

#[cfg(test)]
mod tests {
    use sqlx::{ConnectOptions, Connection};

    use super::*;
    use crate::sqlite;

    #[tokio::test]
    async fn a_file_that_somebody_else_has_locked_is_busy_and_one_that_is_missing_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store.sqlite");
        let options = sqlite::options(&path, Duration::ZERO);
        let missing = options.connect().await.unwrap_err();
        assert!(!is_busy(&missing), "{missing}");
        let options = options.create_if_missing(true);
        let mut one = options.connect().await.unwrap();
        let mut other = options.connect().await.unwrap();
        let lock = one.begin_with("BEGIN IMMEDIATE").await.unwrap();
        let locked = other.begin_with("BEGIN IMMEDIATE").await.unwrap_err();
        assert!(is_busy(&locked), "{locked}");
        drop(lock);
        assert!(is_busy(&sqlx::Error::PoolTimedOut));
    }

    #[tokio::test(start_paused = true)]
    async fn a_start_waits_for_a_minute_and_no_longer() {
        let mut wait = StartWait::for_store(&"sqlite:store");
        let began = Instant::now();
        while wait.pause(&sqlx::Error::PoolTimedOut).await {}
        assert_eq!(began.elapsed().as_secs(), PATIENCE.as_secs());
    }
}
