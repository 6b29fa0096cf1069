//! The transparency log over the records: appends new records to the tree and signs its checkpoints.
//!
//! ```text
//!   writer, store ──leaf hashes──▶ CompactTree ──head──▶ signed checkpoint ──with size, root, full tiles──▶ store
//! ```
//!
//! A record is first durable, then in the tree, and then covered by a signed checkpoint, at most a second later. Appends wait
//! for neither: the tree is computed beside the writer from the leaf hashes of the records that this process stored. Leaf
//! hashes of records of other processes, or from before the start, are read from the store.
//!
//! Each checkpoint continues the one before: a tree that another process stored is compared with the records, and must begin
//! with the last signed tree, before a checkpoint of it is signed. The tree and its checkpoint are stored in one transaction,
//! which changes nothing if the stored tree is no longer the one that was continued, and nobody sees a checkpoint before.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use metrics::gauge;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use wardgate_domain::{Ambient, Digest};
use wardgate_telemetry::{as_float, names};
use wardgate_transparency::{
    Checkpoint, CompactTree, Error as NoteError, SignedNote, Signer, TreeHead, VerifierKey,
    consistency_path, consistency_ranges, tiles_of_ranges, verify_consistency,
};

use crate::Error;
use crate::store::{StoreReader, TileRoot, TreeGrowth};
use crate::writer::AppendQueue;

/// Interval during which new records are gathered before the tree grows by all of them at once. The longer it is, the more records
/// share the fixed cost of a step. A record that is stored during a step waits for the rest of that step, for this interval and
/// for its own step, all of which must fit in the promised second.
const GATHER: Duration = Duration::from_millis(800);

/// The interval while a step takes longer than [`FAST_STEP`], or its duration is unknown.
const GATHER_IF_SLOW: Duration = Duration::from_millis(500);

/// Maximum duration of a step after which records are gathered for [`GATHER`], with a reserve for a next step that takes longer.
const FAST_STEP: Duration = Duration::from_millis(80);

/// Interval between checks for records of other processes, which may have ended before they signed a checkpoint.
const IDLE: Duration = Duration::from_secs(5);

/// Additional delay after a failure.
const RETRY: Duration = Duration::from_millis(500);

/// Maximum number of records that are added to the tree in one transaction.
const STEP: u64 = 8_192;

/// Interval between log messages about the progress of a long catch-up.
const PROGRESS: Duration = Duration::from_secs(5);

/// Maximum time for the last checkpoint when the service shuts down.
const LAST_CHECKPOINT: Duration = Duration::from_secs(5);

/// The Ed25519 signing key of the log.
pub struct LogKey(Vec<u8>);

impl LogKey {
    /// Creates the key from a private key in PKCS#8 DER (RFC 8410).
    pub fn from_pkcs8(der: &[u8]) -> Result<Self, Error> {
        Signer::from_pkcs8(UNNAMED, der)?;
        Ok(Self(der.to_vec()))
    }

    /// Returns the key that verifies the checkpoints of the log `origin`.
    pub fn verifier_key(&self, origin: &str) -> Result<VerifierKey, Error> {
        let signer = Signer::from_pkcs8(origin, &self.0)?;
        Ok(signer.verifier_key().clone())
    }

    /// Returns the default origin, which is derived from the key and therefore differs between logs with different keys.
    fn default_origin(&self) -> Result<String, Error> {
        let digest = Digest::compute(self.verifier_key(UNNAMED)?.to_string().as_bytes());
        Ok(format!("wardgate/{}", &digest.to_string()[..16]))
    }
}

const UNNAMED: &str = "wardgate";

impl fmt::Debug for LogKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LogKey")
    }
}

/// Ends the background work of the service, and signs a checkpoint of the newest records.
#[derive(Debug)]
pub struct LogCloser {
    pub(crate) stop: CancellationToken,
    pub(crate) publishing: JoinHandle<()>,
    /// The cosigning task, which ends after the publisher.
    pub(crate) cosigning: Option<JoinHandle<()>>,
    /// The tasks that read new records: exports and anomaly detection. Each releases its claim when it ends.
    pub(crate) followers: Vec<JoinHandle<()>>,
}

