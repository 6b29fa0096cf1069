//! The lock of a store, which tells whether calls of other processes may be in progress.

use std::fs::File;
use std::path::Path;

use crate::store::Address;

/// The processes whose calls an audit service records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallingProcesses {
    /// Only the process of the service itself, whose calls end with it.
    ThisProcess,
    /// Other processes too, which may outlive the service.
    OtherProcesses,
}

/// A lock file beside a SQLite store. It is locked while the service runs, so that another service can detect this one.
#[derive(Debug)]
pub(crate) struct StoreLock(Option<File>);

impl StoreLock {
    /// Takes the lock of the store at `address`, and returns whether no other service holds it. If the file system does not
    /// support locks, or the store is not a file, another service is assumed.
    pub(crate) fn acquire(address: &Address) -> (Self, bool) {
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

    /// Allows other services to use the store too.
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
