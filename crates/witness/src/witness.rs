//! The witness itself: one submission after the other, each stored before it is cosigned.

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

/// Why a submission is not cosigned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It does not have its form, or the old size is above the new one.
    #[error("{0}")]
    Malformed(LogError),
    /// The log is not among those of the witness.
    #[error("the log {0} is unknown here")]
    UnknownLog(String),
    /// No key of the log signed the checkpoint.
    #[error("{0}")]
    NotSigned(LogError),
    /// The witness saw a tree of another size last, or of this size with another root.
    #[error("the newest checkpoint that was seen has the size {0}")]
    Conflict(u64),
    /// The proof does not lead from the tree that was seen last to this one.
    #[error("{0}")]
    Inconsistent(LogError),
    /// What was seen cannot be stored, so nothing is cosigned.
    #[error("the checkpoint cannot be stored now")]
    NotStored,
}

impl Refusal {
    /// For the metric.
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

/// A witness of the logs whose keys it was given.
#[derive(Debug)]
pub struct Witness {
    cosigner: Cosigner,
    keys: Vec<VerifierKey>,
    /// One submission at a time: what was seen last is compared and replaced in one step.
    logs: Mutex<WitnessedLogs>,
    ambient: Ambient,
}

#[derive(Debug)]
struct WitnessedLogs {
    files: SeenCheckpoints,
    /// By origin.
    newest: BTreeMap<String, TreeHead>,
}

impl Witness {
    /// The witness `name` with an Ed25519 private key in PKCS#8 DER, which signs nothing else, for the logs of `keys`; what
    /// it saw is in `directory`.
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
            if let Some(seen) = files.read(key.name(), cosigner.verifier_key())? {
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

    /// What its cosignatures are verified with.
    pub fn verifier_key(&self) -> &VerifierKey {
        self.cosigner.verifier_key()
    }

    /// The cosignature of a submitted checkpoint (`add-checkpoint` of tlog-witness), which continues the newest one that was
    /// seen of its log and is stored as such. Waits for the disk.
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
        // What is inside is only replaced as a whole, so a panic left nothing half done.
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
                "the log has two trees of one size: {} was seen, and now {}",
                show(&seen),
                show(head)
            );
            return Err(Refusal::Conflict(seen.size));
        }
        if let Err(error) = verify_consistency(&seen, head, &submission.path) {
            tracing::error!(
                origin,
                "the log does not show that its tree {} begins with {}",
                show(head),
                show(&seen)
            );
            return Err(Refusal::Inconsistent(error));
        }
        let now = u64::try_from(self.ambient.now().as_seconds()).unwrap_or(0);
        let cosignature = self.cosigner.cosign(&submission.checkpoint, now);
        if seen != *head || !logs.newest.contains_key(origin) {
            let mut note = submission.checkpoint;
            note.add(cosignature.clone());
            if let Err(error) = logs.files.replace(origin, &note) {
                tracing::error!(%error, "a checkpoint cannot be stored, and is not cosigned");
                return Err(Refusal::NotStored);
            }
            logs.newest.insert(origin.clone(), *head);
        }
        Ok(cosignature)
    }

    /// The checkpoint, where one of its log's keys signed it.
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

/// Size and root, as evidence in the log of the process.
fn show(head: &TreeHead) -> String {
    let root = wardgate_domain::Digest::from_bytes(head.root);
    format!("{} {root}", head.size)
}
