//! Errors in data from outside.

/// The reason why data is not accepted as part of a transparency log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text is not a signed note.
    #[error("not a signed note: {0}")]
    Note(&'static str),
    /// The text of a note is not a checkpoint.
    #[error("not a checkpoint: {0}")]
    Checkpoint(&'static str),
    /// The text is not a verifier key.
    #[error("not a verifier key: {0}")]
    VerifierKey(&'static str),
    /// A private key is not an Ed25519 key in PKCS#8 DER.
    #[error("the signing key is not an Ed25519 key in PKCS#8 DER")]
    SigningKey,
    /// The note has no signature by the key.
    #[error("the note is not signed by {0}")]
    NotSigned(String),
    /// A signature in the name of the key is wrong.
    #[error("the signature by {0} is not valid")]
    Signature(String),
    /// The checkpoint belongs to another log.
    #[error("the checkpoint is of the log {found}, not of {expected}")]
    Origin {
        /// The expected origin.
        expected: String,
        /// The origin in the checkpoint.
        found: String,
    },
    /// The text is not a proof bundle.
    #[error("not a proof: {0}")]
    Proof(&'static str),
    /// The text is not a submission of a checkpoint.
    #[error("not a submission of a checkpoint: {0}")]
    Submission(&'static str),
    /// The text is not a trust policy.
    #[error("not a policy: line {line}: {problem}")]
    Policy {
        /// The line number, from 1, or 0 for the whole text.
        line: usize,
        /// What is wrong with the line or the text.
        problem: &'static str,
    },
    /// The checkpoint lacks cosignatures of the quorum.
    #[error("the checkpoint is not cosigned by the quorum {0}")]
    Quorum(String),
    /// The policy names logs, but not this one.
    #[error("the policy does not trust the log {0} with this key")]
    OtherLog(String),
    /// The path does not lead from the entry to the root.
    #[error("the entry at index {index} is not in the tree of size {size}")]
    NotIncluded {
        /// Index of the entry.
        index: u64,
        /// Number of entries of the tree.
        size: u64,
    },
    /// The larger tree does not begin with the smaller one.
    #[error("the tree of size {new} does not begin with the tree of size {old}")]
    Inconsistent {
        /// Number of entries of the smaller tree.
        old: u64,
        /// Number of entries of the larger tree.
        new: u64,
    },
    /// The tile does not have the required number of hashes.
    #[error("the tile {0} does not have its required length")]
    Tile(String),
    /// The tile is missing, or has too few hashes.
    #[error("the tile {0} is missing")]
    MissingTile(String),
    /// The bundle of entries ends within an entry.
    #[error("the bundle of entries is truncated")]
    Bundle,
    /// The entry is too long for a bundle.
    #[error("an entry of {0} bytes is longer than 65535")]
    EntryLength(usize),
    /// The subtrees are not those of a tree of this size.
    #[error("{subtrees} subtrees do not form a tree of size {size}")]
    Subtrees {
        /// Number of entries.
        size: u64,
        /// Number of subtrees.
        subtrees: usize,
    },
}
