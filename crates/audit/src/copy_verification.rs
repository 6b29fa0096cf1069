//! Verification of a second copy without the store.

use std::collections::VecDeque;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use wardgate_transparency::{Checkpoint, CompactTree, Hash, TreeHead, TrustPolicy, leaf_hash};

use crate::receipt::CallReceipt;
use crate::record_line::CHECKPOINT;
use crate::second_copy::{FILE_RECORDS, for_each_record, list_files};
use crate::verification_input::{VerificationError, open, read_checkpoint};

/// The state of the verification of a second copy. Its files can contain the same records.
pub(crate) struct CopyVerification<'a> {
    path: &'a Path,
    checkpoint: Checkpoint,
    since: Option<(PathBuf, TreeHead)>,
    receipt: Option<CallReceipt>,
    tree: CompactTree,
    /// The newest leaf hashes, at most as many as one file has records.
    recent: VecDeque<Hash>,
    /// Whether the tree had the head of the checkpoint.
    has_root: bool,
    begins_with_older: bool,
    has_record: bool,
}

impl<'a> CopyVerification<'a> {
    /// Begins to verify the copy at `path`. Fails if `policy` does not trust its checkpoint.
    pub(crate) fn new(
        path: &'a Path,
        policy: &TrustPolicy,
        since: Option<(PathBuf, TreeHead)>,
        receipt: Option<CallReceipt>,
    ) -> Result<Self, VerificationError> {
        let note = path.join(CHECKPOINT);
        let checkpoint = read_checkpoint(&note, |note| policy.verify(note))?;
        let mut started = Self {
            path,
            checkpoint,
            begins_with_older: since.is_none(),
            has_record: receipt.is_none(),
            since,
            receipt,
            tree: CompactTree::default(),
            recent: VecDeque::new(),
            has_root: false,
        };
        started.compare_heads();
        Ok(started)
    }

    /// Returns the checkpoint if the records have its root. Records that are newer than the checkpoint need only follow without
    /// a gap.
    pub(crate) fn verify(
        mut self,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<Checkpoint, VerificationError> {
        let size = self.checkpoint.head.size;
        let unreadable = |path: &Path, source| VerificationError::Read {
            path: path.to_owned(),
            source,
        };
        let missing = |sequence| VerificationError::Missing {
            path: self.path.to_owned(),
            sequence,
        };
        for (first, path) in list_files(self.path).map_err(|error| unreadable(self.path, error))? {
            if first > self.tree.size() {
                return Err(missing(self.tree.size()));
            }
            let file = open(&path)?;
            let mut sequence = first;
            let mut fork = None;
            let read = for_each_record(first, BufReader::new(file), |record| {
                if !self.add(sequence, record) {
                    fork = fork.or(Some(sequence));
                }
                sequence += 1;
            });
            read.map_err(|error| unreadable(&path, error))?;
            if let Some(sequence) = fork {
                return Err(VerificationError::Fork { path, sequence });
            }
            progress(self.tree.size().min(size), size);
        }
        if self.tree.size() < size {
            return Err(missing(self.tree.size()));
        }
        if !self.has_root {
            return Err(VerificationError::Root);
        }
        if let Some((path, _)) = self.since.filter(|_| !self.begins_with_older) {
            return Err(VerificationError::OtherHistory(path));
        }
        if let Some(receipt) = self.receipt.filter(|_| !self.has_record) {
            return Err(VerificationError::OtherRecord {
                path: self.path.to_owned(),
                call_id: receipt.call_id,
            });
        }
        Ok(self.checkpoint)
    }

    /// Adds a record to the tree. Returns `false` if an earlier file had another record with this sequence number.
    fn add(&mut self, sequence: u64, record: &[u8]) -> bool {
        let leaf = leaf_hash(record);
        if sequence < self.tree.size() {
            let back = usize::try_from(self.tree.size() - sequence).unwrap_or(usize::MAX);
            let before = self.recent.len().checked_sub(back);
            return before.and_then(|before| self.recent.get(before)) == Some(&leaf);
        }
        if self.recent.len() as u64 == FILE_RECORDS {
            self.recent.pop_front();
        }
        self.recent.push_back(leaf);
        self.tree.append(leaf, |_, _| ());
        self.compare_heads();
        if self.tree.size() <= self.checkpoint.head.size {
            self.has_record |= self.receipt.as_ref().is_some_and(|it| it.is_of(record));
        }
        true
    }

    fn compare_heads(&mut self) {
        let head =
            |wanted: &TreeHead| self.tree.size() == wanted.size && self.tree.head() == *wanted;
        self.has_root |= head(&self.checkpoint.head);
        let older = self.since.as_ref();
        self.begins_with_older |= older.is_some_and(|(_, older)| head(older));
    }
}
