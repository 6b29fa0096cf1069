//! What a witness saw last of each log, in files: one checkpoint a log, replaced as a whole.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use wardgate_domain::Digest;
use wardgate_transparency::{Checkpoint, SignedNote, VerifierKey};

use crate::Error;

/// The directory with the newest checkpoint of each log, each cosigned by the witness that wrote it. One process has it.
#[derive(Debug)]
pub(crate) struct SeenCheckpoints {
    directory: PathBuf,
    /// Locked as long as it is open.
    _lock: File,
}

impl SeenCheckpoints {
    /// Makes the directory when it is absent; only its owner may look inside.
    pub(crate) fn open(directory: &Path) -> Result<Self, Error> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |source| Error::Directory { path, source }
        };
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(directory).map_err(at(directory))?;
        let path = directory.join("lock");
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
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

    /// The newest checkpoint of the log `origin` that the witness of `key` cosigned; none where it saw none.
    pub(crate) fn read(
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

    /// Puts `note` in the place of what was seen of the log `origin`. Once it returns that survives a loss of power; after
    /// an error the file is the old one or the new one.
    pub(crate) fn replace(&self, origin: &str, note: &SignedNote) -> io::Result<()> {
        let path = self.path(origin);
        let new = path.with_extension("new");
        let mut file = File::options()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&new)?;
        file.write_all(note.to_string().as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        File::open(&self.directory)?.sync_all()
    }

    /// An origin may have any characters.
    fn path(&self, origin: &str) -> PathBuf {
        let name = Digest::of(origin.as_bytes());
        self.directory.join(format!("{name}.checkpoint"))
    }
}
