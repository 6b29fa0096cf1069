//! The memory service, as its callers see it.

mod watching;

use std::time::Duration;

use tonic::{Request, Response, Status};
use wardgate_domain::{
    BearerToken, Caller, Conversation, ConversationId, ConversationKey, Hold, HoldTarget,
    InvalidMessage, Message, NewMessage, Skeleton, TurnId, TurnState,
};
use wardgate_proto::memory::v1 as pb;
use wardgate_proto::memory::v1::memory_service_client::MemoryServiceClient;

use super::{CallError, open_request, repeatable, request, token_of, within};
use crate::{Link, ServiceLink};

pub use watching::ConversationSubscriber;

/// Bytes of one answer: the largest page or turn the service gives, and room for what is around the texts.
const MAX_ANSWER: usize = 24 << 20;

/// Keeps conversations and reads them.
#[derive(Debug, Clone)]
pub struct MemoryClient {
    client: MemoryServiceClient<Link>,
    limit: Duration,
}

/// Whom a request is for. What a caller may read depends on both.
#[derive(Debug, Clone, Copy)]
pub struct OnBehalfOf<'a> {
    /// Who asks.
    pub caller: &'a Caller,
    /// Address the caller calls from; empty when unknown.
    pub client_ip: &'a str,
}

/// Part of a conversation, as a model gets it.
#[derive(Debug, Clone, Default)]
pub struct ContextWindow {
    /// The newest summary, when it covers something that the window leaves out.
    pub summary: Option<Message>,
    /// The last messages that fit, oldest first.
    pub messages: Vec<Message>,
    /// Messages before the window that no summary covers.
    pub uncovered: u64,
    /// Which conversation it is; none when the caller has no such conversation.
    pub key: Option<ConversationKey>,
}

/// Messages to add to a conversation, all or nothing.
#[derive(Debug, Clone)]
pub struct MessageBatch {
    /// In this order. None: only the state of the turn changes.
    pub messages: Vec<NewMessage>,
    /// The turn they are part of, and what it is once they are added. None: each is a turn of its own,
    /// complete at once.
    pub turn: Option<(TurnId, TurnState)>,
}

/// The messages that were added.
#[derive(Debug, Clone)]
pub struct AddedMessages {
    /// To which conversation.
    pub key: ConversationKey,
    /// What is stored, in the order given, without the texts.
    pub messages: Vec<Message>,
}

/// One turn, whether or not it is complete.
#[derive(Debug, Clone)]
pub struct ConversationTurn {
    /// How far it is.
    pub state: TurnState,
    /// All of it, oldest first.
    pub messages: Vec<Message>,
    /// Of which conversation.
    pub key: ConversationKey,
}

/// Part of a conversation, for reading and for export.
#[derive(Debug, Clone)]
pub struct ConversationPage {
    /// Which one.
    pub conversation: Conversation,
    /// Oldest first.
    pub messages: Vec<Message>,
    /// There are further ones; ask for those after the last position.
    pub more: bool,
}

/// The conversation that a reader asks for.
#[derive(Debug, Clone)]
pub enum ConversationSelector<'a> {
    /// The caller's own of this id.
    Own(&'a ConversationId),
    /// The one of this key: the caller's own, or one that the policy lets the caller recall.
    Key(ConversationKey),
}

/// A message that was found.
#[derive(Debug, Clone)]
pub struct SearchHit {
    /// Where it is.
    pub conversation_id: ConversationId,
    /// What it says.
    pub message: Message,
}

/// A page of a list; with a token there is a further page.
pub type ListPage<T> = (Vec<T>, Option<String>);

impl MemoryClient {
    /// Over `link`; no answer takes longer than `limit`.
    pub fn new(link: impl Into<ServiceLink>, limit: Duration) -> Self {
        Self {
            client: MemoryServiceClient::new(link.into().transport)
                .max_decoding_message_size(MAX_ANSWER),
            limit,
        }
    }

