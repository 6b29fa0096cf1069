//! The re-encryption of a store after its master key was replaced.

use std::time::{Duration, Instant};

use tokio::time::sleep;
use wardgate_domain::Ambient;
use wardgate_store::{Address, DatabaseSettings};

use crate::store::MemoryStore;
use crate::{Error, MasterKeys};

/// How often a batch is tried before the re-encryption gives up. It can be started again, and goes on.
const TRIES: u32 = 5;

/// Minimum pause between two batches on SQLite.
const PAUSE: Duration = Duration::from_millis(100);

/// How far the re-encryption is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RekeyProgress {
    /// The number of conversations that this run moved to the current master key.
    pub done: u64,
    /// The number of conversations that there were to move when this run began.
    pub total: u64,
    /// The number of conversations and messages that could not be opened with any key, and stay as they are.
    pub unreadable: u64,
}

/// How a re-encryption ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RekeyOutcome {
    /// Everything was under the current master key already.
    NotNeeded,
    /// Everything is under the current master key.
    Finished(RekeyProgress),
}

/// Moves the store at `url` from the former to the current master key: the wrapped key of each conversation, and what hides
/// words and grounds. The services on the store go on meanwhile if they have both keys. Call it again after an interruption: it
/// goes on where it was. `progress` is called after every batch.
pub async fn rekey(
    url: &str,
    settings: &DatabaseSettings,
    keys: MasterKeys,
    ambient: Ambient,
    mut progress: impl FnMut(&RekeyProgress),
) -> Result<RekeyOutcome, Error> {
    let address = Address::new(url, settings)?;
    if let Address::Sqlite(path) = &address {
        // Otherwise the file would be created.
        std::fs::metadata(path).map_err(|error| Error::Open {
            store: address.to_string(),
            source: error.into(),
        })?;
    }
    let store = MemoryStore::open(url, settings, keys, ambient)?;
    store.prepare().await?;
    let Some(total) = tried(|| store.begin_rekeying()).await? else {
        return Ok(RekeyOutcome::NotNeeded);
    };
    let mut so_far = RekeyProgress {
        total,
        ..RekeyProgress::default()
    };
    loop {
        let began = Instant::now();
        let batch = tried(|| store.rekey_batch()).await?;
        so_far.done += batch.conversations;
        so_far.unreadable += batch.unreadable;
        // Conversations that are created meanwhile come on top.
        so_far.total = so_far.total.max(so_far.done);
        progress(&so_far);
        if batch.is_last {
            break;
        }
        if store.is_a_file() {
            // SQLite has no queue of writers: a service polls for the lock, and would hardly get it between two batches.
            sleep(began.elapsed().max(PAUSE)).await;
        }
    }
    // In SQLite the keys under the former master key are overwritten. If readers prevent it now, the service does it later.
    store.scrub().await?;
    Ok(RekeyOutcome::Finished(so_far))
}

/// Does `work`, again if the store was busy. A transaction that failed has changed nothing.
async fn tried<T>(work: impl AsyncFn() -> Result<T, Error>) -> Result<T, Error> {
    let mut failures = 0;
    loop {
        match work().await {
            Err(Error::Late | Error::Database(_)) if failures + 1 < TRIES => failures += 1,
            done => return done,
        }
    }
}
