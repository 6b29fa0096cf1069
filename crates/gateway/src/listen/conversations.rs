//! The changes of conversations for all streams of clients: one watch of the memory service feeds every stream.
//!
//! ```text
//!   memory ──▶ one watch ──▶ inboxes, by owner ──▶ UpdateReceiver of a stream
//! ```
//!
//! A single watch is used because a connection carries a limited number of requests, and each watch would last for long.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;
use wardgate_domain::{
    ChangedPart, ConversationChange, ConversationChanges, ConversationId, Digest,
};
use wardgate_rpc::client::{CallError, MemoryClient};

/// Delay between the end of a watch and the next one.
const RETRY: Duration = Duration::from_millis(250);

/// Maximum number of changed conversations that wait in one inbox. Beyond it all conversations count as changed.
const MOST_WAITING: usize = 1_000;

/// Watches the conversations of all owners for changes.
#[derive(Debug)]
pub(crate) struct ConversationWatcher {
    memory: MemoryClient,
    inboxes: UpdateInboxes,
    _watch: AbortOnDropHandle<()>,
}

impl ConversationWatcher {
    /// Follows the memory service. While the service is unreachable no changes arrive; afterwards everything counts as changed.
    pub(crate) fn follow(memory: MemoryClient) -> Self {
        let inboxes = UpdateInboxes::default();
        let watch = tokio::spawn(watch(memory.clone(), inboxes.clone()));
        Self {
            memory,
            inboxes,
            _watch: AbortOnDropHandle::new(watch),
        }
    }

    pub(super) fn memory(&self) -> &MemoryClient {
        &self.memory
    }

    /// Returns a receiver of the changes from now on in the conversations of `owner` only.
    pub(super) fn listen(&self, owner: Digest) -> UpdateReceiver {
        self.inboxes.open(owner)
    }
}

/// The updates that were not sent yet.
#[derive(Debug, Default)]
pub(super) struct ConversationUpdates {
    /// Whether conversations were created or erased.
    pub(super) list: bool,
    changed: HashSet<ConversationId>,
    /// Whether any conversation may have changed.
    every: bool,
    /// The number of changes of the owner's subscriptions.
    subscriptions: u64,
}

impl ConversationUpdates {
    pub(super) fn is_changed(&self, id: &ConversationId) -> bool {
        self.every || self.changed.contains(id)
    }

    fn is_empty(&self) -> bool {
        !self.list && !self.every && self.changed.is_empty()
    }

    fn add(&mut self, what: &ChangedPart) {
        match what {
            ChangedPart::List => self.list = true,
            ChangedPart::Subscriptions => self.subscriptions += 1,
            // `every` includes this conversation.
            ChangedPart::Messages(_) if self.every => {}
            ChangedPart::Messages(id) => {
                self.changed.insert(id.clone());
                if self.changed.len() > MOST_WAITING {
                    self.add_every();
                }
            }
        }
    }

    fn add_every(&mut self) {
        self.every = true;
        self.changed = HashSet::new();
    }
}

type Inbox = Arc<watch::Sender<ConversationUpdates>>;

/// The inboxes of all streams, one per stream. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct UpdateInboxes(Arc<Mutex<HashMap<Digest, Vec<Inbox>>>>);

impl UpdateInboxes {
    fn by_owner(&self) -> MutexGuard<'_, HashMap<Digest, Vec<Inbox>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.by_owner().is_empty()
    }

    pub(super) fn open(&self, owner: Digest) -> UpdateReceiver {
        let inbox = Inbox::default();
        let updates = inbox.subscribe();
        let mut by_owner = self.by_owner();
        by_owner.entry(owner).or_default().push(inbox.clone());
        UpdateReceiver {
            inboxes: self.clone(),
            owner,
            inbox,
            updates,
        }
    }

    pub(super) fn deliver(&self, seen: &ConversationChanges) {
        let by_owner = self.by_owner();
        if seen.unseen {
            for inbox in by_owner.values().flatten() {
                inbox.send_modify(|updates| {
                    updates.add(&ChangedPart::List);
                    updates.add(&ChangedPart::Subscriptions);
                    updates.add_every();
                });
            }
        }
        for ConversationChange { owner, what } in &seen.changes {
            for inbox in by_owner.get(owner).into_iter().flatten() {
                inbox.send_modify(|updates| updates.add(what));
            }
        }
    }
}

/// The receiver of one stream. Its inbox is removed when the receiver is dropped.
#[derive(Debug)]
pub(super) struct UpdateReceiver {
    inboxes: UpdateInboxes,
    owner: Digest,
    inbox: Inbox,
    updates: watch::Receiver<ConversationUpdates>,
}

impl UpdateReceiver {
    /// Waits until there are updates.
    pub(super) async fn wait_for_updates(&mut self) {
        // `self.inbox` is the sender, so waiting cannot fail.
        let _ = self.updates.wait_for(|updates| !updates.is_empty()).await;
    }

    /// Returns the number of changes of the owner's subscriptions so far.
    pub(super) fn subscriptions(&self) -> u64 {
        self.updates.borrow().subscriptions
    }

    /// Takes the updates, or returns `None` if the subscriptions changed since `subscriptions` was counted.
    pub(super) fn take_updates(&self, subscriptions: Option<u64>) -> Option<ConversationUpdates> {
        let mut taken = None;
        self.inbox.send_modify(|updates| {
            if subscriptions.is_none_or(|count| count == updates.subscriptions) {
                let rest = ConversationUpdates {
                    subscriptions: updates.subscriptions,
                    ..ConversationUpdates::default()
                };
                taken = Some(std::mem::replace(updates, rest));
            }
        });
        taken
    }
}

impl Drop for UpdateReceiver {
    fn drop(&mut self) {
        let mut by_owner = self.inboxes.by_owner();
        if let Some(own) = by_owner.get_mut(&self.owner) {
            own.retain(|inbox| !Arc::ptr_eq(inbox, &self.inbox));
            if own.is_empty() {
                by_owner.remove(&self.owner);
            }
        }
    }
}

/// Opens the watch again each time that it ends. The first message of each watch tells that earlier changes may have been missed.
async fn watch(memory: MemoryClient, inboxes: UpdateInboxes) {
    let mut is_away = false;
    loop {
        let watched = follow(&memory, &inboxes, &mut is_away).await;
        if !is_away {
            is_away = true;
            let cause = watched.err().map(tracing::field::display);
            tracing::warn!(
                cause,
                "conversations cannot be watched now; streams continue without their changes"
            );
        }
        tokio::time::sleep(RETRY).await;
    }
}

async fn follow(
    memory: &MemoryClient,
    inboxes: &UpdateInboxes,
    is_away: &mut bool,
) -> Result<(), CallError> {
    let mut changes = memory.watch_conversations().await?;
    while let Some(seen) = changes.next().await {
        let seen = seen?;
        if std::mem::take(is_away) {
            tracing::info!("conversations are watched again");
        }
        inboxes.deliver(&seen);
    }
    Ok(())
}
