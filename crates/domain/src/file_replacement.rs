//! The atomic and durable replacement of a file.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use crate::file_access::{OpenDirectory, copy_access, restrict_to_owner};

/// The owner and the permissions of the new file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewFileAccess {
    /// The permissions that new files of the process have (`umask`).
    Default,
    /// Only the owner can read and write the file.
    OwnerOnly,
    /// The owner, the group and the permissions of the file that is replaced. Without one, those of `OwnerOnly`.
    AsReplaced,
}

/// A failure to replace a file.
#[derive(Debug, thiserror::Error)]
pub enum ReplaceFileError {
    /// The new file was not put in place.
    #[error(transparent)]
    NotReplaced(io::Error),
    /// The new file is in place, but its directory was not flushed, so a power failure may bring back the old file.
    #[error(transparent)]
    NotDurable(io::Error),
}

impl From<ReplaceFileError> for io::Error {
    fn from(error: ReplaceFileError) -> Self {
        match error {
            ReplaceFileError::NotReplaced(error) | ReplaceFileError::NotDurable(error) => error,
        }
    }
}

/// Replaces the file at `path` by a file with `content`, or creates it. A reader finds the complete old file or the complete
/// new one, even after a crash. After the function has returned `Ok`, the new file survives a power failure.
///
/// The new file is written at `unfinished`, which must be in the same directory, and then renamed. A file that an interrupted
/// replacement left there is removed. If `path` is a symbolic link, the link is replaced and not its target. The function
/// blocks until the disk has flushed the file and the directory.
pub fn replace_file(
    path: &Path,
    unfinished: &Path,
    access: NewFileAccess,
    content: &[u8],
) -> Result<(), ReplaceFileError> {
    let parent = path.parent().filter(|it| !it.as_os_str().is_empty());
    // The directory is opened first, so that only its flush can fail after the rename.
    let replaced = OpenDirectory::open(parent.unwrap_or(Path::new("."))).and_then(|directory| {
        let mut file = create_new(unfinished, access)?;
        file.write_all(content)?;
        if access == NewFileAccess::AsReplaced
            && let Ok(former) = fs::metadata(path)
        {
            copy_access(&file, &former)?;
        }
        file.sync_all()?;
        fs::rename(unfinished, path)?;
        Ok(directory)
    });
    match replaced {
        // The rename is durable only after the directory is flushed.
        Ok(directory) => directory.flush().map_err(ReplaceFileError::NotDurable),
        Err(error) => {
            // A remaining temporary file is useless but harmless, so a failure to remove it is ignored.
            let _ = fs::remove_file(unfinished);
            Err(ReplaceFileError::NotReplaced(error))
        }
    }
}

/// Creates the temporary file. One that exists is not written to, because it may have other permissions or be a link.
fn create_new(path: &Path, access: NewFileAccess) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create_new(true);
    if access != NewFileAccess::Default {
        restrict_to_owner(&mut options);
    }
    match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(path)?;
            options.open(path)
        }
        opened => opened,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::path::PathBuf;

    use tempfile::TempDir;

    use super::*;

    /// A directory in which the file `file` is replaced.
    struct TestDirectory(TempDir);

    impl TestDirectory {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn replace(&self, access: NewFileAccess, content: &str) -> Result<(), ReplaceFileError> {
            let (path, unfinished) = (self.path("file"), self.path("unfinished"));
            replace_file(&path, &unfinished, access, content.as_bytes())
        }

        fn content(&self) -> String {
            fs::read_to_string(self.path("file")).unwrap()
        }

        fn mode(&self) -> u32 {
            fs::metadata(self.path("file")).unwrap().mode() & 0o777
        }

        /// Returns the number of entries of the directory.
        fn entries(&self) -> usize {
            fs::read_dir(self.0.path()).unwrap().count()
        }
    }

    #[test]
    fn a_file_is_created_and_replaced_whole_and_nothing_is_left_beside_it() {
        let directory = TestDirectory::new();
        for content in ["a long first content", "short", ""] {
            directory.replace(NewFileAccess::Default, content).unwrap();
            assert_eq!(directory.content(), content);
            assert_eq!(directory.entries(), 1);
        }
    }

    #[test]
    fn a_failed_replacement_leaves_the_old_file_and_nothing_beside_it() {
        let directory = TestDirectory::new();
        // A directory with content cannot be replaced by a file.
        fs::create_dir_all(directory.path("file/inside")).unwrap();
        let error = directory
            .replace(NewFileAccess::Default, "new")
            .unwrap_err();
        assert!(matches!(error, ReplaceFileError::NotReplaced(_)), "{error}");
        assert!(directory.path("file/inside").is_dir());
        assert_eq!(directory.entries(), 1);
    }

    #[test]
    fn nothing_is_replaced_in_a_directory_that_does_not_exist() {
        let directory = TestDirectory::new();
        let (path, unfinished) = (
            directory.path("missing/file"),
            directory.path("missing/unfinished"),
        );
        let error = replace_file(&path, &unfinished, NewFileAccess::Default, b"new").unwrap_err();
        let error = io::Error::from(error);
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert_eq!(directory.entries(), 0);
    }

    #[test]
    fn a_file_for_its_owner_is_readable_by_nobody_else_whatever_it_replaces() {
        let directory = TestDirectory::new();
        fs::write(directory.path("file"), "old").unwrap();
        fs::set_permissions(directory.path("file"), Permissions::from_mode(0o644)).unwrap();
        directory.replace(NewFileAccess::OwnerOnly, "new").unwrap();
        assert_eq!(
            (directory.content().as_str(), directory.mode()),
            ("new", 0o600)
        );
    }

    #[test]
    fn a_file_keeps_the_permissions_of_the_one_that_it_replaces() {
        let directory = TestDirectory::new();
        directory
            .replace(NewFileAccess::AsReplaced, "first")
            .unwrap();
        assert_eq!(directory.mode(), 0o600);
        fs::set_permissions(directory.path("file"), Permissions::from_mode(0o640)).unwrap();
        directory
            .replace(NewFileAccess::AsReplaced, "second")
            .unwrap();
        assert_eq!(
            (directory.content().as_str(), directory.mode()),
            ("second", 0o640)
        );
    }

    #[test]
    fn a_file_that_an_interrupted_replacement_left_is_not_written_to() {
        let directory = TestDirectory::new();
        fs::write(directory.path("other"), "other").unwrap();
        symlink(directory.path("other"), directory.path("unfinished")).unwrap();
        directory.replace(NewFileAccess::OwnerOnly, "new").unwrap();
        assert_eq!(directory.content(), "new");
        assert_eq!(
            fs::read_to_string(directory.path("other")).unwrap(),
            "other"
        );
        assert!(!directory.path("file").is_symlink());
        assert_eq!(directory.entries(), 2);
    }
}
