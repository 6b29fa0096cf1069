//! Why a second copy cannot be used.

use std::io;

/// An operator makes this file on the disk of the copy, so that a disk that is not mounted is noticed.
pub(crate) const MARKER: &str = "wardgate-second-copy";

/// Why a second copy cannot be used, or does not hold what it must.
#[derive(Debug, thiserror::Error)]
pub enum CopyProblem {
    /// The disk does not do what it is told to.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The disk does not answer.
    #[error("it does not answer in time")]
    Timeout,
    /// Nobody said that the directory is the one that is meant.
    #[error(
        "it has no file `{MARKER}`: its disk is not mounted, or it was never used; make that file there, on its own disk, to use it"
    )]
    NoMarker,
    /// Copy and store have different records at one position.
    #[error(
        "record {sequence} there is not the one in the store: there are two histories, so keep both as they are and find out which one is true"
    )]
    Fork {
        /// The first such position that was seen.
        sequence: u64,
    },
    /// The copy has records that the store has not.
    #[error(
        "it holds {copied} records and the store {stored}: the store lost some, for example by a restore of an older backup"
    )]
    Ahead {
        /// Below this position the copy has records.
        copied: u64,
        /// Below this position the store has records.
        stored: u64,
    },
}
