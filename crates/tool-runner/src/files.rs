//! The files that say which tools there are.

use std::path::Path;

use crate::catalogue::{Text, texts};
use crate::imported::lock_path;

/// The files as they were read at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Files {
    /// The catalogue's.
    pub(crate) texts: Vec<Text>,
    /// The lock file's text, empty without one.
    pub(crate) lock: String,
}

impl Files {
    /// Those of the catalogue at `path`, a file or a directory.
    pub(crate) fn read(path: &Path) -> std::io::Result<Self> {
        let lock = match std::fs::read_to_string(lock_path(path)) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            read => read?,
        };
        Ok(Self {
            texts: texts(path)?,
            lock,
        })
    }
}
