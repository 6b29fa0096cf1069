//! The files that are verified, and why they are not what the log signed.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use wardgate_transparency::{Checkpoint, SignedNote};

use crate::receipt::{CallReceipt, ReceiptError};

/// Most bytes of a file of a directory, except of the one with a record to a line: 256 entries of 65,535 bytes.
const MAX_FILE: u64 = 256 * (2 + 65_535);

/// Why an export or a proof is not what the log signed.
#[derive(Debug, thiserror::Error)]
pub enum VerificationError {
    /// A file is missing, or cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Which one.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file is longer than any of its kind.
    #[error("{} is longer than such a file can be", .0.display())]
    TooLong(PathBuf),
    /// A file is no note, proof or bundle, or its signature is wrong.
    #[error("{}: {source}", path.display())]
    Log {
        /// Which one.
        path: PathBuf,
        /// What is wrong with it.
        source: wardgate_transparency::Error,
    },
    /// A bundle has more or fewer entries than its name says.
    #[error("{}: it holds {found} records in place of {expected}", path.display())]
    Entries {
        /// Which one.
        path: PathBuf,
        /// As it must be.
        expected: usize,
        /// As it is.
        found: usize,
    },
    /// A tile has other hashes than the records.
    #[error("{}: its hashes are not those of the records", .0.display())]
    Tile(PathBuf),
    /// The records are not those that the checkpoint was signed of.
    #[error(
        "the records do not have the root of the checkpoint: a record was changed, removed or moved"
    )]
    Root,
    /// A line is not the record of its position.
    #[error("{}: the line of record {sequence} is not that record", path.display())]
    Line {
        /// Which file.
        path: PathBuf,
        /// Of the record that should be there.
        sequence: u64,
    },
    /// There are more lines than the checkpoint has records.
    #[error("{}: it goes on after the {size} records of the checkpoint", path.display())]
    Surplus {
        /// Which file.
        path: PathBuf,
        /// Number of records of the checkpoint.
        size: u64,
    },
    /// The beginning is missing, and no record that is there says that retention removed it.
    #[error(
        "the records below {minimum_index} are not there, and no later record of `audit.prune` says that retention removed them"
    )]
    Unexplained {
        /// The first record that is there.
        minimum_index: u64,
    },
    /// A second copy lacks records that its checkpoint covers, or that come before some that it has.
    #[error("{}: record {sequence} is in none of its files", path.display())]
    Missing {
        /// Which copy.
        path: PathBuf,
        /// The first such record.
        sequence: u64,
    },
    /// Two files of a second copy have different records at one position.
    #[error("{}: record {sequence} is another one than in an earlier file: there are two histories", path.display())]
    Fork {
        /// The later file.
        path: PathBuf,
        /// The position.
        sequence: u64,
    },
    /// The older checkpoint is not of the history that the records are.
    #[error("the records do not begin with those of the checkpoint in {}: the log has two histories, or the records are older than it", .0.display())]
    OtherHistory(PathBuf),
    /// A proof has no record in it.
    #[error("{}: there is no record in the proof", .0.display())]
    NoRecord(PathBuf),
    /// A file that should be the answer of a call gives no receipt.
    #[error("{}: {source}", path.display())]
    NoReceipt {
        /// Which one.
        path: PathBuf,
        /// Why not.
        source: ReceiptError,
    },
    /// The record of a receipt is not among those that were verified.
    #[error("{}: the record of the call {call_id} that its receipt names is not there", path.display())]
    OtherRecord {
        /// The proof, or the exported directory.
        path: PathBuf,
        /// Of the receipt.
        call_id: String,
    },
}

impl VerificationError {
    pub(crate) fn log(path: &Path, source: wardgate_transparency::Error) -> Self {
        Self::Log {
            path: path.to_owned(),
            source,
        }
    }
}

/// The checkpoint in the file at `path`, where `verify` trusts its note.
pub(crate) fn read_checkpoint(
    path: &Path,
    verify: impl FnOnce(&SignedNote) -> Result<Checkpoint, wardgate_transparency::Error>,
) -> Result<Checkpoint, VerificationError> {
    let note: Result<SignedNote, _> = read_text(path)?.parse();
    let checkpoint = note.and_then(|note| verify(&note));
    checkpoint.map_err(|source| VerificationError::log(path, source))
}

/// The receipt in the answer that the file at `path` has.
pub(crate) fn read_receipt(path: &Path) -> Result<CallReceipt, VerificationError> {
    let receipt = CallReceipt::find(&read_text(path)?);
    receipt.map_err(|source| VerificationError::NoReceipt {
        path: path.to_owned(),
        source,
    })
}

pub(crate) fn open(path: &Path) -> Result<File, VerificationError> {
    File::open(path).map_err(|source| VerificationError::Read {
        path: path.to_owned(),
        source,
    })
}

pub(crate) fn read(path: &Path) -> Result<Vec<u8>, VerificationError> {
    let mut bytes = Vec::new();
    let read = open(path)?.take(MAX_FILE + 1).read_to_end(&mut bytes);
    match read {
        Ok(_) if bytes.len() as u64 > MAX_FILE => Err(VerificationError::TooLong(path.to_owned())),
        Ok(_) => Ok(bytes),
        Err(source) => Err(VerificationError::Read {
            path: path.to_owned(),
            source,
        }),
    }
}

pub(crate) fn read_text(path: &Path) -> Result<String, VerificationError> {
    let text = String::from_utf8(read(path)?);
    text.map_err(|error| VerificationError::Read {
        path: path.to_owned(),
        source: std::io::Error::new(std::io::ErrorKind::InvalidData, error.utf8_error()),
    })
}
