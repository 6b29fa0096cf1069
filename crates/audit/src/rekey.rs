//! The rotation of the master key of the details of calls.
//!
//! ```text
//!   begin    the current key is put in force: it encrypts the key of the tags and every key that is added from now on
//!   batch    the next keys of data subjects are encrypted under the current key instead of a former one
//!   check    all keys are read again, until none of them is under a former key
//!   end      the former key is not needed any more
//!   scrub    the files of the store do not contain the replaced keys any more
//! ```
//!
//! The check is necessary because a service of the previous release, which does not know of the rotation, adds keys under the
//! former key at any time. It can do so even after the end, so the check is also made if the current key is in force already.
//! If it continues to do so, the rotation ends with an error, and the keys that were moved stay so.
//!
//! The store contains how far the rotation is, so it continues where it was interrupted. Until its end every service needs both
//! keys. Records, details and tags do not change.

use std::time::Instant;

use wardgate_domain::{Ambient, Digest, SealBroken};
use wardgate_store::{DatabaseSettings, RekeyProgress, pause_after_batch, retry_step};

use crate::Error;
use crate::details_key::{DetailsKeys, common_tag};
use crate::master_key::{KeyInForce, check_former};
use crate::store::{
    self, Address, MasterKeyState, MovedSubjectKey, StoreReader, StoreUpkeep, StoreWriter,
    open_error,
};

/// Maximum number of keys in one batch, which the service's own writes wait for on SQLite.
const BATCH: u64 = 256;

/// How many checks may find keys to move before the rotation gives up. Services of this release add no keys under a former one
/// once the current key is in force.
const MOVING_CHECKS: u32 = 3;

/// How a rotation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RekeyOutcome {
    /// The current master key was in force already, without a rotation in progress, and no former key is configured. The keys of
    /// data subjects were not read.
    NotInProgress,
    /// Everything that a configured key decrypts was encrypted under the current master key already.
    NotNeeded {
        /// The number of keys of data subjects that no configured master key decrypts.
        unreadable: u64,
    },
    /// Everything that a configured key decrypts is encrypted under the current master key.
    Finished(RekeyProgress),
}

/// Moves the store at `url` from a former to the current one of `keys`: the key of each data subject, and the key of the tags.
/// The services on the store continue to run meanwhile if they have both keys. After an interruption, another call continues
/// where the last one stopped. `progress` is called after every batch, and counts keys of data subjects. Fails if the store does
/// not exist or has no keys yet.
pub async fn rekey(
    url: &str,
    settings: &DatabaseSettings,
    keys: DetailsKeys,
    ambient: Ambient,
    mut progress: impl FnMut(&RekeyProgress),
) -> Result<RekeyOutcome, Error> {
    if keys.repeats_current() {
        return Err(Error::SameDetailsKey);
    }
    let address = Address::new(url, settings)?;
    address
        .check_exists()
        .map_err(|source| open_error(&address, source))?;
    store::prepare(&address, settings).await?;
    let mut rotation = KeyRotation {
        reader: StoreReader::new(&address, settings),
        connection: None,
        address,
        keys,
        ambient,
    };
    let left = retry_step(may_pass, async || rotation.begin().await).await?;
    let mut so_far = RekeyProgress {
        total: left.unwrap_or(0),
        ..RekeyProgress::default()
    };
    if left.is_some() {
        rotation.move_rest(&mut so_far, &mut progress).await?;
    }
    let has_former = rotation.keys.has_former();
    if has_former {
        let mut moving = 0;
        while rotation.check(&mut so_far, &mut progress).await? == KeyCheck::Moved {
            moving += 1;
            if moving == MOVING_CHECKS {
                return Err(Error::FormerKeyInUse);
            }
        }
    }
    if left.is_some() {
        retry_step(may_pass, async || rotation.end().await).await?;
    }
    // A process that was killed after the end has not done this.
    retry_step(may_pass, async || rotation.scrub().await).await?;
    rotation.close().await?;
    Ok(if left.is_some() || so_far.done > 0 {
        RekeyOutcome::Finished(so_far)
    } else if has_former {
        RekeyOutcome::NotNeeded {
            unreadable: so_far.unreadable,
        }
    } else {
        RekeyOutcome::NotInProgress
    })
}

