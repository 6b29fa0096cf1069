//! The witness, which processes one submission at a time and stores each checkpoint before it returns the cosignature.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use metrics::counter;
use wardgate_domain::Ambient;
use wardgate_telemetry::names;
use wardgate_transparency::{
    Checkpoint, CheckpointSubmission, CompactTree, Cosigner, Error as LogError, NoteSignature,
    TreeHead, VerifierKey, verify_consistency,
};

use crate::Error;
use crate::seen::SeenCheckpoints;

/// The reason why a submission is not cosigned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The submission is malformed, or the old size exceeds the new one.
    #[error("{0}")]
    Malformed(LogError),
    /// The log is not one of those that the witness serves.
    #[error("the log {0} is not configured")]
    UnknownLog(String),
    /// The checkpoint is not signed with a key of the log.
    #[error("{0}")]
    NotSigned(LogError),
    /// The witness last saw a tree of another size, or of this size with another root.
    #[error("the newest known checkpoint has the size {0}")]
    Conflict(u64),
    /// The proof does not lead from the last tree that the witness saw to this one.
    #[error("{0}")]
    Inconsistent(LogError),
    /// The checkpoint cannot be stored, so it is not cosigned.
    #[error("the checkpoint cannot be stored now")]
    NotStored,
}

impl Refusal {
    /// Returns the value of the label of the metric.
    fn outcome(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "malformed",
            Self::UnknownLog(_) => "unknown_log",
            Self::NotSigned(_) => "not_signed",
            Self::Conflict(_) => "conflict",
            Self::Inconsistent(_) => "inconsistent",
            Self::NotStored => "not_stored",
        }
    }
}

/// A witness of the logs with the given keys.
#[derive(Debug)]
pub struct Witness {
    cosigner: Cosigner,
    keys: Vec<VerifierKey>,
    /// The state of the logs. The lock ensures that the last checkpoint is compared and replaced in one step.
    logs: Mutex<WitnessedLogs>,
    ambient: Ambient,
}

#[derive(Debug)]
struct WitnessedLogs {
    files: SeenCheckpoints,
    /// The newest trees, by the origin of the log.
    newest: BTreeMap<String, TreeHead>,
}

impl Witness {
    /// Opens the witness `name` for the logs of `keys`. `key` is an Ed25519 private key in PKCS#8 DER that must sign nothing
    /// else, and `directory` contains the checkpoints that the witness saw.
    pub fn open(
        name: &str,
        key: &[u8],
        keys: Vec<VerifierKey>,
        directory: &Path,
        ambient: Ambient,
    ) -> Result<Self, Error> {
        let cosigner = Cosigner::from_pkcs8(name, key)?;
        if keys.is_empty() {
            return Err(Error::NoLog);
        }
        if let Some(key) = keys.iter().find(|key| key.is_of_witness()) {
            return Err(Error::NotALog(key.to_string()));
        }
        let files = SeenCheckpoints::open(directory)?;
        let mut newest = BTreeMap::new();
        for key in &keys {
            if let Some(seen) = files.read_checkpoint(key.name(), cosigner.verifier_key())? {
                newest.insert(key.name().to_owned(), seen.head);
            }
        }
        Ok(Self {
            cosigner,
            keys,
            logs: Mutex::new(WitnessedLogs { files, newest }),
            ambient,
        })
    }

    /// Returns the key that verifies the cosignatures of this witness.
    pub fn verifier_key(&self) -> &VerifierKey {
        self.cosigner.verifier_key()
    }

    /// Cosigns a submitted checkpoint (`add-checkpoint` of tlog-witness) that continues the newest checkpoint of its log, and
    /// stores it as the newest one. Blocks until it is stored.
    pub fn cosign(&self, submission: &str) -> Result<NoteSignature, Refusal> {
        let cosigned = self.check_and_store(submission);
        let outcome = match &cosigned {
            Ok(_) => "cosigned",
            Err(refusal) => refusal.outcome(),
        };
        counter!(names::WITNESS_SUBMISSIONS, "outcome" => outcome).increment(1);
        cosigned
    }

    fn check_and_store(&self, submission: &str) -> Result<NoteSignature, Refusal> {
        let submission: CheckpointSubmission = submission.parse().map_err(Refusal::Malformed)?;
        let checkpoint = self.verify(&submission)?;
        let Checkpoint { origin, head } = &checkpoint;
        if submission.old_size > head.size {
            return Err(Refusal::Malformed(LogError::Inconsistent {
                old: submission.old_size,
                new: head.size,
            }));
        }
        // The contents are only replaced as a whole, so a panic cannot have left an inconsistent state.
        let mut logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = logs.newest.get(origin).copied();
        let seen = seen.unwrap_or_else(|| CompactTree::default().head());
        if submission.old_size != seen.size {
            return Err(Refusal::Conflict(seen.size));
        }
        if seen.size == head.size && seen.root != head.root {
            tracing::error!(
                origin,
                size = seen.size,
                "the log has two different trees of the same size: first {}, and now {}",
                format_head(&seen),
                format_head(head)
            );
            return Err(Refusal::Conflict(seen.size));
        }
        if let Err(error) = verify_consistency(&seen, head, &submission.path) {
            tracing::error!(
                origin,
                "the log did not prove that its tree {} begins with {}",
                format_head(head),
                format_head(&seen)
            );
            return Err(Refusal::Inconsistent(error));
        }
        let now = u64::try_from(self.ambient.now().as_seconds()).unwrap_or(0);
        let cosignature = self.cosigner.cosign(&submission.checkpoint, now);
        if seen != *head || !logs.newest.contains_key(origin) {
            let mut note = submission.checkpoint;
            note.add(cosignature.clone());
            if let Err(error) = logs.files.replace(origin, &note) {
                tracing::error!(%error, "a checkpoint cannot be stored and is not cosigned");
                return Err(Refusal::NotStored);
            }
            logs.newest.insert(origin.clone(), *head);
        }
        Ok(cosignature)
    }

    /// Returns the checkpoint if it is signed with a key of its log.
    fn verify(&self, submission: &CheckpointSubmission) -> Result<Checkpoint, Refusal> {
        let note = &submission.checkpoint;
        let claimed: Checkpoint = note.text().parse().map_err(Refusal::Malformed)?;
        let of_log = self.keys.iter().filter(|key| key.name() == claimed.origin);
        let mut refusal = Refusal::UnknownLog(claimed.origin.clone());
        for key in of_log {
            match Checkpoint::verify(note, key) {
                Ok(checkpoint) => return Ok(checkpoint),
                Err(error) => refusal = Refusal::NotSigned(error),
            }
        }
        Err(refusal)
    }
}

/// Formats the size and the root of a tree, as evidence in the process log.
fn format_head(head: &TreeHead) -> String {
    let root = wardgate_domain::Digest::from_bytes(head.root);
    format!("{} {root}", head.size)
}
