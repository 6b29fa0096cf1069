//! Client of the memory service.

mod watching;

use std::time::Duration;

use tonic::{Request, Response, Status};
use wardgate_domain::{
    BearerToken, Caller, Conversation, ConversationId, ConversationKey, Hold, HoldTarget,
    InvalidMessage, Message, NewMessage, ReadDecision, Skeleton, TurnId, TurnState,
};
use wardgate_proto::memory::v1 as pb;
use wardgate_proto::memory::v1::memory_service_client::MemoryServiceClient;

use super::{CallError, open_request, repeatable, request, token_of, within};
use crate::{Link, ServiceLink};

pub use watching::ConversationSubscriber;

/// Maximum size of a response in bytes: the largest page or turn that the service returns, with room for the
/// structure around the texts.
const MAX_ANSWER: usize = 24 << 20;

/// A client of the memory service, which stores conversations.
#[derive(Debug, Clone)]
pub struct MemoryClient {
    client: MemoryServiceClient<Link>,
    limit: Duration,
}

/// The caller whom a request is made for. The messages that a caller may read depend on both fields.
#[derive(Debug, Clone, Copy)]
pub struct OnBehalfOf<'a> {
    /// The caller.
    pub caller: &'a Caller,
    /// The IP address of the caller, or empty if it is unknown.
    pub client_ip: &'a str,
}

/// The part of a conversation that a model receives.
#[derive(Debug, Clone, Default)]
pub struct ContextWindow {
    /// The newest summary, if it covers messages that the window leaves out.
    pub summary: Option<Message>,
    /// The last messages that fit, oldest first.
    pub messages: Vec<Message>,
    /// Number of messages before the window that no summary covers.
    pub uncovered: u64,
    /// The key of the conversation, or `None` if the caller has no such conversation.
    pub key: Option<ConversationKey>,
}

/// Messages that are added to a conversation atomically.
#[derive(Debug, Clone)]
pub struct MessageBatch {
    /// The messages in order. If empty, only the state of the turn changes.
    pub messages: Vec<NewMessage>,
    /// The turn that the messages belong to, and its state after they were added. If `None`, each message is a turn
    /// that is complete immediately.
    pub turn: Option<(TurnId, TurnState)>,
}

/// The messages that were added.
#[derive(Debug, Clone)]
pub struct AddedMessages {
    /// The key of the conversation.
    pub key: ConversationKey,
    /// The messages as stored, in the given order, without their texts.
    pub messages: Vec<Message>,
}

/// A turn, which may be incomplete.
#[derive(Debug, Clone)]
pub struct ConversationTurn {
    /// The state of the turn.
    pub state: TurnState,
    /// All messages of the turn, oldest first.
    pub messages: Vec<Message>,
    /// The key of the conversation.
    pub key: ConversationKey,
}

/// A page of a conversation, for reading and export.
#[derive(Debug, Clone)]
pub struct ConversationPage {
    /// The conversation.
    pub conversation: Conversation,
    /// The messages, oldest first.
    pub messages: Vec<Message>,
    /// Whether there are more messages after the last one.
    pub more: bool,
    /// The decision of the policy that the caller may read the conversation, or `None` if it is the caller's own.
    pub recall: Option<ReadDecision>,
}

/// The conversation that a reader requests.
#[derive(Debug, Clone)]
pub enum ConversationSelector<'a> {
    /// The caller's own conversation with this id.
    Own(&'a ConversationId),
    /// The conversation with this key: the caller's own, or one that the policy allows the caller to recall.
    Key(ConversationKey),
}

/// A message that a search found.
#[derive(Debug, Clone)]
pub struct SearchHit {
    /// The id of the conversation.
    pub conversation_id: ConversationId,
    /// The message.
    pub message: Message,
}

/// A page of a list, with the token of the next page if there is one.
pub type ListPage<T> = (Vec<T>, Option<String>);

