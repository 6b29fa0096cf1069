//! What each server offered when it last answered, and which do not answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// Shared by those who ask the servers and those who use the answers.
#[derive(Clone, Default)]
pub(crate) struct Roster<T>(Arc<RosterState<T>>);

#[derive(Default)]
struct RosterState<T> {
    servers: Mutex<BTreeMap<String, ListedServer<T>>>,
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct ListedServer<T> {
    /// None before the first answer.
    list: Option<T>,
    is_missing: bool,
}

impl<T: Clone + Default + PartialEq> Roster<T> {
    /// Changes with every change of what is known here.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    pub(crate) fn list(&self, source: &str) -> Option<T> {
        self.servers().get(source)?.list.clone()
    }

    /// The servers that did not answer when they were last asked.
    pub(crate) fn missing(&self) -> BTreeSet<String> {
        let servers = self.servers();
        let missing = servers.iter().filter(|(_, server)| server.is_missing);
        missing.map(|(source, _)| source.clone()).collect()
    }

    /// A server offers `list`.
    pub(crate) fn answered(&self, source: &str, list: T) {
        self.change(source, |server| {
            let is_news = server.is_missing || server.list.as_ref() != Some(&list);
            server.is_missing = false;
            server.list = Some(list);
            is_news
        });
    }

    /// A server does not answer. What it last offered stays.
    pub(crate) fn failed(&self, source: &str) {
        self.change(source, |server| {
            !std::mem::replace(&mut server.is_missing, true)
        });
    }

    /// Another server has the name now, or none.
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
