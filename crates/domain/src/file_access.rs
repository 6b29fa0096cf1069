//! Access restrictions of files and directories, and the flush of a directory, on each system.
//!
//! On Unix, access is restricted by modes and owners. On Windows, a new file inherits the access list of its directory: in
//! the profile of a user, only this user and administrators have access.

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::path::Path;

/// Makes `options` create files that only their owner can read and write.
pub fn restrict_to_owner(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}

/// Creates a directory that only its owner can access, and its missing parents. An existing directory is left as it is.
pub fn create_private_directory(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Returns whether every user of the machine has access to a file.
#[cfg_attr(
    not(unix),
    expect(unused_variables, reason = "the access list is not examined")
)]
pub fn is_accessible_to_all(file: &Metadata) -> bool {
    #[cfg(unix)]
    {
        std::os::unix::fs::PermissionsExt::mode(&file.permissions()) & 0o007 != 0
    }
    #[cfg(not(unix))]
    {
        false
    }
}

/// Gives `file` the owner, the group and the permissions of `former`.
pub(crate) fn copy_access(file: &File, former: &Metadata) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::{MetadataExt, fchown};
        fchown(file, Some(former.uid()), Some(former.gid()))?;
    }
    file.set_permissions(former.permissions())
}

/// An open directory, which can be flushed. Windows has no such operation: it journals changes of directories.
pub(crate) struct OpenDirectory {
    #[cfg(unix)]
    file: File,
}

impl OpenDirectory {
    #[cfg(unix)]
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        Ok(Self { file })
    }

    #[cfg(not(unix))]
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        std::fs::read_dir(path).map(|_| Self {})
    }

    #[cfg(unix)]
    pub(crate) fn flush(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    #[cfg(not(unix))]
    pub(crate) fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}
