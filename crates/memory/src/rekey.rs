//! The re-encryption of a store after its master key was replaced.

use std::time::Instant;

use wardgate_domain::Ambient;
use wardgate_store::{Address, DatabaseSettings, RekeyProgress, pause_after_batch, retry_step};

use crate::store::MemoryStore;
use crate::{Error, MasterKeys};

/// What a re-encryption reports while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RekeyEvent<'a> {
    /// A batch of conversations ended. The numbers are those of all batches of this run.
    Moved(&'a RekeyProgress),
    /// A batch found this number of messages that cannot be decrypted. A later run does not find them again.
    UnreadableMessages(u64),
    /// This number of conversations was checked after the move.
    Checked(u64),
    /// The current master key does not decrypt the conversation with this identifier.
    Unreadable(&'a str),
}

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
/// goes on where it was. `report` is called after every batch and every step of the check. Fails if the store does not exist or no
/// service has used it yet, or if the current key is also one of the former ones.
pub async fn rekey(
    url: &str,
    settings: &DatabaseSettings,
    keys: MasterKeys,
    ambient: Ambient,
    mut report: impl FnMut(RekeyEvent<'_>),
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
        let unreadable = count_unreadable(&store, &mut report).await?;
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
        report(RekeyEvent::Moved(&so_far));
        if batch.unreadable_messages > 0 {
            report(RekeyEvent::UnreadableMessages(batch.unreadable_messages));
        }
        if batch.is_last {
            break;
        }
        pause_after_batch(&address, began).await;
    }
    // In SQLite the keys under the former master key are overwritten. If readers prevent it now, the service does it later.
    store.scrub().await?;
    // This reads all keys, also those that the batches have counted.
    so_far.unreadable = count_unreadable(&store, &mut report).await?;
    Ok(RekeyOutcome::Finished {
        conversations: so_far,
        unreadable_messages,
    })
}

/// Returns the number of conversations whose keys the current master key does not decrypt, and reports each of them.
async fn count_unreadable(
    store: &MemoryStore,
    report: &mut impl FnMut(RekeyEvent<'_>),
) -> Result<u64, Error> {
    let (mut unreadable, mut checked, mut after) = (0, 0, 0);
    loop {
        let check = retry_step(may_pass, || store.check_keys(after)).await?;
        for identifier in &check.unreadable {
            report(RekeyEvent::Unreadable(identifier));
        }
        unreadable += check.unreadable.len() as u64;
        checked += check.checked;
        report(RekeyEvent::Checked(checked));
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
