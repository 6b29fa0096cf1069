//! The updates about conversations that one stream sends, and when it sends them.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use wardgate_domain::{Caller, ConversationId, Digest};
use wardgate_rpc::client::{ConversationSubscriber, MemoryClient};

use super::conversations::{ConversationWatcher, UpdateReceiver};
use crate::memory::ConversationUri;

/// Minimum interval between two updates of one stream.
const PAUSE: Duration = Duration::from_secs(1);

/// Delay between a failed reading of the subscriptions and the next one.
const RETRY: Duration = Duration::from_secs(1);

/// Interval at which subscriptions are read even if they did not change, because they expire if they are not read for a day.
const READ_AGAIN: Duration = Duration::from_hours(6);

/// The conversations whose changes a client wants to receive. Ownership is not checked here: for a conversation that does not
/// exist or belongs to somebody else, no change is ever delivered.
#[derive(Debug)]
pub(crate) enum ConversationSelection {
    /// The conversations that the client named when it opened the stream.
    Chosen {
        list: bool,
        /// The conversations, with their URIs as the client wrote them.
        conversations: Vec<(ConversationId, String)>,
    },
    /// The conversations that the session subscribed to by separate requests, and the list of conversations.
    Subscribed { session: Option<Digest> },
}

/// The updates to send.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ResourceUpdates {
    pub(super) list: bool,
    /// The URIs of conversations that changed.
    pub(super) uris: Vec<String>,
}

/// The conversation updates of one stream.
pub(super) struct ConversationFeed {
    receiver: UpdateReceiver,
    list: bool,
    conversations: Vec<(ConversationId, String)>,
    subscriptions: Option<SessionSubscriptions>,
    /// The earliest time of the next update. There is at most one in each [`PAUSE`].
    silent_until: Instant,
}

/// The subscriptions of a session, which can change.
struct SessionSubscriptions {
    caller: Arc<Caller>,
    session: Option<Digest>,
    memory: MemoryClient,
    /// The count of subscription changes at the last reading, and its time. `None` before the first reading.
    read: Option<(u64, Instant)>,
}

impl ConversationFeed {
    pub(super) fn new(
        wants: ConversationSelection,
        caller: &Arc<Caller>,
        conversations: &ConversationWatcher,
    ) -> Self {
        let receiver = conversations.listen(caller.person());
        match wants {
            ConversationSelection::Chosen {
                list,
                conversations,
            } => Self::for_conversations(receiver, list, conversations),
            ConversationSelection::Subscribed { session } => Self {
                subscriptions: Some(SessionSubscriptions {
                    caller: Arc::clone(caller),
                    session,
                    memory: conversations.memory().clone(),
                    read: None,
                }),
                ..Self::for_conversations(receiver, true, Vec::new())
            },
        }
    }

    fn for_conversations(
        receiver: UpdateReceiver,
        list: bool,
        conversations: Vec<(ConversationId, String)>,
    ) -> Self {
        Self {
            receiver,
            list,
            conversations,
            subscriptions: None,
            silent_until: Instant::now(),
        }
    }

    /// Returns the next updates. This method is cancel safe: no update is lost if the future is dropped.
    pub(super) async fn next(&mut self) -> ResourceUpdates {
        loop {
            self.read_subscriptions().await;
            self.receiver.wait_for_updates().await;
            sleep_until(self.silent_until).await;
            let read = self.subscriptions.as_ref().and_then(|own| own.read);
            // If the subscriptions changed after they were read, they are read again first, because the updates may concern a
            // conversation that was subscribed to in between.
            let Some(heard) = self.receiver.take_updates(read.map(|(count, _)| count)) else {
                continue;
            };
            let changed = self.conversations.iter();
            let changed = changed.filter(|(id, _)| heard.is_changed(id));
            let words = ResourceUpdates {
                list: heard.list && self.list,
                uris: changed.map(|(_, uri)| uri.clone()).collect(),
            };
            if words.list || !words.uris.is_empty() {
                self.silent_until = Instant::now() + PAUSE;
                return words;
            }
        }
    }

    /// Returns whether the subscriptions have to be read.
    fn is_outdated(&self) -> bool {
        let changes = self.receiver.subscriptions();
        let is_read = |(after, at): (u64, Instant)| after == changes && at.elapsed() < READ_AGAIN;
        let subscriptions = self.subscriptions.as_ref();
        subscriptions.is_some_and(|own| !own.read.is_some_and(is_read))
    }

    async fn read_subscriptions(&mut self) {
        while self.is_outdated() {
            let changes = self.receiver.subscriptions();
            let Some(own) = &mut self.subscriptions else {
                return;
            };
            let session = ConversationSubscriber {
                caller: &own.caller,
                session: own.session,
            };
            match own.memory.list_subscriptions(session).await {
                Ok(ids) => {
                    let with_uri = |id| (ConversationUri::whole(&id), id);
                    let ids = ids.into_iter().map(with_uri);
                    self.conversations = ids.map(|(uri, id)| (id, uri.write())).collect();
                    own.read = Some((changes, Instant::now()));
                }
                Err(_) => sleep(RETRY).await,
            }
        }
    }
}

#[cfg(test)]
mod tests;