impl MemoryClient {
    /// Creates a client over `link` whose requests take at most `limit`.
    pub fn new(link: impl Into<ServiceLink>, limit: Duration) -> Self {
        Self {
            client: MemoryServiceClient::new(link.into().transport)
                .max_decoding_message_size(MAX_ANSWER),
            limit,
        }
    }

    /// Returns the caller's conversation with this id, and whether it was created because it did not exist. Without an id,
    /// creates a new conversation.
    pub async fn get_or_create(
        &self,
        of: OnBehalfOf<'_>,
        id: Option<&ConversationId>,
    ) -> Result<(Conversation, bool), CallError> {
        let message = pb::GetOrCreateRequest {
            caller_token: token_of(of.caller)?,
            conversation_id: id.map(text).unwrap_or_default(),
        };
        let answer = self
            .send_request(message, async |mut client, message| {
                client
                    .get_or_create(repeatable(message, id.is_some()))
                    .await
            })
            .await?;
        let conversation = present(answer.conversation, "conversation")?;
        Ok((conversation.try_into()?, answer.created))
    }

    /// Returns the last messages of complete turns that fit into the limits. A `max_messages` of 0 means 20, a `max_tokens` of 0
    /// no limit. The window is empty if the caller has no such conversation.
    pub async fn get_context(
        &self,
        of: OnBehalfOf<'_>,
        id: &ConversationId,
        max_messages: u32,
        max_tokens: u32,
    ) -> Result<ContextWindow, CallError> {
        let message = pb::GetContextRequest {
            caller_token: token_of(of.caller)?,
            conversation_id: text(id),
            max_messages,
            max_tokens,
            client_ip: of.client_ip.to_owned(),
        };
        let answer = self
            .send_request(message, async |mut client, message| {
                client.get_context(message).await
            })
            .await?;
        Ok(ContextWindow {
            summary: answer.summary.map(TryInto::try_into).transpose()?,
            messages: convert_all(answer.messages)?,
            uncovered: answer.uncovered,
            key: (!answer.key.is_empty())
                .then(|| key(&answer.key))
                .transpose()?,
        })
    }

    /// Adds messages to a conversation atomically. A message whose id exists already with the same content counts as added.
    pub async fn add_messages(
        &self,
        of: OnBehalfOf<'_>,
        id: &ConversationId,
        addition: &MessageBatch,
    ) -> Result<AddedMessages, CallError> {
        let mut message = pb::AddMessagesRequest {
            caller_token: token_of(of.caller)?,
            conversation_id: text(id),
            messages: addition.messages.iter().map(Into::into).collect(),
            client_ip: of.client_ip.to_owned(),
            ..pb::AddMessagesRequest::default()
        };
        if let Some((turn, state)) = &addition.turn {
            turn.as_str().clone_into(&mut message.turn_id);
            message.set_state((*state).into());
        }
        let answer = self
            .send_request(message, async |mut client, message| {
                client.add_messages(message).await
            })
            .await?;
        Ok(AddedMessages {
            key: key(&answer.key)?,
            messages: convert_all(answer.messages)?,
        })
    }

    /// Returns a turn, which may be incomplete, or `None` if it does not exist.
    pub async fn get_turn(
        &self,
        of: OnBehalfOf<'_>,
        id: &ConversationId,
        turn: &TurnId,
    ) -> Result<Option<ConversationTurn>, CallError> {
        let message = pb::GetTurnRequest {
            caller_token: token_of(of.caller)?,
            conversation_id: text(id),
            turn_id: turn.as_str().to_owned(),
            client_ip: of.client_ip.to_owned(),
        };
        let answer = self
            .send_request(message, async |mut client, message| {
                client.get_turn(message).await
            })
            .await?;
        if answer.state() == pb::TurnState::Unspecified {
            return Ok(None);
        }
        Ok(Some(ConversationTurn {
            state: answer.state().try_into()?,
            messages: convert_all(answer.messages)?,
            key: key(&answer.key)?,
        }))
    }

