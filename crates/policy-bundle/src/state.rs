//! The bundle that was last put in force, kept on disk.

use std::fs;
use std::path::{Path, PathBuf};

use wardgate_domain::{BundleReference, NewFileAccess, ReplaceFileError};

use crate::{BundleError, BundleVerifier, PolicyBundle};

/// The file that holds the bundle that was last put in force. A restart thereby knows the version below which nothing
/// is accepted, and can start while the source cannot be reached.
#[derive(Debug, Clone)]
pub struct BundleState {
    path: Option<PathBuf>,
}

impl BundleState {
    /// Uses the file at `path`. Without one, nothing is kept.
    pub fn new(path: Option<PathBuf>) -> Self {
        Self { path }
    }

    /// Returns the path of the file, or `None` if nothing is kept.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Returns the contents of the file, or `None` if there is none yet.
    pub fn read_bundle(&self) -> std::io::Result<Option<KeptBundle>> {
        let Some(path) = &self.path else {
            return Ok(None);
        };
        match fs::read(path) {
            Ok(bytes) => Ok(Some(KeptBundle { bytes })),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Replaces the contents of the file atomically and durably.
    pub fn write(&self, bytes: &[u8]) -> std::io::Result<()> {
        let path = self.path.as_deref();
        path.map_or(Ok(()), |path| replace_file(path, bytes))
    }
}

/// Replaces the file at `path` atomically and durably, so that a reader finds the old file or the new one. The name of the
/// temporary file beside it is that of the file with a further ending, which is not that of a bundle, so the temporary files of two
/// files are never the same.
pub fn replace_file(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(format!(".{}.new", std::process::id()));
    match wardgate_domain::replace_file(path, Path::new(&unfinished), NewFileAccess::Default, bytes)
    {
        // The bundle is in place, so it counts as written.
        Err(ReplaceFileError::NotDurable(error)) => {
            tracing::warn!(%error, path = %path.display(), "the stored version of a policy bundle may be lost in a power failure");
            Ok(())
        }
        replaced => Ok(replaced?),
    }
}

/// A bundle as it was kept.
#[derive(Debug, Clone)]
pub struct KeptBundle {
    bytes: Vec<u8>,
}

impl KeptBundle {
    /// Returns the version and digest, without verifying the signature. Whoever can change the file could delete it as
    /// well, so the version needs no proof; the policies do.
    pub fn reference(&self) -> Result<BundleReference, BundleError> {
        PolicyBundle::unverified_reference(&self.bytes)
    }

    /// Returns the bundle, if a trusted key signed it.
    pub fn open(&self, verifier: &BundleVerifier) -> Result<PolicyBundle, BundleError> {
        PolicyBundle::open(&self.bytes, verifier)
    }
}
