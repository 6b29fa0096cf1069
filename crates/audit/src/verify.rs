//! Verification of exported records and proofs without the store. Only the keys of a trust policy are trusted.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use wardgate_transparency::{
    Checkpoint, CompactTree, Hash, TileId, TlogProof, TreeHead, TrustPolicy, decode_bundle,
    leaf_hash, tiles_of_size,
};

use crate::copy_verification::CopyVerification;
use crate::receipt::CallReceipt;
use crate::record_line::{CHECKPOINT, RECORDS, write_line};
use crate::second_copy::check_marker;
use crate::verification_input::{
    VerificationError, open, read_checkpoint, read_file, read_receipt, read_text,
};

/// The result of a successful verification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedLog {
    /// The checkpoint that the log signed.
    pub checkpoint: Checkpoint,
    /// The number of records that retention removed before the export. For these, an exported directory has only the leaf
    /// hashes.
    pub minimum_index: u64,
}

/// Verifies exports and proofs.
#[derive(Debug, Clone)]
pub struct Verifier {
    /// The trust policy, with the keys of the log and of the witnesses.
    pub policy: TrustPolicy,
    /// The path of an older checkpoint. The records of a directory must begin with those that it covers.
    pub since: Option<PathBuf>,
    /// The path of a saved response to a call. The record of its receipt must be that of the proof, or one of those of the
    /// directory.
    pub receipt: Option<PathBuf>,
}

impl Verifier {
    /// Verifies the exported directory, second copy or proof at `path`. Succeeds if the policy trusts its checkpoint and all
    /// other contents are as they were when the log signed it. Calls `progress` with the number of verified records and the
    /// total.
    pub fn verify(
        &self,
        path: &Path,
        progress: impl FnMut(u64, u64),
    ) -> Result<VerifiedLog, VerificationError> {
        let receipt = self.receipt.as_deref().map(read_receipt).transpose()?;
        if path.is_dir() {
            let older = |path: &PathBuf| {
                let checkpoint = read_checkpoint(path, |note| self.policy.verify_log(note))?;
                Ok((path.clone(), checkpoint.head))
            };
            let since = self.since.as_ref().map(older).transpose()?;
            if check_marker(path).is_ok() {
                let copy = CopyVerification::new(path, &self.policy, since, receipt)?;
                return Ok(VerifiedLog {
                    checkpoint: copy.verify(progress)?,
                    minimum_index: 0,
                });
            }
            return Directory(path).verify(
                &self.policy,
                since.as_ref(),
                receipt.as_ref(),
                progress,
            );
        }
        if let Some(since) = &self.since {
            return Err(VerificationError::OtherHistory(since.clone()));
        }
        let invalid = |source| VerificationError::log(path, source);
        let proof: TlogProof = read_text(path)?.parse().map_err(invalid)?;
        let missing = || VerificationError::NoRecord(path.to_owned());
        let record = proof.extra.as_deref().ok_or_else(missing)?;
        let checkpoint = proof.verify(&leaf_hash(record), &self.policy);
        let checkpoint = checkpoint.map_err(invalid)?;
        match receipt {
            Some(receipt) if !receipt.is_of(record) => Err(VerificationError::OtherRecord {
                path: path.to_owned(),
                call_id: receipt.call_id,
            }),
            _ => Ok(VerifiedLog {
                checkpoint,
                minimum_index: 0,
            }),
        }
    }
}

/// An exported directory.
struct Directory<'a>(&'a Path);

