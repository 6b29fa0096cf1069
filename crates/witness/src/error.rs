//! Errors with which a witness fails to start.

use std::path::PathBuf;

/// An error of the settings or the files of a witness.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No log is configured.
    #[error("the witness has no log: configure the key of at least one")]
    NoLog,
    /// A key is that of a witness, not of a log.
    #[error("{0} is the key of a witness, not of a log")]
    NotALog(String),
    /// The name or the private key of the witness is invalid.
    #[error("the witness cannot sign: {0}")]
    Key(#[from] wardgate_transparency::Error),
    /// The directory of the witness cannot be used.
    #[error("cannot use {}: {source}", path.display())]
    Directory {
        /// The path of the file or directory.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// Another process uses the directory.
    #[error("another witness uses {}", .0.display())]
    InUse(PathBuf),
    /// A file is not one that this witness wrote. It is not treated as absent, because the witness would then cosign another
    /// history.
    #[error("{} is damaged: {problem}; restore it, or start with a new key and an empty directory", path.display())]
    Damaged {
        /// The path of the file.
        path: PathBuf,
        /// What is wrong with the file.
        problem: String,
    },
}