    /// The caller's conversation of that id, made when there is none, and whether it was made; without an id a
    /// new one.
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
            .ask(message, async |mut client, message| {
                client
                    .get_or_create(repeatable(message, id.is_some()))
                    .await
            })
            .await?;
        let conversation = present(answer.conversation, "conversation")?;
        Ok((conversation.try_into()?, answer.created))
    }

    /// The last messages of complete turns, as many as fit; 0 stands for 20 messages, and for no limit of
    /// tokens. Empty for a conversation that the caller does not have.
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
            .ask(message, async |mut client, message| {
                client.get_context(message).await
            })
            .await?;
        Ok(ContextWindow {
            summary: answer.summary.map(TryInto::try_into).transpose()?,
            messages: all(answer.messages)?,
            uncovered: answer.uncovered,
            key: (!answer.key.is_empty())
                .then(|| key(&answer.key))
                .transpose()?,
        })
    }

    /// Adds to a conversation, all or nothing. A message whose id is there already with the same content counts
    /// as added.
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
            .ask(message, async |mut client, message| {
                client.add_messages(message).await
            })
            .await?;
        Ok(AddedMessages {
            key: key(&answer.key)?,
            messages: all(answer.messages)?,
        })
    }

    /// One turn, complete or not; none: there is no such turn.
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
            .ask(message, async |mut client, message| {
                client.get_turn(message).await
            })
            .await?;
        if answer.state() == pb::TurnState::Unspecified {
            return Ok(None);
        }
        Ok(Some(ConversationTurn {
            state: answer.state().try_into()?,
            messages: all(answer.messages)?,
            key: key(&answer.key)?,
        }))
    }

    /// Erases every message; the conversation stays. Gives its key.
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
            .ask(message, async |mut client, message| {
                client.clear(message).await
            })
            .await?;
        Ok(key(&answer.key)?)
    }

    /// Erases the conversation, on record. Gives its key.
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
            .ask(message, async |mut client, message| {
                client.delete(message).await
            })
            .await?;
        Ok(key(&answer.key)?)
    }

    /// The caller's conversations, the one that changed last first; 0 stands for 50.
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
            .ask(message, async |mut client, message| {
                client.list_conversations(message).await
            })
            .await?;
        Ok((all(answer.conversations)?, token(answer.next_page_token)))
    }

    /// Messages after that position, oldest first; 0 stands for 100 of them.
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
            .ask(message, async |mut client, message| {
                client.read_conversation(message).await
            })
            .await?;
        let conversation = present(answer.conversation, "conversation")?;
        Ok(ConversationPage {
            conversation: conversation.try_into()?,
            messages: all(answer.messages)?,
            more: answer.more,
        })
    }

    /// The caller's messages that hold every word of `query`, newest first; 0 stands for 20 of them.
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
            .ask(message, async |mut client, message| {
                client.search(message).await
            })
            .await?;
        answer
            .hits
            .into_iter()
            .map(|hit| {
                let id = hit.conversation_id.parse();
                let invalid = |_| InvalidMessage::field("conversation_id", "is none");
                Ok(SearchHit {
                    conversation_id: id.map_err(invalid)?,
                    message: present(hit.message, "message")?.try_into()?,
                })
            })
            .collect()
    }

    /// Skeletons of everyone's conversations, the newest first, for an operator; an empty text stands for every
    /// tenant or subject, 0 for 50 skeletons.
    pub async fn survey(
        &self,
        operator: &BearerToken,
        (tenant, subject): (&str, &str),
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
            .ask(message, async |mut client, message| {
                client.survey(message).await
            })
            .await?;
        Ok((all(answer.skeletons)?, token(answer.next_page_token)))
    }

    /// Erases a conversation for the holder of the token `operator`, on record.
    pub async fn erase(
        &self,
        operator: &BearerToken,
        key: ConversationKey,
    ) -> Result<(), CallError> {
        let message = pb::EraseRequest {
            key: key.to_string(),
            caller_token: operator.expose().to_owned(),
        };
        self.ask(message, async |mut client, message| {
            client.erase(message).await
        })
        .await
        .map(drop)
    }

    /// Puts a legal hold on something, or lifts it, for the holder of the token `operator`, on record.
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
        self.ask(message, async |mut client, message| {
            client.set_hold(message).await
        })
        .await
        .map(drop)
    }

    /// Every hold.
    pub async fn list_holds(&self, operator: &BearerToken) -> Result<Vec<Hold>, CallError> {
        let message = pb::ListHoldsRequest {
            caller_token: operator.expose().to_owned(),
        };
        let answer = self
            .ask(message, async |mut client, message| {
                client.list_holds(message).await
            })
            .await?;
        all(answer.holds)
    }

    async fn ask<M, A>(
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
        .map_err(|_| InvalidMessage::field("key", "is no key of a conversation"))
}

fn token(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

fn present<T>(field: Option<T>, name: &'static str) -> Result<T, CallError> {
    field.ok_or_else(|| InvalidMessage::field(name, "is missing").into())
}

fn all<W, T: TryFrom<W, Error = InvalidMessage>>(wire: Vec<W>) -> Result<Vec<T>, CallError> {
    let converted: Result<_, InvalidMessage> = wire.into_iter().map(T::try_from).collect();
    Ok(converted?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The gateway asks from tasks of its own.
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
                client.survey(&operator, ("", ""), 0, "").await
            }
        });
    }
}