impl Directory<'_> {
    fn verify(
        &self,
        policy: &TrustPolicy,
        since: Option<&(PathBuf, TreeHead)>,
        receipt: Option<&CallReceipt>,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<VerifiedLog, VerificationError> {
        let path = self.0.join(CHECKPOINT);
        let checkpoint = read_checkpoint(&path, |note| policy.verify(note))?;
        let size = checkpoint.head.size;
        let mut lines = RecordLines::open(self.0.join(RECORDS))?;
        let mut tree = CompactTree::default();
        let is_older = |tree: &CompactTree| {
            let older = since.map(|(_, older)| older);
            older.is_some_and(|older| tree.size() == older.size && tree.head() == *older)
        };
        let mut begins_with_older = since.is_none() || is_older(&tree);
        let mut has_record = receipt.is_none();
        let mut minimum_index = 0;
        // The end of the records that retention was allowed to remove, according to the records that are present.
        let mut pruned_below = 0;
        // The hashes of each level above the leaves, computed from the records.
        let mut levels: Vec<Vec<Hash>> = Vec::new();
        for id in tiles_of_size(size) {
            let hashes = match id.level().checked_sub(1) {
                None => {
                    // Retention removes only whole bundles, from the beginning.
                    let range = id.range();
                    let can_be_pruned = range.start == minimum_index && range.end < size;
                    let hashes = if can_be_pruned && !self.has_bundle(id) {
                        minimum_index = range.end;
                        self.pruned_hashes(id)?
                    } else {
                        self.leaf_hashes(id, &mut lines, |record| {
                            has_record = has_record || receipt.is_some_and(|it| it.is_of(record));
                            if pruned_below < minimum_index {
                                pruned_below = pruned_below.max(PruneRecord::below(record));
                            }
                        })?
                    };
                    for leaf in &hashes {
                        tree.append(*leaf, |node, root| {
                            if node.height % 8 == 0 {
                                let level = usize::from(node.height / 8);
                                levels.resize_with(levels.len().max(level), Vec::new);
                                levels[level - 1].push(*root);
                            }
                        });
                        begins_with_older |= is_older(&tree);
                    }
                    progress(tree.size(), size);
                    hashes
                }
                Some(above) => {
                    let range = id.range();
                    let hashes = levels.get(usize::from(above)).into_iter().flatten();
                    let hashes = hashes.skip(to_usize(range.start));
                    hashes
                        .take(to_usize(range.end - range.start))
                        .copied()
                        .collect()
                }
            };
            let path = self.0.join(id.path());
            if read_file(&path)? != hashes.as_flattened() {
                return Err(VerificationError::Tile(path));
            }
        }
        if tree.head() != checkpoint.head {
            return Err(VerificationError::Root);
        }
        if pruned_below < minimum_index {
            return Err(VerificationError::Unexplained { minimum_index });
        }
        if let Some((path, _)) = since
            && !begins_with_older
        {
            return Err(VerificationError::OtherHistory(path.clone()));
        }
        lines.end(size)?;
        if let Some(receipt) = receipt
            && !has_record
        {
            return Err(VerificationError::OtherRecord {
                path: self.0.to_owned(),
                call_id: receipt.call_id.clone(),
            });
        }
        Ok(VerifiedLog {
            checkpoint,
            minimum_index,
        })
    }

    fn has_bundle(&self, id: TileId) -> bool {
        self.0.join(id.bundle_path()).exists()
    }

    /// Reads the leaf hashes of removed records.
    fn pruned_hashes(&self, id: TileId) -> Result<Vec<Hash>, VerificationError> {
        let path = self.0.join(id.path());
        let bytes = read_file(&path)?;
        let (hashes, rest) = bytes.as_chunks::<32>();
        let expected = to_usize(id.range().end - id.range().start);
        if hashes.len() != expected || !rest.is_empty() {
            return Err(VerificationError::Tile(path));
        }
        Ok(hashes.to_vec())
    }

    /// Returns the leaf hashes of the bundle `id`, whose records are the next of `lines`. Calls `on_record` with each record.
    fn leaf_hashes(
        &self,
        id: TileId,
        lines: &mut RecordLines,
        mut on_record: impl FnMut(&[u8]),
    ) -> Result<Vec<Hash>, VerificationError> {
        let path = self.0.join(id.bundle_path());
        let bundle = read_file(&path)?;
        let entries = decode_bundle(&bundle);
        let entries = entries.map_err(|source| VerificationError::log(&path, source))?;
        let expected = to_usize(id.range().end - id.range().start);
        if entries.len() != expected {
            let found = entries.len();
            return Err(VerificationError::Entries {
                path,
                expected,
                found,
            });
        }
        for (sequence, entry) in id.range().zip(&entries) {
            lines.expect(sequence, entry)?;
            on_record(entry);
        }
        Ok(entries.into_iter().map(leaf_hash).collect())
    }
}

/// The fields of a record of an operator who applied retention.
#[derive(Deserialize)]
struct PruneRecord<'a> {
    #[serde(borrow)]
    event: Cow<'a, str>,
    #[serde(borrow)]
    target: Cow<'a, str>,
    #[serde(borrow)]
    status: Option<Cow<'a, str>>,
}

impl<'a> PruneRecord<'a> {
    /// Returns the end of the records whose removal `record` states, or 0 if it is another record, or if the removal was
    /// refused or failed.
    fn below(record: &'a [u8]) -> u64 {
        // Members are sorted by name, so this prefix decides without parsing each of millions of records.
        if !record.starts_with(br#"{"action":"audit.prune","#) {
            return 0;
        }
        let Ok(record) = serde_json::from_slice::<Self>(record) else {
            return 0;
        };
        let is_done = record.event == "admin_change" && record.status.is_none();
        let below = record.target.strip_prefix("below=").filter(|_| is_done);
        below.and_then(|below| below.parse().ok()).unwrap_or(0)
    }
}

/// Reads the file with one record per line from its beginning.
struct RecordLines {
    path: PathBuf,
    file: BufReader<File>,
    expected: Vec<u8>,
    found: Vec<u8>,
}

impl RecordLines {
    fn open(path: PathBuf) -> Result<Self, VerificationError> {
        let file = open(&path)?;
        Ok(Self {
            path,
            file: BufReader::with_capacity(1 << 16, file),
            expected: Vec::new(),
            found: Vec::new(),
        })
    }

    /// Fails unless the next line is that of `record`.
    fn expect(&mut self, sequence: u64, record: &[u8]) -> Result<(), VerificationError> {
        self.expected.clear();
        write_line(sequence, record, &mut self.expected);
        self.found.resize(self.expected.len(), 0);
        let is_read = self.file.read_exact(&mut self.found).is_ok();
        if is_read && self.found == self.expected {
            return Ok(());
        }
        let path = self.path.clone();
        Err(VerificationError::Line { path, sequence })
    }

    /// Fails unless the end of the file is reached.
    fn end(mut self, size: u64) -> Result<(), VerificationError> {
        match self.file.read(&mut [0]) {
            Ok(0) => Ok(()),
            _ => Err(VerificationError::Surplus {
                path: self.path,
                size,
            }),
        }
    }
}

/// Converts a number of hashes that are in memory.
fn to_usize(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}
