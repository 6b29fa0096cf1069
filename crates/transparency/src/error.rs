//! What can be wrong with what others give.

/// Why something is not accepted as part of a transparency log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text of a note does not have the form of a signed note.
    #[error("not a signed note: {0}")]
    Note(&'static str),
    /// The text of a note is no checkpoint.
    #[error("not a checkpoint: {0}")]
    Checkpoint(&'static str),
    /// A text is no verifier key.
    #[error("not a verifier key: {0}")]
    VerifierKey(&'static str),
    /// A private key is no Ed25519 key in PKCS#8 DER.
    #[error("the signing key is not an Ed25519 key in PKCS#8 DER")]
    SigningKey,
    /// The note carries no signature by the key.
    #[error("the note is not signed by {0}")]
    NotSigned(String),
    /// A signature that names the key was not made with it, or not over this text.
    #[error("the signature by {0} is wrong")]
    Signature(String),
    /// The checkpoint is of another log.
    #[error("the checkpoint is of the log {found}, not of {expected}")]
    Origin {
        /// The log that was asked for.
        expected: String,
        /// The log that the checkpoint names.
        found: String,
    },
    /// A text is no proof bundle.
    #[error("not a proof: {0}")]
    Proof(&'static str),
    /// A text is no submission of a checkpoint.
    #[error("not a submission of a checkpoint: {0}")]
    Submission(&'static str),
    /// A text is no trust policy.
    #[error("not a policy: line {line}: {problem}")]
    Policy {
        /// Which line, from 1; 0 for the whole.
        line: usize,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// Too few witnesses cosigned.
    #[error("the checkpoint is not cosigned by the quorum {0}")]
    Quorum(String),
    /// A policy names logs, and not this one.
    #[error("the policy does not trust the log {0} with this key")]
    OtherLog(String),
    /// A path does not lead from the entry to the root.
    #[error("the entry at index {index} is not in the tree of size {size}")]
    NotIncluded {
        /// Index of the entry.
        index: u64,
        /// Number of entries of the tree.
        size: u64,
    },
    /// One tree does not begin with the other.
    #[error("the tree of size {new} does not begin with the tree of size {old}")]
    Inconsistent {
        /// Number of entries of the smaller tree.
        old: u64,
        /// Number of entries of the larger tree.
        new: u64,
    },
    /// A tile does not hold as many hashes as it must.
    #[error("the tile {0} does not have its length")]
    Tile(String),
    /// The tile was not given, or has too few hashes.
    #[error("the tile {0} is missing")]
    MissingTile(String),
    /// A bundle of entries ends within an entry.
    #[error("the bundle of entries ends within an entry")]
    Bundle,
    /// An entry is longer than a bundle can hold.
    #[error("an entry of {0} bytes is longer than 65535")]
    EntryLength(usize),
    /// Subtrees that are not those of a tree of this size.
    #[error("{subtrees} subtrees do not make up a tree of size {size}")]
    Subtrees {
        /// Number of entries.
        size: u64,
        /// Number of subtrees.
        subtrees: usize,
    },
}
