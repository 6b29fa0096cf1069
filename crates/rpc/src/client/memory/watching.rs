//! Notifications about changes of conversations: the watch, and the subscriptions of sessions of older clients.

use futures::{Stream, StreamExt};
use wardgate_domain::{Caller, ConversationChanges, ConversationId, Digest, InvalidMessage};
use wardgate_proto::memory::v1 as pb;

use super::{CallError, MemoryClient, open_request, text};
use crate::client::token_of;

/// The subscriber of a conversation: a session of a caller, or the caller itself.
#[derive(Debug, Clone, Copy)]
pub struct ConversationSubscriber<'a> {
    /// The caller.
    pub caller: &'a Caller,
    /// The digest of the session's id, or `None` if the caller subscribes without a session.
    pub session: Option<Digest>,
}

impl ConversationSubscriber<'_> {
    fn to_wire(self) -> bytes::Bytes {
        self.session.map(Digest::to_wire).unwrap_or_default()
    }
}

impl MemoryClient {
    /// Returns a stream of the changes of all conversations, which lasts until the connection is lost.
    pub async fn watch_conversations(
        &self,
    ) -> Result<impl Stream<Item = Result<ConversationChanges, CallError>> + use<>, CallError> {
        let mut client = self.client.clone();
        let changes = client
            .watch_conversations(open_request(pb::WatchConversationsRequest {}))
            .await?
            .into_inner();
        Ok(changes.map(|seen| Ok(seen?.try_into()?)))
    }

    /// Subscribes to a conversation, which does not have to exist.
    pub async fn subscribe(
        &self,
        of: ConversationSubscriber<'_>,
        id: &ConversationId,
    ) -> Result<(), CallError> {
        let message = pb::SubscribeRequest {
            caller_token: token_of(of.caller)?,
            session: of.to_wire(),
            conversation_id: text(id),
        };
        self.send_request(message, async |mut client, message| {
            client.subscribe(message).await
        })
        .await
        .map(drop)
    }

    /// Removes the subscription to a conversation, if there is one.
    pub async fn unsubscribe(
        &self,
        of: ConversationSubscriber<'_>,
        id: &ConversationId,
    ) -> Result<(), CallError> {
        let message = pb::UnsubscribeRequest {
            caller_token: token_of(of.caller)?,
            session: of.to_wire(),
            conversation_id: text(id),
        };
        self.send_request(message, async |mut client, message| {
            client.unsubscribe(message).await
        })
        .await
        .map(drop)
    }

    /// Returns the conversations that the subscriber is subscribed to.
    pub async fn list_subscriptions(
        &self,
        of: ConversationSubscriber<'_>,
    ) -> Result<Vec<ConversationId>, CallError> {
        let message = pb::ListSubscriptionsRequest {
            caller_token: token_of(of.caller)?,
            session: of.to_wire(),
        };
        let answer = self
            .send_request(message, async |mut client, message| {
                client.list_subscriptions(message).await
            })
            .await?;
        let invalid = |_| InvalidMessage::field("conversation_ids", "contains an invalid entry");
        let ids = answer.conversation_ids.iter();
        let ids: Result<_, _> = ids.map(|id| id.parse().map_err(invalid)).collect();
        Ok(ids?)
    }
}
