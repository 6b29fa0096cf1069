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
    #[error("it does not answer in time")]
    Timeout,
    /// The directory does not contain the marker file of a second copy.
    #[error(
        "it has no file `{MARKER}`: its disk is not mounted, or it was never used; make that file there, on its own disk, to use it"
    )]
    NoMarker,
    /// The copy and the store have different records with the same sequence number.
    #[error(
        "record {sequence} there is not the one in the store: there are two histories, so keep both as they are and find out which one is true"
    )]
    Fork {
        /// The first such sequence number that was found.
        sequence: u64,
    },
    /// The copy has records that the store does not have.
    #[error(
        "it holds {copied} records and the store {stored}: the store lost some, for example by a restore of an older backup"
    )]
    Ahead {
        /// The end of the records of the copy.
        copied: u64,
        /// The end of the records of the store.
        stored: u64,
    },
}
