//! The files of a catalogue, which define its tools, prompts and resources.

use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Name of the lock file, which is in the directory of the catalogue.
const LOCK: &str = "tools.lock";

/// Returns the path of the lock file of a catalogue, which is a file or a directory.
pub fn lock_path(catalogue: &Path) -> PathBuf {
    if catalogue.is_dir() {
        catalogue.join(LOCK)
    } else {
        catalogue.with_file_name(LOCK)
    }
}

/// The path and text of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileText {
    /// The name of the file in faults.
    pub path: PathBuf,
    /// The content of the file.
    pub text: String,
}

/// The files as they were read at one time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Files {
    /// The files of the catalogue.
    pub texts: Vec<FileText>,
    /// The lock file's text, empty without one.
    pub lock: String,
    /// The files from which the catalogue reads resources, or sources read secrets.
    pub attached: Vec<AttachedFile>,
}

/// A file from which the current catalogue was read, with its state at that time, which reveals later changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachedFile {
    path: PathBuf,
    /// The size and the modification time, or `None` if the file is missing.
    stamp: Option<(u64, Option<SystemTime>)>,
}

impl AttachedFile {
    /// Creates the state of the file at `path` from metadata that was read before its content.
    pub(crate) fn from_metadata(path: PathBuf, found: &Metadata) -> Self {
        Self {
            path,
            stamp: Some((found.len(), found.modified().ok())),
        }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the current state of the file.
    fn now(&self) -> Self {
        match std::fs::metadata(&self.path) {
            Ok(found) => Self::from_metadata(self.path.clone(), &found),
            Err(_) => Self {
                path: self.path.clone(),
                stamp: None,
            },
        }
    }
}

impl Files {
    /// Reads the files of the catalogue at `path`, which is a file or a directory, and the state of the `attached` files.
    pub fn load(path: &Path, attached: &[AttachedFile]) -> std::io::Result<Self> {
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
            // Directories that Kubernetes mounts contain hidden directories besides the links to the files.
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
