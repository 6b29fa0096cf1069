//! The rotation of the master key of the details of calls.
//!
//! ```text
//!   begin    the current key is put in force: it encrypts the key of the tags and every key that is added from now on
//!   batch    the next keys of data subjects are encrypted under the current key instead of the former one
//!   end      the former key is not needed any more
//! ```
//!
//! The store contains how far the rotation is, so it continues where it was interrupted. Until its end every service needs both
//! keys. Records, details and tags do not change.

use std::time::{Duration, Instant};

use tokio::time::sleep;
use wardgate_domain::{Ambient, Digest, SealBroken};
use wardgate_store::DatabaseSettings;

use crate::Error;
use crate::details_key::{DetailsKey, DetailsKeys};
use crate::master_key::KeyInForce;
use crate::store::{
    self, Address, MovedSubjectKey, StoreReader, StoreUpkeep, StoreWriter, open_error,
};

/// Maximum number of keys in one batch, which the service's own writes wait for on SQLite.
const BATCH: u64 = 256;

/// How often a batch is tried before the rotation gives up. It can be started again, and continues.
const TRIES: u32 = 5;

/// Minimum pause between two batches on SQLite.
const PAUSE: Duration = Duration::from_millis(100);

/// How far the rotation is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RekeyProgress {
    /// The number of keys of data subjects that this run encrypted under the current master key, or found to be so already.
    pub done: u64,
    /// The number of keys that were left when this run began.
    pub total: u64,
    /// The number of keys that no configured master key decrypts, and that stay as they are.
    pub unreadable: u64,
}

/// How a rotation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RekeyOutcome {
    /// Everything was encrypted under the current master key already.
    NotNeeded,
    /// Everything is encrypted under the current master key.
    Finished(RekeyProgress),
}

/// Moves the store at `url` from a former to the current one of `keys`: the key of each data subject, and the key of the tags.
/// The services on the store continue to run meanwhile if they have both keys. After an interruption, another call continues
/// where the last one stopped. `progress` is called after every batch.
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
    store::prepare(&address, settings).await?;
    let mut rotation = KeyRotation {
        reader: StoreReader::new(&address, settings),
        connection: None,
        address,
        keys,
        ambient,
    };
    let Some(total) = rotation.begin().await? else {
        return Ok(RekeyOutcome::NotNeeded);
    };
    let mut so_far = RekeyProgress {
        total,
        ..RekeyProgress::default()
    };
    loop {
        let began = Instant::now();
        let batch = rotation.run_batch().await?;
        so_far.done += batch.keys - batch.unreadable;
        so_far.unreadable += batch.unreadable;
        // Keys that services add meanwhile come on top.
        so_far.total = so_far.total.max(so_far.done + so_far.unreadable);
        progress(&so_far);
        if batch.is_last {
            break;
        }
        if matches!(rotation.address, Address::Sqlite(_)) {
            // SQLite has no queue of writers: a service polls for the lock, and would hardly get it between two batches.
            sleep(began.elapsed().max(PAUSE)).await;
        }
    }
    rotation.close().await?;
    Ok(RekeyOutcome::Finished(so_far))
}

/// What one batch did.
#[derive(Debug, Clone, Copy)]
struct RekeyBatch {
    /// The number of keys that were read.
    keys: u64,
    /// The number of these keys that neither master key decrypts.
    unreadable: u64,
    /// Whether everything is moved.
    is_last: bool,
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
            let adoption = in_force.adoption(&self.ambient);
            let adoption = adoption.map_err(|SealBroken| Error::NotDurable)?;
            self.write(&adoption).await?;
        }
        let current = self.keys.current().known_by();
        // A second turn reads what this or another process began.
        loop {
            let stored = self.reader.master_key().await?;
            let stored = stored.ok_or(Error::OtherDetailsKey)?;
            match stored.former {
                None if stored.known_by == current => return Ok(None),
                Some(_) if stored.known_by == current => {
                    let left = self.reader.count_subject_keys_after(&stored.position);
                    return left.await.map(Some);
                }
                Some(_) => return Err(Error::RekeyUnfinished),
                None => {
                    let begin = self.beginning(stored.known_by, stored.tag_key)?;
                    self.write(&begin).await?;
                }
            }
        }
    }

    /// Returns the change that puts the current master key in force instead of the one that `from` identifies. `tag_key` is the
    /// key of the tags, encrypted under the latter.
    fn beginning(&self, from: Digest, tag_key: Vec<u8>) -> Result<StoreUpkeep, Error> {
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

    /// Runs a batch, again if the store was busy. A batch that failed has changed nothing, or all that it was to change.
    async fn run_batch(&mut self) -> Result<RekeyBatch, Error> {
        let mut failures = 0;
        loop {
            match self.try_batch().await {
                Err(Error::Open { .. } | Error::Unreadable(_) | Error::KeysNotMoved(_))
                    if failures + 1 < TRIES =>
                {
                    failures += 1;
                }
                done => return done,
            }
        }
    }

    async fn try_batch(&mut self) -> Result<RekeyBatch, Error> {
        let to = self.keys.current().known_by();
        let stored = self.reader.master_key().await?;
        let stored = stored.ok_or(Error::OtherDetailsKey)?;
        let former = match stored.former {
            Some(former) if stored.known_by == to => self.keys.find(former),
            // Another process has ended the rotation.
            _ => {
                return Ok(RekeyBatch {
                    keys: 0,
                    unreadable: 0,
                    is_last: true,
                });
            }
        };
        let former = former.ok_or(Error::FormerDetailsKey)?.clone();
        let found = self.reader.subject_keys_after(&stored.position, BATCH);
        let found = found.await?;
        let mut batch = RekeyBatch {
            keys: found.len() as u64,
            unreadable: 0,
            is_last: found.is_empty(),
        };
        if let Some(position) = found.last().map(|(tag, _)| *tag) {
            let (moved, unreadable) = self.rewrap(&former, found);
            batch.unreadable = unreadable;
            let change = StoreUpkeep::MoveSubjectKeys {
                moved,
                position,
                to,
            };
            self.write(&change).await?;
        } else {
            self.write(&StoreUpkeep::EndRekey { to }).await?;
        }
        Ok(batch)
    }

    /// Encrypts those of `keys` under the current master key that `former` encrypts. Returns them, and the number of keys that
    /// neither master key decrypts.
    fn rewrap(
        &self,
        former: &DetailsKey,
        keys: Vec<(Digest, Vec<u8>)>,
    ) -> (Vec<MovedSubjectKey>, u64) {
        let (mut moved, mut unreadable) = (Vec::new(), 0);
        for (tag, wrapped) in keys {
            let current = self.keys.current();
            match current.rewrap(former, tag, &wrapped, &self.ambient) {
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

    /// Makes a change of the store. After a failure, the next change uses a new connection.
    async fn write(&mut self, change: &StoreUpkeep) -> Result<bool, Error> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => StoreWriter::connect(&self.address)
                .await
                .map_err(|source| open_error(&self.address, source))?,
        };
        let done = connection.keep_up(change).await;
        let done = done.map_err(Error::KeysNotMoved)?;
        self.connection = Some(connection);
        Ok(done)
    }

    async fn close(self) -> Result<(), Error> {
        match self.connection {
            Some(connection) => connection.close().await.map_err(Error::KeysNotMoved),
            None => Ok(()),
        }
    }
}
