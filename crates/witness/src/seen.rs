//! Storage of the last checkpoint that a witness saw of each log, in one file per log that is replaced atomically.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use wardgate_domain::{
    Digest, NewFileAccess, create_private_directory, replace_file, restrict_to_owner,
};
use wardgate_transparency::{Checkpoint, SignedNote, VerifierKey};

use crate::Error;

/// The directory with the newest checkpoint of each log, which the witness cosigned before it was written. Only one process
/// uses the directory.
#[derive(Debug)]
pub(crate) struct SeenCheckpoints {
    directory: PathBuf,
    /// The lock of the directory, which is held while this file is open.
    _lock: File,
}

impl SeenCheckpoints {
    /// Opens the directory, and creates it if it does not exist. Only its owner has access.
    pub(crate) fn open(directory: &Path) -> Result<Self, Error> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |source| Error::Directory { path, source }
        };
        create_private_directory(directory).map_err(at(directory))?;
        let path = directory.join("lock");
        let mut options = File::options();
        options.create(true).truncate(false).write(true);
        let lock = restrict_to_owner(&mut options)
            .open(&path)
            .map_err(at(&path))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self {
                directory: directory.to_owned(),
                _lock: lock,
            }),
            Err(TryLockError::WouldBlock) => Err(Error::InUse(directory.to_owned())),
            Err(TryLockError::Error(source)) => Err(at(&path)(source)),
        }
    }

    /// Returns the newest checkpoint of the log `origin` that the witness of `key` cosigned, or `None` if the witness saw none.
    pub(crate) fn read_checkpoint(
        &self,
        origin: &str,
        key: &VerifierKey,
    ) -> Result<Option<Checkpoint>, Error> {
        let path = self.path(origin);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(Error::Directory { path, source }),
        };
        let checkpoint = || {
            let note: SignedNote = text.parse()?;
            key.verify(&note)?;
            let checkpoint: Checkpoint = note.text().parse()?;
            if checkpoint.origin == origin {
                return Ok(checkpoint);
            }
            Err(wardgate_transparency::Error::Origin {
                expected: origin.to_owned(),
                found: checkpoint.origin,
            })
        };
        let damaged = |error: wardgate_transparency::Error| Error::Damaged {
            path: path.clone(),
            problem: error.to_string(),
        };
        checkpoint().map(Some).map_err(damaged)
    }

    /// Replaces the checkpoint of the log `origin` with `note`. When the function returns, the new checkpoint survives a power
    /// failure. After an error, the file contains either the old or the new checkpoint.
    pub(crate) fn replace(&self, origin: &str, note: &SignedNote) -> io::Result<()> {
        let path = self.path(origin);
        let unfinished = path.with_extension("new");
        let (access, text) = (NewFileAccess::OwnerOnly, note.to_string());
        Ok(replace_file(&path, &unfinished, access, text.as_bytes())?)
    }

    /// Returns the path of the file for a log. The name is a digest, because an origin may contain any characters.
    fn path(&self, origin: &str) -> PathBuf {
        let name = Digest::compute(origin.as_bytes());
        self.directory.join(format!("{name}.checkpoint"))
    }
}
