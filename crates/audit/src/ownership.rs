//! Whether calls of other processes may be under way on a store.

use std::fs::File;
use std::path::Path;

use crate::store::Address;

/// The processes whose calls are recorded by an audit service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallingProcesses {
    /// Only the process of the service itself: its calls end with it.
    ThisProcess,
    /// Other processes too, which may outlive the service.
    OtherProcesses,
}

/// A lock beside a store that is a file, held as long as the service runs, so that the next one can tell whether there is
/// another.
#[derive(Debug)]
pub(crate) struct StoreLock(Option<File>);

impl StoreLock {
    /// The lock of the store at `address`, and whether no other service has it. A file system without locks says that
    /// there may be another.
    pub(crate) fn take(address: &Address) -> (Self, bool) {
        let Address::Sqlite(path) = address else {
            return (Self(None), false);
        };
        match open(path) {
            Ok(file) => {
                let is_alone = file.try_lock().is_ok();
                (Self(Some(file)), is_alone)
            }
            Err(error) => {
                tracing::warn!(%error, store = %address, "the audit store cannot be locked");
                (Self(None), false)
            }
        }
    }

    /// Lets other services use the store as well.
    pub(crate) fn share(&self) {
        if let Some(file) = &self.0
            && let Err(error) = file.try_lock_shared()
        {
            tracing::debug!(%error, "the lock of the audit store is not shared");
        }
    }
}

fn open(path: &Path) -> std::io::Result<File> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(name)
}
