//! The resources of a server that have listeners, and their changes.
//!
//! ```text
//!   ResourceListener ─┐                          ┌─▶ the connection requests all of them together from the server
//!   ResourceListener ─┼▶ Subscriptions, by URI ──┤
//!   ResourceListener ─┘        ◀── accepted, refused, updated
//! ```
//!
//! Each resource is requested once from the server, whatever its number of listeners. Listeners outlive connections.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// Maximum number of resources of one server that can have listeners.
pub(super) const MOST: usize = 1_000;

/// Maximum length of a URI in bytes.
const MAX_URI: usize = 4_096;

/// The subscriptions of one server, shared by the listeners and the current connection.
#[derive(Debug)]
pub(super) struct Subscriptions {
    table: Mutex<BTreeMap<String, ResourceSubscription>>,
    /// The number of changes of the set of URIs.
    uri_changes: watch::Sender<u64>,
    /// The number of times that the server began to send notifications.
    begun: watch::Sender<u64>,
}

/// A resource that has listeners, or had some until recently.
#[derive(Debug)]
struct ResourceSubscription {
    inboxes: Vec<Inbox>,
    status: SubscriptionStatus,
    /// Whether changes may have been missed.
    missed: bool,
}

/// The server's response to the request for a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SubscriptionStatus {
    /// The server has not responded yet.
    Pending,
    Accepted,
    Refused,
}

/// Notifications that a listener has not taken yet.
#[derive(Debug, Default)]
struct PendingChanges {
    accepted: BTreeSet<String>,
    refused: BTreeSet<String>,
    updated: BTreeSet<String>,
}

type Inbox = Arc<watch::Sender<PendingChanges>>;

impl Default for Subscriptions {
    fn default() -> Self {
        Self {
            table: Mutex::default(),
            uri_changes: watch::Sender::new(0),
            begun: watch::Sender::new(0),
        }
    }
}

impl ResourceSubscription {
    fn set_status(&mut self, uri: &str, status: SubscriptionStatus) {
        self.status = status;
        for inbox in &self.inboxes {
            inbox.send_modify(|changes| changes.set_status(uri, status));
        }
    }

    fn record_update(&self, uri: &str) {
        for inbox in &self.inboxes {
            inbox.send_modify(|changes| {
                changes.updated.insert(uri.to_owned());
            });
        }
    }
}

impl PendingChanges {
    fn set_status(&mut self, uri: &str, status: SubscriptionStatus) {
        let (into, from) = match status {
            SubscriptionStatus::Pending => return,
            SubscriptionStatus::Accepted => (&mut self.accepted, &mut self.refused),
            SubscriptionStatus::Refused => (&mut self.refused, &mut self.accepted),
        };
        from.remove(uri);
        into.insert(uri.to_owned());
    }
}

impl Subscriptions {
    /// Listens to these resources. Resources that exceed the limit, or whose URI is too long, are refused immediately.
    pub(super) fn listen(self: &Arc<Self>, uris: BTreeSet<String>) -> ResourceListener {
        let inbox = Inbox::default();
        let mut is_changed = false;
        let mut table = self.table();
        for uri in &uris {
            let is_full = table.len() >= MOST && !table.contains_key(uri);
            if is_full || uri.len() > MAX_URI {
                inbox.send_modify(|changes| changes.set_status(uri, SubscriptionStatus::Refused));
                continue;
            }
            let entry = table.entry(uri.clone()).or_insert_with(|| {
                is_changed = true;
                ResourceSubscription {
                    inboxes: Vec::new(),
                    status: SubscriptionStatus::Pending,
                    missed: false,
                }
            });
            inbox.send_modify(|changes| changes.set_status(uri, entry.status));
            entry.inboxes.push(Arc::clone(&inbox));
        }
        drop(table);
        if is_changed {
            self.uri_changes.send_modify(|count| *count += 1);
        }
        ResourceListener {
            subscriptions: Arc::clone(self),
            changes: inbox.subscribe(),
            inbox,
            uris,
        }
    }

