//! The files that are verified, and the errors of the verification.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use wardgate_transparency::{Checkpoint, SignedNote};

use crate::receipt::{CallReceipt, ReceiptError};

/// Maximum size in bytes of a file in a directory, except for the file with one record per line: 256 entries of 65,535 bytes.
const MAX_FILE: u64 = 256 * (2 + 65_535);

/// The reason why an export or a proof is not valid.
#[derive(Debug, thiserror::Error)]
pub enum VerificationError {
    /// A file is missing or cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A file is longer than a file of its kind can be.
    #[error("{} is longer than such a file may be", .0.display())]
    TooLong(PathBuf),
    /// A file is not a valid note, proof or bundle, or its signature is wrong.
    #[error("{}: {source}", path.display())]
    Log {
        /// The path of the file.
        path: PathBuf,
        /// What is wrong with the file.
        source: wardgate_transparency::Error,
    },
    /// A bundle has more or fewer entries than its name requires.
    #[error("{}: it contains {found} records instead of {expected}", path.display())]
    Entries {
        /// The path of the file.
        path: PathBuf,
        /// The required number of entries.
        expected: usize,
        /// The actual number of entries.
        found: usize,
    },
    /// The hashes of a tile are not those of the records.
    #[error("{}: its hashes do not match the records", .0.display())]
    Tile(PathBuf),
    /// The records do not have the root of the checkpoint.
    #[error(
        "the records do not match the root of the checkpoint: a record was changed, removed or moved"
    )]
    Root,
    /// A line is not the record with its sequence number.
    #[error("{}: the line of record {sequence} is not this record", path.display())]
    Line {
        /// The path of the file.
        path: PathBuf,
        /// The sequence number of the expected record.
        sequence: u64,
    },
    /// There are more lines than the checkpoint covers records.
    #[error("{}: it continues after the {size} records of the checkpoint", path.display())]
    Surplus {
        /// The path of the file.
        path: PathBuf,
        /// The number of records that the checkpoint covers.
        size: u64,
    },
    /// The first records are missing, and no other record shows that retention removed them.
    #[error(
        "the records below {minimum_index} are missing, and no later record of `audit.prune` states that retention removed them"
    )]
    Unexplained {
        /// The sequence number of the first record that is present.
        minimum_index: u64,
    },
    /// A second copy lacks records that its checkpoint covers, or that precede others in it.
    #[error("{}: no file contains record {sequence}", path.display())]
    Missing {
        /// The directory of the copy.
        path: PathBuf,
        /// The sequence number of the first missing record.
        sequence: u64,
    },
    /// Two files of a second copy have different records with the same sequence number.
    #[error("{}: record {sequence} differs from the one in an earlier file: two histories exist", path.display())]
    Fork {
        /// The path of the later file.
        path: PathBuf,
        /// The sequence number.
        sequence: u64,
    },
    /// The records do not begin with those of the older checkpoint.
    #[error("the records do not begin with those of the checkpoint in {}: the log has two histories, or the records are older than the \
             checkpoint", .0.display())]
    OtherHistory(PathBuf),
    /// A proof contains no record.
    #[error("{}: the proof contains no record", .0.display())]
    NoRecord(PathBuf),
    /// A file contains no usable receipt.
    #[error("{}: {source}", path.display())]
    NoReceipt {
        /// The path of the file.
        path: PathBuf,
        /// The reason.
        source: ReceiptError,
    },
    /// The record of a receipt is not among those that were verified.
    #[error("{}: the record of the call {call_id} that its receipt names is missing", path.display())]
    OtherRecord {
        /// The path of the proof or of the directory.
        path: PathBuf,
        /// The id of the call in the receipt.
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

/// Reads the checkpoint in the file at `path`. Fails if `verify` does not accept its note.
pub(crate) fn read_checkpoint(
    path: &Path,
    verify: impl FnOnce(&SignedNote) -> Result<Checkpoint, wardgate_transparency::Error>,
) -> Result<Checkpoint, VerificationError> {
    let note: Result<SignedNote, _> = read_text(path)?.parse();
    let checkpoint = note.and_then(|note| verify(&note));
    checkpoint.map_err(|source| VerificationError::log(path, source))
}

/// Finds the receipt in the saved response in the file at `path`.
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

pub(crate) fn read_file(path: &Path) -> Result<Vec<u8>, VerificationError> {
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
    let text = String::from_utf8(read_file(path)?);
    text.map_err(|error| VerificationError::Read {
        path: path.to_owned(),
        source: std::io::Error::new(std::io::ErrorKind::InvalidData, error.utf8_error()),
    })
}