impl LogCloser {
    /// Waits until the last checkpoint is signed. Must be called after the last request is served.
    pub async fn close(self) {
        self.stop.cancel();
        let end = Instant::now() + LAST_CHECKPOINT;
        if timeout_at(end, self.publishing).await.is_err() {
            tracing::warn!(
                "the newest records are not covered by a checkpoint yet; the next start signs one"
            );
        }
        if let Some(cosigning) = self.cosigning
            && timeout_at(end, cosigning).await.is_err()
        {
            tracing::warn!("the last checkpoint is not cosigned; the next start requests it again");
        }
        // A task that does not end in time does not release its claim, which then has to expire.
        for follower in self.followers {
            drop(timeout_at(end, follower).await);
        }
    }
}

/// The identity of a log besides its key.
pub(crate) struct LogIdentity<'a> {
    /// The configured origin. With `None`, the log keeps its origin; a new log gets one that is derived from its key.
    pub(crate) origin: Option<&'a str>,
    /// The key that verifies the checkpoints signed before the log's key was replaced.
    pub(crate) former_key: Option<VerifierKey>,
}

/// The newest checkpoint in the store.
struct StoredCheckpoint {
    note: SignedNote,
    checkpoint: Checkpoint,
}

impl StoredCheckpoint {
    fn parse(note: &str) -> Result<Self, Error> {
        let note: SignedNote = note.parse().map_err(Error::AlteredCheckpoint)?;
        let checkpoint = note.text().parse().map_err(Error::AlteredCheckpoint)?;
        Ok(Self { note, checkpoint })
    }

    /// Fails unless the checkpoint belongs to the log of `key` and is signed with this key or with the former key.
    fn verify(&self, key: &VerifierKey, former: Option<&VerifierKey>) -> Result<(), Error> {
        if self.checkpoint.origin != key.name() {
            return Err(Error::OtherLog {
                stored: self.checkpoint.origin.clone(),
                configured: key.name().to_owned(),
            });
        }
        for key in std::iter::once(key).chain(former) {
            match key.verify(&self.note) {
                Err(NoteError::NotSigned(_)) => {}
                verified => return verified.map_err(Error::AlteredCheckpoint),
            }
        }
        Err(Error::OtherLogKey {
            configured: key.to_string(),
        })
    }
}

/// The log of a store whose newest checkpoint was verified.
pub(crate) struct VerifiedLog {
    signer: Signer,
    /// The tree of the newest checkpoint.
    signed: TreeHead,
    /// The number of records in the stored tree.
    tree_size: u64,
}

impl VerifiedLog {
    /// Opens the log of a store. Fails if the newest checkpoint is not as the log signed it. Writes nothing.
    pub(crate) async fn open(
        reader: &StoreReader,
        key: &LogKey,
        identity: LogIdentity<'_>,
    ) -> Result<Self, Error> {
        let tree = reader.tree().await?;
        let stored = tree.checkpoint.as_deref().map(StoredCheckpoint::parse);
        let stored = stored.transpose()?;
        let origin = match (identity.origin, &stored) {
            (Some(origin), _) => origin.to_owned(),
            (None, Some(stored)) => stored.checkpoint.origin.clone(),
            (None, None) => key.default_origin()?,
        };
        let signer = Signer::from_pkcs8(&origin, &key.0)?;
        if let Some(stored) = &stored {
            stored.verify(signer.verifier_key(), identity.former_key.as_ref())?;
        }
        Ok(Self {
            signed: stored.map_or(CompactTree::default().head(), |it| it.checkpoint.head),
            signer,
            tree_size: tree.head.size,
        })
    }
}

/// Adds new records to the tree, and signs its checkpoints.
pub(crate) struct Publisher {
    reader: StoreReader,
    appends: AppendQueue,
    signer: Signer,
    /// The tree as the store has it, or `None` until it was compared with the records.
    tree: Option<CompactTree>,
    /// The tree of the newest known checkpoint, whichever process signed it.
    signed: TreeHead,
    /// The newest checkpoint that this process signed and stored.
    published: watch::Sender<Option<SignedNote>>,
    /// The duration of the last step, or `None` before the first one and after a failure.
    last_step: Option<Duration>,
    ambient: Ambient,
}