    /// Returns a counter of the changes of the set of URIs.
    pub(super) fn uri_changes(&self) -> watch::Receiver<u64> {
        self.uri_changes.subscribe()
    }

    /// Removes resources without listeners, and returns the others. Only the task that requests them from the server calls this
    /// function. Resources are removed only here, so that one whose last listener was replaced before the connection noticed is
    /// still agreed with the server.
    pub(super) fn uris(&self) -> BTreeSet<String> {
        let mut table = self.table();
        table.retain(|_, entry| !entry.inboxes.is_empty());
        table.keys().cloned().collect()
    }

    /// Returns the resources that have listeners now, for the task that requests them on a further connection.
    pub(super) fn listened_uris(&self) -> BTreeSet<String> {
        let table = self.table();
        let listened = table.iter().filter(|(_, entry)| !entry.inboxes.is_empty());
        listened.map(|(uri, _)| uri.clone()).collect()
    }

    /// Returns a counter of the times that the server began to send notifications.
    pub(super) fn stream_starts(&self) -> watch::Receiver<u64> {
        self.begun.subscribe()
    }

    /// Resets the status of all resources for a new connection, on which nothing was requested yet.
    pub(super) fn reset_statuses(&self) {
        for entry in self.table().values_mut() {
            entry.missed |= entry.status == SubscriptionStatus::Accepted;
            entry.status = SubscriptionStatus::Pending;
        }
    }

    /// Records that notifications may be missed from now on.
    pub(super) fn record_interruption(&self) {
        for entry in self.table().values_mut() {
            entry.missed |= entry.status == SubscriptionStatus::Accepted;
        }
    }

    /// Records that the server sends notifications, again or for the first time. Resources whose changes may have been
    /// missed count as changed.
    pub(super) fn record_stream_start(&self) {
        for (uri, entry) in self.table().iter_mut() {
            if entry.status == SubscriptionStatus::Accepted && std::mem::take(&mut entry.missed) {
                entry.record_update(uri);
            }
        }
        self.begun.send_modify(|count| *count += 1);
    }

    /// Records that the server sends notifications about these resources.
    pub(super) fn record_acceptance<'u>(&self, uris: impl IntoIterator<Item = &'u str>) {
        let mut table = self.table();
        for uri in uris {
            if let Some(entry) = table.get_mut(uri) {
                entry.set_status(uri, SubscriptionStatus::Accepted);
                if std::mem::take(&mut entry.missed) {
                    entry.record_update(uri);
                }
            }
        }
    }

    /// Records that the server sends no notifications about these resources, except those that it has accepted already.
    pub(super) fn record_refusal<'u>(&self, uris: impl IntoIterator<Item = &'u String>) {
        let mut table = self.table();
        for uri in uris {
            let entry = table.get_mut(uri);
            if let Some(entry) = entry.filter(|entry| entry.status == SubscriptionStatus::Pending) {
                entry.set_status(uri, SubscriptionStatus::Refused);
            }
        }
    }

    /// Notifies the listeners that the resource at `uri` changed, which may be a part of a resource that has listeners.
    pub(super) fn notify_listeners(&self, uri: &str) {
        if uri.len() > MAX_URI {
            return;
        }
        let table = self.table();
        let parents = uri.match_indices('/').flat_map(|(at, _)| [at, at + 1]);
        let ends: BTreeSet<usize> = parents.chain([uri.len()]).collect();
        for whole in ends.into_iter().map(|end| &uri[..end]) {
            if let Some(entry) = table.get(whole) {
                entry.record_update(whole);
            }
        }
    }

    fn table(&self) -> MutexGuard<'_, BTreeMap<String, ResourceSubscription>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A listener to changes of some resources of a server. Dropping it ends the listening.
