//! The files that say which tools, prompts and resources there are.

use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::catalogue::{Text, texts};
use crate::imported::lock_path;

/// The files as they were read at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Files {
    /// The catalogue's.
    pub(crate) texts: Vec<Text>,
    /// The lock file's text, empty without one.
    pub(crate) lock: String,
    /// Those that the catalogue has resources in.
    pub(crate) attached: Vec<AttachedFile>,
}

/// A file that a catalogue in force was read from, and how to tell whether it is another by now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AttachedFile {
    path: PathBuf,
    /// None of a file that is gone.
    stamp: Option<(u64, Option<SystemTime>)>,
}

impl AttachedFile {
    /// The file at `path`, of which this was found before it was read.
    pub(crate) fn of(path: PathBuf, found: &Metadata) -> Self {
        Self {
            path,
            stamp: Some((found.len(), found.modified().ok())),
        }
    }

    /// The same file as it is now.
    fn now(&self) -> Self {
        match std::fs::metadata(&self.path) {
            Ok(found) => Self::of(self.path.clone(), &found),
            Err(_) => Self {
                path: self.path.clone(),
                stamp: None,
            },
        }
    }
}

impl Files {
    /// Those of the catalogue at `path`, a file or a directory, and those `attached` to what is in force.
    pub(crate) fn read(path: &Path, attached: &[AttachedFile]) -> std::io::Result<Self> {
        let lock = match std::fs::read_to_string(lock_path(path)) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            read => read?,
        };
        Ok(Self {
            texts: texts(path)?,
            lock,
            attached: attached.iter().map(AttachedFile::now).collect(),
        })
    }
}
