//! Files that an `assistants.yaml` refers to: keys of providers, and certificates.

use std::path::{Path, PathBuf};

use wardgate_domain::Digest;

/// Maximum size of a file, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// The files that were read, with digests to detect changes.
#[derive(Debug, Default)]
pub(crate) struct SecretFiles(Vec<SecretFile>);

#[derive(Debug)]
struct SecretFile {
    path: PathBuf,
    /// Digest of the content, or `None` if the file could not be read.
    content: Option<Digest>,
}

impl SecretFiles {
    /// Returns the content of the file at `path`. The error describes why the file cannot be used.
    pub(crate) fn read_file(&mut self, path: PathBuf) -> Result<String, String> {
        let text = read_text(&path);
        self.0.push(SecretFile {
            content: text
                .as_ref()
                .ok()
                .map(|text| Digest::compute(text.as_bytes())),
            path,
        });
        text
    }

    /// Returns the paths of the files that were read.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> + Clone {
        self.0.iter().map(|file| file.path.as_path())
    }

    /// Returns whether the content of any file has changed since it was read.
    pub(crate) fn are_changed(&self) -> bool {
        self.0.iter().any(|file| {
            let now = read_text(&file.path).ok();
            now.map(|text| Digest::compute(text.as_bytes())) != file.content
        })
    }
}

fn read_text(path: &Path) -> Result<String, String> {
    let cannot =
        |why: &dyn std::fmt::Display| format!("the file {} cannot be read: {why}", path.display());
    let found = std::fs::metadata(path).map_err(|error| cannot(&error))?;
    if found.len() > MAX_BYTES {
        return Err(cannot(&format!("it has more than {MAX_BYTES} bytes")));
    }
    std::fs::read_to_string(path).map_err(|error| cannot(&error))
}