impl Publisher {
    /// Continues from the newest checkpoint in the store. Brings the tree and the checkpoint up to date with the records,
    /// unless they are so many that this is done while the service runs.
    pub(crate) async fn start(
        reader: StoreReader,
        appends: AppendQueue,
        log: VerifiedLog,
        ambient: Ambient,
    ) -> Result<Self, Error> {
        let VerifiedLog {
            signer,
            signed,
            tree_size,
        } = log;
        let backlog = reader.head().await?.size.saturating_sub(tree_size);
        let key = signer.verifier_key();
        tracing::info!(%key, "verify the checkpoints of the audit log with this key");
        let mut publisher = Self {
            tree: None,
            signed,
            published: watch::Sender::new(None),
            last_step: None,
            reader,
            appends,
            signer,
            ambient,
        };
        gauge!(names::AUDIT_CHECKPOINT_TIME).set(0.0);
        if backlog <= STEP {
            publisher.try_publish(None).await;
        } else {
            tracing::info!(
                backlog,
                "the tree of the audit log is being built while the service runs; until it is complete, no checkpoint is signed"
            );
        }
        Ok(publisher)
    }

    /// Returns a receiver of the newest checkpoint that this process signed and stored. Its sender is dropped with the
    /// publisher.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Option<SignedNote>> {
        self.published.subscribe()
    }

    /// Returns the key that verifies the checkpoints of this log.
    pub(crate) fn verifier_key(&self) -> &VerifierKey {
        self.signer.verifier_key()
    }

    /// Publishes new records until `stop` is cancelled, and then once more.
    pub(crate) async fn run(mut self, stop: CancellationToken, mut size: watch::Receiver<u64>) {
        // Work that was not done at the start is done immediately.
        let mut wait = if self.published.borrow().is_some() {
            IDLE
        } else {
            Duration::ZERO
        };
        loop {
            let interval = gathering_interval(self.last_step);
            let gathered = gather(&mut size, wait, interval);
            let Some(appended) = stop.run_until_cancelled(gathered).await else {
                break;
            };
            // A long catch-up is interrupted when the service shuts down, and continues after the next start.
            wait = match stop.run_until_cancelled(self.try_publish(appended)).await {
                Some(true) => IDLE,
                Some(false) => RETRY,
                None => break,
            };
        }
        self.try_publish(None).await;
    }

    /// Brings the tree and the checkpoint up to the first `size` records, or up to all of them with `None`. Returns whether
    /// that succeeded.
    async fn try_publish(&mut self, size: Option<u64>) -> bool {
        let Err(error) = self.publish(size).await else {
            set_time(names::AUDIT_CHECKPOINT_TIME, &self.ambient);
            return true;
        };
        self.last_step = None;
        let error = &error as &dyn std::error::Error;
        tracing::error!(
            error,
            "the newest records are not covered by a signed checkpoint"
        );
        false
    }

    /// Lets the tree grow to `size` records, or to all of them with `None`, and signs a checkpoint.
    async fn publish(&mut self, size: Option<u64>) -> Result<(), Error> {
        let size = match size {
            Some(size) => size,
            None => self.reader.head().await?.size,
        };
        let mut told = Instant::now();
        let mut tree = match self.tree.take() {
            Some(tree) => tree,
            None => self.stored_tree(self.signed).await?,
        };
        while tree.size() < size || !self.is_published(&tree.head()) {
            tree = self.grow(tree, size).await?;
            gauge!(names::AUDIT_TREE_BACKLOG).set(as_float(size.saturating_sub(tree.size())));
            if told.elapsed() >= PROGRESS {
                told = Instant::now();
                let done = tree.size();
                tracing::info!(done, of = size, "the tree of the audit log is being built");
            }
        }
        self.tree = Some(tree);
        Ok(())
    }

    /// Returns whether this process has signed and stored a checkpoint of the tree `head`, and none since.
    fn is_published(&self, head: &TreeHead) -> bool {
        self.signed == *head && self.published.borrow().is_some()
    }

    /// Returns `tree` after it grew by at most [`STEP`] records towards `size`. The step that reaches `size` signs a
    /// checkpoint. If another process changed the stored tree in the meantime, returns the tree of that process.
    async fn grow(&mut self, mut tree: CompactTree, size: u64) -> Result<CompactTree, Error> {
        let begun = Instant::now();
        let from = tree.head();
        let end = size.min(from.size + STEP).max(from.size);
        let tile_roots = self.append_leaves(&mut tree, from.size..end).await?;
        let to = tree.head();
        let note = if to.size >= size {
            Some(self.sign(to)?)
        } else {
            None
        };
        let growth = TreeGrowth {
            from,
            to,
            tile_roots,
            checkpoint: note.as_ref().map(ToString::to_string),
        };
        let has_grown = self.appends.grow(growth).await?;
        self.last_step = Some(begun.elapsed());
        if !has_grown {
            return self.stored_tree(from).await;
        }
        if note.is_some() {
            self.signed = to;
            self.published.send_replace(note);
        }
        Ok(tree)
    }

    /// Appends the leaf hashes of the records of `range` to `tree`. Returns the roots of the tiles that became full.
    async fn append_leaves(
        &self,
        tree: &mut CompactTree,
        range: Range<u64>,
    ) -> Result<Vec<TileRoot>, Error> {
        let leaves = match self.appends.take_leaf_hashes(&range) {
            Some(leaves) => leaves,
            None => self.reader.leaf_hashes(range).await?.as_chunks().0.to_vec(),
        };
        let mut tile_roots = Vec::new();
        for leaf in leaves {
            tree.append(leaf, |node, root| {
                if node.height % 8 == 0 {
                    tile_roots.push(TileRoot {
                        level: node.height / 8,
                        position: node.index,
                        root: *root,
                    });
                }
            });
        }
        Ok(tile_roots)
    }

    fn sign(&self, head: TreeHead) -> Result<SignedNote, Error> {
        let origin = self.signer.verifier_key().name().to_owned();
        Ok(self.signer.sign(&Checkpoint { origin, head }.to_string())?)
    }

    /// Returns the tree in the store. Fails if it is not the tree of the records, or does not begin with `old`.
    async fn stored_tree(&self, old: TreeHead) -> Result<CompactTree, Error> {
        let new = self.reader.tree().await?.head;
        let ranges = consistency_ranges(old.size, new.size);
        let whole = std::iter::once(0..new.size);
        let ids = tiles_of_ranges(whole.chain(ranges), new.size);
        let tiles = self.reader.tiles(ids).await?;
        let subtrees = CompactTree::nodes(new.size).map(|node| tiles.node(node));
        let tree = CompactTree::new(new.size, subtrees.collect::<Result<_, _>>()?)?;
        if tree.head() != new {
            let problem = format!("the records below {} do not match its root", new.size);
            return Err(Error::DamagedTree(problem));
        }
        let path = consistency_path(old.size, new.size, |node| tiles.node(node))?;
        verify_consistency(&old, &new, &path)?;
        Ok(tree)
    }
}