/// Returns whether a step can succeed when it is tried again. A step that failed has changed nothing, or all that it was to change.
fn may_pass(error: &Error) -> bool {
    matches!(
        error,
        Error::Open { .. } | Error::Unreadable(_) | Error::KeysNotMoved(_)
    )
}

/// What one batch did.
#[derive(Debug, Clone)]
struct RekeyBatch {
    /// The number of keys that were read.
    keys: u64,
    /// The number of these keys that were encrypted again.
    moved: u64,
    /// The number of these keys that no configured master key decrypts.
    unreadable: u64,
    /// The tag of the last of these keys.
    last: Vec<u8>,
}

/// What a check of all keys found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyCheck {
    /// Some keys were under a former master key, and were moved.
    Moved,
    /// Nothing was left to move.
    Clean,
}

struct KeyRotation {
    reader: StoreReader,
    /// The connection for writing, or `None` before the first write and after a failure.
    connection: Option<StoreWriter>,
    address: Address,
    keys: DetailsKeys,
    ambient: Ambient,
}

impl KeyRotation {
    /// Puts the current master key in force, unless it is. Returns the number of keys that are left to move, or `None` if
    /// nothing is encrypted under another key.
    async fn begin(&mut self) -> Result<Option<u64>, Error> {
        let in_force = KeyInForce::find(&self.keys, &self.reader).await?;
        if !in_force.is_stored {
            let common = self.reader.subject_keys(&[common_tag()]).await?;
            if common.is_empty() {
                return Err(Error::NoSubjectKeys);
            }
            let adoption = in_force.adoption(&self.ambient);
            let adoption = adoption.map_err(|SealBroken| Error::NotDurable)?;
            self.write(&adoption).await?;
        }
        let current = self.keys.current().known_by();
        // A second turn reads what this or another process began.
        loop {
            let stored = self.stored_key().await?;
            match stored.former {
                None if stored.known_by == current => return Ok(None),
                Some(_) if stored.known_by == current => {
                    let left = self.reader.count_subject_keys_after(&stored.position);
                    return left.await.map(Some);
                }
                Some(_) => return Err(Error::RekeyUnfinished),
                None => {
                    let begin = self.begin_rekey_upkeep(stored.known_by, stored.tag_key)?;
                    self.write(&begin).await?;
                }
            }
        }
    }

    /// Reads which master key is in force. Fails if the store does not state it, or is being moved from a key that is not
    /// configured.
    async fn stored_key(&self) -> Result<MasterKeyState, Error> {
        let stored = self.reader.master_key().await?;
        let stored = stored.ok_or(Error::OtherDetailsKey)?;
        check_former(&self.keys, &stored)?;
        Ok(stored)
    }

    /// Returns the change that puts the current master key in force instead of the one that `from` identifies. `tag_key` is the
    /// key of the tags, encrypted under the latter.
    fn begin_rekey_upkeep(&self, from: Digest, tag_key: Vec<u8>) -> Result<StoreUpkeep, Error> {
        let (former, current) = (self.keys.find(from), self.keys.current());
        let former = former.ok_or(Error::OtherDetailsKey)?;
        let moved = former
            .unwrap_tag_key(tag_key)
            .and_then(|tags| current.wrap_tag_key(&tags, &self.ambient));
        Ok(StoreUpkeep::BeginRekey {
            from,
            to: current.known_by(),
            tag_key: moved.map_err(|SealBroken| Error::OtherDetailsKey)?,
        })
    }

    /// Moves the keys after the stored position of the rotation.
    async fn move_rest(
        &mut self,
        so_far: &mut RekeyProgress,
        progress: &mut impl FnMut(&RekeyProgress),
    ) -> Result<(), Error> {
        loop {
            let began = Instant::now();
            let batch = retry_step(may_pass, async || self.run_batch(None).await).await?;
            let Some(batch) = batch else {
                return Ok(());
            };
            so_far.count(batch.keys - batch.unreadable);
            so_far.unreadable += batch.unreadable;
            progress(so_far);
            pause_after_batch(&self.address, began).await;
        }
    }