    /// Erases all messages of a conversation, but not the conversation itself. Returns its key.
    pub async fn clear(
        &self,
        of: OnBehalfOf<'_>,
        id: &ConversationId,
    ) -> Result<ConversationKey, CallError> {
        let message = pb::ClearRequest {
            caller_token: token_of(of.caller)?,
            conversation_id: text(id),
        };
        let answer = self
            .send_request(message, async |mut client, message| {
                client.clear(message).await
            })
            .await?;
        Ok(key(&answer.key)?)
    }

    /// Erases the conversation, which is recorded. Returns its key.
    pub async fn delete(
        &self,
        of: OnBehalfOf<'_>,
        id: &ConversationId,
    ) -> Result<ConversationKey, CallError> {
        let message = pb::DeleteRequest {
            caller_token: token_of(of.caller)?,
            conversation_id: text(id),
        };
        let answer = self
            .send_request(message, async |mut client, message| {
                client.delete(message).await
            })
            .await?;
        Ok(key(&answer.key)?)
    }

    /// Returns the caller's conversations, the most recently changed one first. A `limit` of 0 means 50.
    pub async fn list_conversations(
        &self,
        of: OnBehalfOf<'_>,
        limit: u32,
        page_token: &str,
    ) -> Result<ListPage<Conversation>, CallError> {
        let message = pb::ListConversationsRequest {
            caller_token: token_of(of.caller)?,
            limit,
            page_token: page_token.to_owned(),
        };
        let answer = self
            .send_request(message, async |mut client, message| {
                client.list_conversations(message).await
            })
            .await?;
        Ok((
            convert_all(answer.conversations)?,
            token(answer.next_page_token),
        ))
    }

    /// Returns the messages after the position `after`, oldest first. A `limit` of 0 means 100.
    pub async fn read_conversation(
        &self,
        of: OnBehalfOf<'_>,
        which: ConversationSelector<'_>,
        after: u64,
        limit: u32,
    ) -> Result<ConversationPage, CallError> {
        let message = pb::ReadConversationRequest {
            caller_token: token_of(of.caller)?,
            conversation_id: match which {
                ConversationSelector::Own(id) => text(id),
                ConversationSelector::Key(key) => key.to_string(),
            },
            after,
            limit,
            client_ip: of.client_ip.to_owned(),
        };
        let answer = self
            .send_request(message, async |mut client, message| {
                client.read_conversation(message).await
            })
            .await?;
        let conversation = present(answer.conversation, "conversation")?;
        Ok(ConversationPage {
            conversation: conversation.try_into()?,
            messages: convert_all(answer.messages)?,
            more: answer.more,
            recall: answer.recall.map(ReadDecision::try_from).transpose()?,
        })
    }

    /// Returns the caller's messages that contain every word of `query`, newest first. A `limit` of 0 means 20.
    pub async fn search(
        &self,
        of: OnBehalfOf<'_>,
        query: &str,
        within: Option<&ConversationId>,
        limit: u32,
    ) -> Result<Vec<SearchHit>, CallError> {
        let message = pb::SearchRequest {
            caller_token: token_of(of.caller)?,
            query: query.to_owned(),
            conversation_id: within.map(text).unwrap_or_default(),
            limit,
            client_ip: of.client_ip.to_owned(),
        };
        let answer = self
            .send_request(message, async |mut client, message| {
                client.search(message).await
            })
            .await?;
        answer
            .hits
            .into_iter()
            .map(|hit| {
                let id = hit.conversation_id.parse();
                let invalid = |_| InvalidMessage::field("conversation_id", "is not valid");
                Ok(SearchHit {
                    conversation_id: id.map_err(invalid)?,
                    message: present(hit.message, "message")?.try_into()?,
                })
            })
            .collect()
    }