#[derive(Debug)]
pub struct ResourceListener {
    subscriptions: Arc<Subscriptions>,
    uris: BTreeSet<String>,
    inbox: Inbox,
    changes: watch::Receiver<PendingChanges>,
}

impl ResourceListener {
    /// Waits until the server has accepted or refused each resource.
    pub async fn wait_until_settled(&mut self) {
        let total = self.uris.len();
        let is_settled =
            |changes: &PendingChanges| changes.accepted.len() + changes.refused.len() >= total;
        // The wait cannot fail because `self` holds the sender.
        let _ = self.changes.wait_for(is_settled).await;
    }

    /// Stops listening to the resources that the server has not accepted, and returns the others.
    pub fn keep_accepted(&mut self) -> BTreeSet<String> {
        let accepted = self.changes.borrow().accepted.clone();
        let others = self.uris.difference(&accepted).cloned().collect();
        self.release(&others);
        self.uris.clone_from(&accepted);
        accepted
    }

    /// Waits until there are changes to take.
    pub async fn changed(&mut self) {
        let _ = self
            .changes
            .wait_for(|changes| !changes.updated.is_empty())
            .await;
    }

    /// Returns the resources that changed since the last call.
    pub fn take_changes(&self) -> BTreeSet<String> {
        let mut taken = BTreeSet::new();
        self.inbox.send_if_modified(|changes| {
            taken = std::mem::take(&mut changes.updated);
            false
        });
        taken.retain(|uri| self.uris.contains(uri));
        taken
    }

    fn release(&self, uris: &BTreeSet<String>) {
        let mut is_changed = false;
        let mut table = self.subscriptions.table();
        for uri in uris {
            let Some(entry) = table.get_mut(uri) else {
                continue;
            };
            entry
                .inboxes
                .retain(|inbox| !Arc::ptr_eq(inbox, &self.inbox));
            is_changed |= entry.inboxes.is_empty();
        }
        drop(table);
        if is_changed {
            self.subscriptions
                .uri_changes
                .send_modify(|count| *count += 1);
        }
    }
}

