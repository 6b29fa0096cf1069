//! The re-encryption of a store after its master key was replaced.

use std::time::Instant;

use wardgate_domain::Ambient;
use wardgate_store::{Address, DatabaseSettings, RekeyProgress, pause_after_batch, retry_step};

use crate::store::MemoryStore;
use crate::{Error, MasterKeys};

/// How a re-encryption ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RekeyOutcome {
    /// Everything that can be decrypted was under the current master key already.
    NotNeeded {
        /// The number of conversations whose keys the current master key does not decrypt.
        unreadable: u64,
    },
    /// Everything that can be decrypted is under the current master key.
    Finished {
        /// The numbers of conversations. Those that are unreadable are all that the current master key does not decrypt, also those
        /// that an interrupted call passed.
        conversations: RekeyProgress,
        /// The number of messages of the moved conversations that could not be decrypted. The search does not find them.
        unreadable_messages: u64,
    },
}

/// Moves the store at `url` from the former to the current master key: the wrapped key of each conversation, and what hides
/// words and grounds. The services on the store go on meanwhile if they have both keys. Call it again after an interruption: it
/// goes on where it was. `progress` is called after every batch, and counts conversations. Fails if the store does not exist or no
/// service has used it yet, or if the current key is also one of the former ones.
pub async fn rekey(
    url: &str,
    settings: &DatabaseSettings,
    keys: MasterKeys,
    ambient: Ambient,
    mut progress: impl FnMut(&RekeyProgress),
) -> Result<RekeyOutcome, Error> {
    if keys.repeats_current() {
        return Err(Error::SameMasterKey);
    }
    let address = Address::new(url, settings)?;
    address.check_exists().map_err(|source| Error::Open {
        store: address.to_string(),
        source,
    })?;
    let store = MemoryStore::open(url, settings, keys, ambient)?;
    // The preparation of a service would put the current key in force in a store that is under none.
    store.prepare_schema().await?;
    let Some(total) = retry_step(may_pass, || store.begin_rekeying()).await? else {
        let unreadable = count_unreadable(&store).await?;
        return Ok(RekeyOutcome::NotNeeded { unreadable });
    };
    let mut unreadable_messages = 0;
    let mut so_far = RekeyProgress {
        total,
        ..RekeyProgress::default()
    };
    loop {
        let began = Instant::now();
        let batch = retry_step(may_pass, || store.rekey_batch()).await?;
        so_far.count(batch.conversations);
        so_far.unreadable += batch.unreadable;
        unreadable_messages += batch.unreadable_messages;
        progress(&so_far);
        if batch.is_last {
            break;
        }
        pause_after_batch(&address, began).await;
    }
    // In SQLite the keys under the former master key are overwritten. If readers prevent it now, the service does it later.
    store.scrub().await?;
    // This reads all keys, also those that the batches have counted.
    so_far.unreadable = count_unreadable(&store).await?;
    Ok(RekeyOutcome::Finished {
        conversations: so_far,
        unreadable_messages,
    })
}

/// Returns the number of conversations whose keys the current master key does not decrypt.
async fn count_unreadable(store: &MemoryStore) -> Result<u64, Error> {
    let (mut unreadable, mut after) = (0, 0);
    loop {
        let check = retry_step(may_pass, || store.check_keys(after)).await?;
        unreadable += check.unreadable;
        match check.last {
            Some(last) => after = last,
            None => return Ok(unreadable),
        }
    }
}

/// Returns whether a step can succeed when it is tried again: a transaction that failed has changed nothing.
fn may_pass(error: &Error) -> bool {
    matches!(error, Error::Late | Error::Database(_))
}
