//! What each server offered when it last answered, and which do not answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::importing::List;

/// Shared by those who ask the servers and those who use the answers.
#[derive(Clone, Default)]
pub(super) struct Roster(Arc<Shared>);

#[derive(Default)]
struct Shared {
    servers: Mutex<BTreeMap<String, Server>>,
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct Server {
    /// None before the first answer.
    list: Option<List>,
    is_missing: bool,
}

impl Roster {
    /// Changes with every change of what is known here.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    pub(super) fn list(&self, source: &str) -> Option<List> {
        self.servers().get(source)?.list.clone()
    }

    /// The servers that did not answer when they were last asked.
    pub(super) fn missing(&self) -> BTreeSet<String> {
        let servers = self.servers();
        let missing = servers.iter().filter(|(_, server)| server.is_missing);
        missing.map(|(source, _)| source.clone()).collect()
    }

    /// A server offers `list`.
    pub(super) fn answered(&self, source: &str, list: List) {
        self.change(source, |server| {
            let is_news = server.is_missing || server.list.as_ref() != Some(&list);
            server.is_missing = false;
            server.list = Some(list);
            is_news
        });
    }

    /// A server does not answer. What it last offered stays.
    pub(super) fn failed(&self, source: &str) {
        self.change(source, |server| {
            !std::mem::replace(&mut server.is_missing, true)
        });
    }

    /// Another server has the name now, or none.
    pub(super) fn forget(&self, source: &str) {
        if self.servers().remove(source).is_some() {
            self.0.changes.send_modify(|changes| *changes += 1);
        }
    }

    fn change(&self, source: &str, change: impl FnOnce(&mut Server) -> bool) {
        let is_news = change(self.servers().entry(source.to_owned()).or_default());
        if is_news {
            self.0.changes.send_modify(|changes| *changes += 1);
        }
    }

    fn servers(&self) -> MutexGuard<'_, BTreeMap<String, Server>> {
        self.0
            .servers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
