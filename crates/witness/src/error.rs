//! Why a witness cannot start.

use std::path::PathBuf;

/// A fault of the settings or of the files of a witness.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no log to witness.
    #[error("the witness knows no log: name the key of one")]
    NoLog,
    /// A key is no key of a log.
    #[error("{0} is the key of a witness, not of a log")]
    NotALog(String),
    /// The name or the key of the witness is unfit.
    #[error("the witness cannot sign: {0}")]
    Key(#[from] wardgate_transparency::Error),
    /// The directory of what it saw cannot be used.
    #[error("cannot use {}: {source}", path.display())]
    Directory {
        /// Which file or directory.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Another process uses the directory.
    #[error("{} is in use by another witness", .0.display())]
    InUse(PathBuf),
    /// A file is not one that this witness wrote. It is not taken for the absence of one: the witness would then sign
    /// another history.
    #[error("{} is damaged: {problem}; restore it, or begin with a new key and an empty directory", path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
}