/// Returns the interval during which records are gathered after a step of this duration.
fn gathering_interval(last_step: Option<Duration>) -> Duration {
    if last_step.is_some_and(|duration| duration <= FAST_STEP) {
        GATHER
    } else {
        GATHER_IF_SLOW
    }
}

/// Waits until this process appends records, at most for `wait`, and then for further records during `interval`. Returns the number
/// of records after the last append, or `None` if this process appended none, so that the records of other processes are due.
async fn gather(
    size: &mut watch::Receiver<u64>,
    wait: Duration,
    interval: Duration,
) -> Option<u64> {
    let woken = timeout(wait, size.changed()).await;
    sleep(interval).await;
    let appended = *size.borrow_and_update();
    // Records of other processes beyond this size are published by those processes, or after the next idle interval.
    woken.is_ok().then_some(appended)
}

/// Sets a gauge to the current time.
pub(crate) fn set_time(gauge: &'static str, ambient: &Ambient) {
    let now = u64::try_from(ambient.now().as_seconds()).unwrap_or(0);
    gauge!(gauge).set(as_float(now));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The promised maximum of the time from a durable record to the checkpoint that covers it.
    const PROMISED: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a7_a_new_record_waits_less_than_a_second_for_its_checkpoint() {
        let (sender, mut size) = watch::channel(0);
        let steps = [None, Some(FAST_STEP), Some(FAST_STEP * 2)];
        for (records, last_step) in (1..).zip(steps) {
            // The record is appended while the publisher is idle.
            let append = async {
                sleep(IDLE / 2).await;
                sender.send_replace(records);
                Instant::now()
            };
            let interval = gathering_interval(last_step);
            let gathered = gather(&mut size, IDLE, interval);
            let (gathered, appended_at) = tokio::join!(gathered, append);
            assert_eq!(gathered, Some(records));
            // A record that is appended at the beginning of a step waits for this step too.
            let waited = appended_at.elapsed() + last_step.unwrap_or(FAST_STEP) * 2;
            assert!(waited < PROMISED, "{waited:?}");
        }
        assert_eq!(gather(&mut size, IDLE, GATHER).await, None);
    }

    #[test]
    fn records_are_gathered_longer_after_a_fast_step() {
        let intervals = [Some(FAST_STEP), Some(FAST_STEP * 2), None].map(gathering_interval);
        assert_eq!(intervals, [GATHER, GATHER_IF_SLOW, GATHER_IF_SLOW]);
    }
}
