//! What one stream says of conversations, and when.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use wardgate_domain::{Caller, ConversationId, Digest};
use wardgate_rpc::client::{ConversationSubscriber, MemoryClient};

use super::conversations::{ConversationWatcher, UpdateReceiver};
use crate::memory::ConversationUri;

/// Between two words about one subscription.
const PAUSE: Duration = Duration::from_secs(1);

/// From a failed reading of the subscriptions to the next.
const RETRY: Duration = Duration::from_secs(1);

/// Subscriptions are read so often even if they did not change: unread for a day, they end.
const READ_AGAIN: Duration = Duration::from_hours(6);

/// What a client wants to hear of conversations. Whether it owns such conversations is not looked at: of one that
/// does not exist, or is somebody else's, nothing is ever heard.
#[derive(Debug)]
pub(crate) enum ConversationSelection {
    /// What it named when it opened the stream.
    Chosen {
        list: bool,
        /// With the URIs as it wrote them.
        conversations: Vec<(ConversationId, String)>,
    },
    /// What its session is subscribed to, by requests of their own, and the list.
    Subscribed { session: Option<Digest> },
}

/// What there is to say.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ResourceUpdates {
    pub(super) list: bool,
    /// Of conversations that changed.
    pub(super) uris: Vec<String>,
}

/// One stream's part.
pub(super) struct ConversationFeed {
    receiver: UpdateReceiver,
    list: bool,
    conversations: Vec<(ConversationId, String)>,
    subscriptions: Option<SessionSubscriptions>,
    /// A word at most every [`PAUSE`].
    silent_until: Instant,
}

/// What a session is subscribed to, which can change.
struct SessionSubscriptions {
    caller: Arc<Caller>,
    session: Option<Digest>,
    memory: MemoryClient,
    /// After how many changes they were last read, and when.
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
            } => Self::chosen(receiver, list, conversations),
            ConversationSelection::Subscribed { session } => Self {
                subscriptions: Some(SessionSubscriptions {
                    caller: Arc::clone(caller),
                    session,
                    memory: conversations.memory().clone(),
                    read: None,
                }),
                ..Self::chosen(receiver, true, Vec::new())
            },
        }
    }

    fn chosen(
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

    /// What to say next. Given up before its end, nothing is lost.
    pub(super) async fn next(&mut self) -> ResourceUpdates {
        loop {
            self.read_subscriptions().await;
            self.receiver.wait_for_updates().await;
            sleep_until(self.silent_until).await;
            let read = self.subscriptions.as_ref().and_then(|own| own.read);
            // What changed after somebody subscribed to it is told only by those who know of that.
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

    /// Whether the subscriptions are to be read.
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