    /// Returns the metadata of all callers' conversations for an operator, newest first. An empty `tenant` or `subject` matches
    /// all, and a `limit` of 0 means 50.
    pub async fn survey(
        &self,
        operator: &BearerToken,
        tenant: &str,
        subject: &str,
        limit: u32,
        page_token: &str,
    ) -> Result<ListPage<Skeleton>, CallError> {
        let message = pb::SurveyRequest {
            tenant: tenant.to_owned(),
            subject: subject.to_owned(),
            limit,
            page_token: page_token.to_owned(),
            caller_token: operator.expose().to_owned(),
        };
        let answer = self
            .send_request(message, async |mut client, message| {
                client.survey(message).await
            })
            .await?;
        Ok((
            convert_all(answer.skeletons)?,
            token(answer.next_page_token),
        ))
    }

    /// Erases a conversation for the operator with the token `operator`, which is recorded.
    pub async fn erase(
        &self,
        operator: &BearerToken,
        key: ConversationKey,
    ) -> Result<(), CallError> {
        let message = pb::EraseRequest {
            key: key.to_string(),
            caller_token: operator.expose().to_owned(),
        };
        self.send_request(message, async |mut client, message| {
            client.erase(message).await
        })
        .await
        .map(drop)
    }

    /// Sets or lifts a legal hold for the operator with the token `operator`, which is recorded.
    pub async fn set_hold(
        &self,
        operator: &BearerToken,
        target: &HoldTarget,
        held: bool,
    ) -> Result<(), CallError> {
        let message = pb::SetHoldRequest {
            target: Some(target.into()),
            held,
            caller_token: operator.expose().to_owned(),
        };
        self.send_request(message, async |mut client, message| {
            client.set_hold(message).await
        })
        .await
        .map(drop)
    }

    /// Returns all legal holds, for the operator with the token `operator`.
    pub async fn list_holds(&self, operator: &BearerToken) -> Result<Vec<Hold>, CallError> {
        let message = pb::ListHoldsRequest {
            caller_token: operator.expose().to_owned(),
        };
        let answer = self
            .send_request(message, async |mut client, message| {
                client.list_holds(message).await
            })
            .await?;
        convert_all(answer.holds)
    }

    async fn send_request<M, A>(
        &self,
        message: M,
        call: impl AsyncFnOnce(MemoryServiceClient<Link>, Request<M>) -> Result<Response<A>, Status>,
    ) -> Result<A, CallError> {
        let client = self.client.clone();
        within(self.limit, async {
            let answer = call(client, request(message, self.limit)).await?;
            Ok(answer.into_inner())
        })
        .await
    }
}

fn text(id: &ConversationId) -> String {
    id.as_str().to_owned()
}

fn key(text: &str) -> Result<ConversationKey, InvalidMessage> {
    text.parse()
        .map_err(|_| InvalidMessage::field("key", "is not a key of a conversation"))
}

fn token(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

fn present<T>(field: Option<T>, name: &'static str) -> Result<T, CallError> {
    field.ok_or_else(|| InvalidMessage::field(name, "is missing").into())
}

fn convert_all<W, T: TryFrom<W, Error = InvalidMessage>>(
    wire: Vec<W>,
) -> Result<Vec<T>, CallError> {
    let converted: Result<_, InvalidMessage> = wire.into_iter().map(T::try_from).collect();
    Ok(converted?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The gateway calls the memory service from spawned tasks, which requires that the futures are `Send`.
    #[test]
    fn a_question_can_be_asked_from_any_task() {
        fn sendable<T: Send>(make: impl Fn(&MemoryClient) -> T) {
            let _ = make;
        }
        sendable(|client| {
            let client = client.clone();
            async move { client.list_holds(&BearerToken::new("t")).await }
        });
        sendable(|client| {
            let client = client.clone();
            async move {
                let operator = BearerToken::new("t");
                client.survey(&operator, "", "", 0, "").await
            }
        });
    }
}