    /// Reads all keys once, and moves those that are under a former master key.
    async fn check(
        &mut self,
        so_far: &mut RekeyProgress,
        progress: &mut impl FnMut(&RekeyProgress),
    ) -> Result<KeyCheck, Error> {
        // One zero byte is less than every tag.
        let mut after = vec![0];
        let (mut outcome, mut unreadable) = (KeyCheck::Clean, 0);
        loop {
            let began = Instant::now();
            let batch = retry_step(may_pass, async || {
                self.run_batch(Some(after.as_slice())).await
            })
            .await?;
            let Some(batch) = batch else {
                break;
            };
            unreadable += batch.unreadable;
            so_far.count(batch.moved);
            progress(so_far);
            after = batch.last;
            if batch.moved > 0 {
                outcome = KeyCheck::Moved;
                pause_after_batch(&self.address, began).await;
            }
        }
        // The check has read all keys, also those that the batches have counted.
        so_far.unreadable = unreadable;
        Ok(outcome)
    }

    /// Moves the next keys: in a check those after the tag `checked`, and otherwise those after the stored position, which then
    /// advances. Returns `None` if there are no more, or if another process has ended the rotation.
    async fn run_batch(&mut self, checked: Option<&[u8]>) -> Result<Option<RekeyBatch>, Error> {
        let to = self.keys.current().known_by();
        let stored = self.stored_key().await?;
        let is_in_progress = checked.is_some() || stored.former.is_some();
        if stored.known_by != to || !is_in_progress {
            return Ok(None);
        }
        let after = checked.unwrap_or(&stored.position);
        let found = self.reader.subject_keys_after(after, BATCH).await?;
        let Some(last) = found.last().map(|(tag, _)| tag.as_bytes().to_vec()) else {
            return Ok(None);
        };
        let keys = found.len() as u64;
        let (moved, unreadable) = self.rewrap(found);
        let batch = RekeyBatch {
            keys,
            moved: moved.len() as u64,
            unreadable,
            last,
        };
        let position = match checked {
            Some(_) => stored.position,
            None => batch.last.clone(),
        };
        if checked.is_none() || batch.moved > 0 {
            let change = StoreUpkeep::MoveSubjectKeys {
                moved,
                position,
                to,
            };
            self.write(&change).await?;
        }
        Ok(Some(batch))
    }

    /// Encrypts those of `keys` under the current master key that a former one encrypts. Returns them, and the number of keys
    /// that no configured master key decrypts.
    fn rewrap(&self, keys: Vec<(Digest, Vec<u8>)>) -> (Vec<MovedSubjectKey>, u64) {
        let (mut moved, mut unreadable) = (Vec::new(), 0);
        for (tag, wrapped) in keys {
            match self.keys.rewrap(tag, &wrapped, &self.ambient) {
                Ok(Some(rewrapped)) => moved.push(MovedSubjectKey {
                    tag,
                    former: wrapped,
                    wrapped: rewrapped,
                }),
                Ok(None) => {}
                Err(SealBroken) => unreadable += 1,
            }
        }
        (moved, unreadable)
    }

    /// Ends the rotation, unless another process has ended it.
    async fn end(&mut self) -> Result<(), Error> {
        let to = self.keys.current().known_by();
        self.write(&StoreUpkeep::EndRekey { to }).await.map(drop)
    }

    /// Removes the replaced keys from the files of the store.
    async fn scrub(&mut self) -> Result<(), Error> {
        let mut connection = self.take_connection().await?;
        connection.scrub().await.map_err(Error::KeysNotMoved)?;
        self.connection = Some(connection);
        Ok(())
    }

    /// Makes a change of the store. After a failure, the next change uses a new connection.
    async fn write(&mut self, change: &StoreUpkeep) -> Result<bool, Error> {
        let mut connection = self.take_connection().await?;
        let done = connection.keep_up(change).await;
        let done = done.map_err(Error::KeysNotMoved)?;
        self.connection = Some(connection);
        Ok(done)
    }

    /// Takes the connection for writing.
    async fn take_connection(&mut self) -> Result<StoreWriter, Error> {
        match self.connection.take() {
            Some(connection) => Ok(connection),
            None => StoreWriter::connect(&self.address)
                .await
                .map_err(|source| open_error(&self.address, source)),
        }
    }

    async fn close(self) -> Result<(), Error> {
        match self.connection {
            Some(connection) => connection.close().await.map_err(Error::KeysNotMoved),
            None => Ok(()),
        }
    }
}
