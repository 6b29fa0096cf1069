//! The reasons why a second copy cannot be used.

use std::io;

/// Name of the file that an operator creates on the disk of the copy. Its absence shows that the disk is not mounted.
pub(crate) const MARKER: &str = "wardgate-second-copy";

/// The reason why a second copy cannot be used, or does not contain the records that it must contain.
#[derive(Debug, thiserror::Error)]
pub enum CopyProblem {
    /// An operation on the disk failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The disk does not respond.
    #[error("it did not answer in time")]
    Timeout,
    /// The directory does not contain the marker file of a second copy.
    #[error(
        "the file `{MARKER}` does not exist: its disk is not mounted, or the directory was never used; create the file there, on the disk \
         of the copy, to use the directory"
    )]
    NoMarker,
    /// The copy and the store have different records with the same sequence number.
    #[error(
        "record {sequence} of the copy differs from the one in the store: two histories exist, so preserve both unchanged and find out \
         which one is correct"
    )]
    Fork {
        /// The first such sequence number that was found.
        sequence: u64,
    },
    /// The copy has records that the store does not have.
    #[error(
        "it contains {copied} records and the store {stored}: the store lost some, for example by the restore of an older backup"
    )]
    Ahead {
        /// The end of the records of the copy.
        copied: u64,
        /// The end of the records of the store.
        stored: u64,
    },
}