impl Drop for ResourceListener {
    fn drop(&mut self) {
        self.release(&self.uris);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn uris(of: &[&str]) -> BTreeSet<String> {
        of.iter().map(|&uri| uri.to_owned()).collect()
    }

    fn listen_to(of: &[&str]) -> (Arc<Subscriptions>, ResourceListener) {
        let subscriptions = Arc::new(Subscriptions::default());
        let listener = subscriptions.listen(uris(of));
        (subscriptions, listener)
    }

    #[test]
    fn a_resource_is_wanted_as_long_as_anyone_listens_to_it() {
        let (subscriptions, first) = listen_to(&["x:a", "x:b"]);
        let mut uri_changes = subscriptions.uri_changes();
        let second = subscriptions.listen(uris(&["x:b"]));
        assert!(!uri_changes.has_changed().unwrap(), "it is wanted already");
        drop(first);
        assert!(uri_changes.has_changed().unwrap());
        assert_eq!(subscriptions.uris(), uris(&["x:b"]));
        uri_changes.mark_unchanged();
        drop(second);
        assert!(uri_changes.has_changed().unwrap());
        assert_eq!(subscriptions.uris(), uris(&[]));
    }

    #[test]
    fn what_is_taken_up_again_before_the_connection_knew_it_was_let_go_is_still_agreed() {
        let (subscriptions, listener) = listen_to(&["x:a"]);
        assert_eq!(subscriptions.uris(), uris(&["x:a"]));
        subscriptions.record_acceptance(["x:a"]);
        drop(listener);
        let mut again = subscriptions.listen(uris(&["x:a"]));
        // The connection sees the same set as before, and requests nothing.
        assert_eq!(subscriptions.uris(), uris(&["x:a"]));
        again
            .wait_until_settled()
            .now_or_never()
            .expect("it was agreed");
        assert_eq!(again.keep_accepted(), uris(&["x:a"]));

        drop(again);
        assert_eq!(subscriptions.uris(), uris(&[]));
        let mut later = subscriptions.listen(uris(&["x:a"]));
        assert!(
            later.wait_until_settled().now_or_never().is_none(),
            "it is asked anew"
        );
    }

    #[test]
    fn what_the_server_does_not_take_is_let_go() {
        let (subscriptions, mut listener) = listen_to(&["x:a", "x:b"]);
        assert!(listener.wait_until_settled().now_or_never().is_none());
        subscriptions.record_acceptance(["x:a", "x:foreign"]);
        subscriptions.record_refusal(&subscriptions.uris());
        listener.wait_until_settled().now_or_never().unwrap();
        assert_eq!(listener.keep_accepted(), uris(&["x:a"]));
        assert_eq!(subscriptions.uris(), uris(&["x:a"]));
        let mut later = subscriptions.listen(uris(&["x:a"]));
        later
            .wait_until_settled()
            .now_or_never()
            .expect("it is known already");
    }

    #[test]
    fn a_change_is_told_to_whoever_listens_to_it_or_to_what_it_is_part_of() {
        let (subscriptions, mut listener) = listen_to(&["x:a", "x://d", "x://e/", "x://d/f"]);
        let other = subscriptions.listen(uris(&["x:b"]));
        subscriptions.record_acceptance(["x:a", "x://d", "x://e/", "x://d/f", "x:b"]);
        listener.keep_accepted();
        for uri in ["x:a", "x:a", "x:ab", "x://d/f/g", "x://e/h", "x://dd/f"] {
            subscriptions.notify_listeners(uri);
        }
        listener.changed().now_or_never().unwrap();
        assert_eq!(
            listener.take_changes(),
            uris(&["x:a", "x://d", "x://d/f", "x://e/"])
        );
        assert_eq!(listener.take_changes(), uris(&[]));
        assert!(listener.changed().now_or_never().is_none());
        assert_eq!(other.take_changes(), uris(&[]));
    }

    #[test]
    fn what_may_have_changed_unheard_counts_as_changed_once_it_is_heard_of_again() {
        let (subscriptions, listener) = listen_to(&["x:a"]);
        subscriptions.record_stream_start();
        subscriptions.record_acceptance(["x:a"]);
        assert_eq!(listener.take_changes(), uris(&[]), "nothing was missed");

        subscriptions.record_interruption();
        assert_eq!(
            listener.take_changes(),
            uris(&[]),
            "nobody could read what changes yet"
        );
        subscriptions.record_stream_start();
        assert_eq!(listener.take_changes(), uris(&["x:a"]));

        subscriptions.reset_statuses();
        subscriptions.record_stream_start();
        assert_eq!(
            listener.take_changes(),
            uris(&[]),
            "the new connection was not asked yet"
        );
        subscriptions.record_acceptance(["x:a"]);
        assert_eq!(listener.take_changes(), uris(&["x:a"]));
        subscriptions.record_acceptance(["x:a"]);
        assert_eq!(listener.take_changes(), uris(&[]), "once");
    }

    #[test]
    fn so_many_resources_can_be_listened_to_and_no_endless_uri() {
        let (subscriptions, mut first) = listen_to(&["x:a"]);
        subscriptions.record_acceptance(["x:a"]);
        let all: BTreeSet<_> = (1..=MOST).map(|n| format!("x:{n:04}")).collect();
        let mut listener = subscriptions.listen(all);
        subscriptions.record_acceptance(subscriptions.uris().iter().map(String::as_str));
        listener.wait_until_settled().now_or_never().unwrap();
        assert_eq!(listener.keep_accepted().len(), MOST - 1);
        drop(listener);
        first.wait_until_settled().now_or_never().unwrap();
        let mut endless = subscriptions.listen([format!("x:{}", "a".repeat(MAX_URI))].into());
        endless.wait_until_settled().now_or_never().unwrap();
        assert_eq!(endless.keep_accepted(), uris(&[]));
    }
}
