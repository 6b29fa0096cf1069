//! The list that each server last returned, and the servers that do not answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// The lists of all servers, shared between the tasks that request them and the code that uses them.
#[derive(Clone, Default)]
pub(crate) struct Roster<T>(Arc<RosterState<T>>);

#[derive(Default)]
struct RosterState<T> {
    servers: Mutex<BTreeMap<String, ListedServer<T>>>,
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct ListedServer<T> {
    /// The last list, or `None` before the first answer.
    list: Option<T>,
    is_missing: bool,
}

impl<T: Clone + Default + PartialEq> Roster<T> {
    /// Returns a channel that changes whenever the roster changes.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    pub(crate) fn list(&self, source: &str) -> Option<T> {
        self.servers().get(source)?.list.clone()
    }

    /// Returns the servers that did not answer the last request.
    pub(crate) fn missing_servers(&self) -> BTreeSet<String> {
        let servers = self.servers();
        let missing = servers.iter().filter(|(_, server)| server.is_missing);
        missing.map(|(source, _)| source.clone()).collect()
    }

    /// Records that a server returned `list`.
    pub(crate) fn record_list(&self, source: &str, list: T) {
        self.change(source, |server| {
            let is_news = server.is_missing || server.list.as_ref() != Some(&list);
            server.is_missing = false;
            server.list = Some(list);
            is_news
        });
    }

    /// Records that a server did not answer. Its last list is kept.
    pub(crate) fn record_failure(&self, source: &str) {
        self.change(source, |server| {
            !std::mem::replace(&mut server.is_missing, true)
        });
    }

    /// Removes a server, because another server has its name now or none has.
    pub(crate) fn forget(&self, source: &str) {
        if self.servers().remove(source).is_some() {
            self.0.changes.send_modify(|changes| *changes += 1);
        }
    }

    fn change(&self, source: &str, change: impl FnOnce(&mut ListedServer<T>) -> bool) {
        let is_news = change(self.servers().entry(source.to_owned()).or_default());
        if is_news {
            self.0.changes.send_modify(|changes| *changes += 1);
        }
    }

    fn servers(&self) -> MutexGuard<'_, BTreeMap<String, ListedServer<T>>> {
        self.0
            .servers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
