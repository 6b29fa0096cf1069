//! The files that say which tools, prompts and resources there are.

use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The name of the lock file, which stands beside the catalogue.
const LOCK: &str = "tools.lock";

/// The lock file of a catalogue, which is a file or a directory.
pub fn lock_path(catalogue: &Path) -> PathBuf {
    if catalogue.is_dir() {
        catalogue.join(LOCK)
    } else {
        catalogue.with_file_name(LOCK)
    }
}

/// A file as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileText {
    /// What it is called in faults.
    pub path: PathBuf,
    /// What stands in it.
    pub text: String,
}

/// The files as they were read at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Files {
    /// The catalogue's.
    pub texts: Vec<FileText>,
    /// The lock file's text, empty without one.
    pub lock: String,
    /// Those that the catalogue has resources in, or secrets of sources.
    pub attached: Vec<AttachedFile>,
}

/// A file that a catalogue in force was read from, and how to tell whether it is another by now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachedFile {
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
    pub fn read(path: &Path, attached: &[AttachedFile]) -> std::io::Result<Self> {
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

/// Reads a file, or every `*.yaml` and `*.yml` of a directory in the order of their names.
pub(crate) fn texts(path: &Path) -> std::io::Result<Vec<FileText>> {
    let mut paths = Vec::new();
    if path.is_dir() {
        for entry in std::fs::read_dir(path)? {
            let path = entry?.path();
            let extension = path.extension().and_then(|it| it.to_str());
            // Directories that Kubernetes mounts hold hidden ones beside the links that count.
            if matches!(extension, Some("yaml" | "yml")) && path.is_file() {
                paths.push(path);
            }
        }
        paths.sort();
    } else {
        paths.push(path.to_owned());
    }
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path)?;
        Ok(FileText { path, text })
    };
    paths.into_iter().map(read).collect()
}
