//! The gRPC methods of conversations: each identifies the caller, converts the request, calls the service and converts
//! the result.

use wardgate_domain::{
    Caller, ConversationId, ConversationKey, InvalidMessage, InvalidText, Message, NewMessage,
    TurnId, TurnState,
};
use wardgate_proto::memory::v1 as pb;

use super::{MemoryHandler, bounded_limit, parse_conversation_id};
use crate::Error;
use crate::owner::Owner;
use crate::rights::{RequestContext, Rights};

/// Maximum length of a client's address, in bytes.
const MAX_ADDRESS: usize = 64;

impl<R: Rights> MemoryHandler<R> {
    pub(super) async fn get_or_create(
        &self,
        request: pb::GetOrCreateRequest,
    ) -> Result<pb::GetOrCreateResponse, Error> {
        let caller = self.callers.identify(&request.caller_token).await?;
        let id = parse_optional_conversation_id(&request.conversation_id)?;
        let owner = Owner::from(&*caller);
        let found = self.conversations.get_or_create(&owner, id.as_ref());
        let (conversation, created) = found.await?;
        Ok(pb::GetOrCreateResponse {
            conversation: Some(conversation.into()),
            created,
        })
    }

    pub(super) async fn get_context(
        &self,
        request: pb::GetContextRequest,
    ) -> Result<pb::GetContextResponse, Error> {
        let caller = self.callers.identify(&request.caller_token).await?;
        let context = request_context(&caller, &request.client_ip)?;
        let id = parse_conversation_id(&request.conversation_id)?;
        let max_messages = bounded_limit(request.max_messages, 20, 500);
        let window = self
            .conversations
            .get_context(context, &id, max_messages, request.max_tokens)
            .await?;
        Ok(pb::GetContextResponse {
            summary: window.summary.map(Into::into),
            messages: to_wire(window.messages),
            uncovered: window.uncovered,
            key: window
                .key
                .as_ref()
                .map(ConversationKey::to_string)
                .unwrap_or_default(),
        })
    }

    pub(super) async fn add_messages(
        &self,
        request: pb::AddMessagesRequest,
    ) -> Result<pb::AddMessagesResponse, Error> {
        let caller = self.callers.identify(&request.caller_token).await?;
        let context = request_context(&caller, &request.client_ip)?;
        let id = parse_conversation_id(&request.conversation_id)?;
        let turn = turn_and_state(&request)?;
        let messages = request.messages.into_iter().map(NewMessage::try_from);
        let messages = messages.collect::<Result<_, _>>()?;
        let added = self
            .conversations
            .add_messages(context, &id, messages, turn)
            .await?;
        Ok(pb::AddMessagesResponse {
            messages: to_wire(added.messages),
            key: added.key.to_string(),
        })
    }

    pub(super) async fn get_turn(
        &self,
        request: pb::GetTurnRequest,
    ) -> Result<pb::GetTurnResponse, Error> {
        let caller = self.callers.identify(&request.caller_token).await?;
        let context = request_context(&caller, &request.client_ip)?;
        let id = parse_conversation_id(&request.conversation_id)?;
        let turn = parse_turn_id(&request.turn_id)?;
        let turn = self.conversations.get_turn(context, &id, &turn).await?;
        Ok(
            turn.map_or_else(pb::GetTurnResponse::default, |turn| pb::GetTurnResponse {
                state: pb::TurnState::from(turn.state).into(),
                messages: to_wire(turn.messages),
                key: turn.key.to_string(),
            }),
        )
    }

    pub(super) async fn clear(
        &self,
        request: pb::ClearRequest,
    ) -> Result<pb::ClearResponse, Error> {
        let caller = self.callers.identify(&request.caller_token).await?;
        let id = parse_conversation_id(&request.conversation_id)?;
        let key = self
            .conversations
            .clear(&Owner::from(&*caller), &id)
            .await?;
        Ok(pb::ClearResponse {
            key: key.to_string(),
        })
    }

    pub(super) async fn delete(
        &self,
        request: pb::DeleteRequest,
    ) -> Result<pb::DeleteResponse, Error> {
        let caller = self.callers.identify(&request.caller_token).await?;
        let id = parse_conversation_id(&request.conversation_id)?;
        let key = self
            .conversations
            .delete(&Owner::from(&*caller), &id)
            .await?;
        Ok(pb::DeleteResponse {
            key: key.to_string(),
        })
    }

    pub(super) async fn list_conversations(
        &self,
        request: pb::ListConversationsRequest,
    ) -> Result<pb::ListConversationsResponse, Error> {
        let owner = Owner::from(&*self.callers.identify(&request.caller_token).await?);
        let limit = bounded_limit(request.limit, 50, 200);
        let page = self.store.list(&owner, limit, &request.page_token);
        let (conversations, next_page_token) = page.await?;
        Ok(pb::ListConversationsResponse {
            conversations: conversations.into_iter().map(Into::into).collect(),
            next_page_token,
        })
    }

    pub(super) async fn read_conversation(
        &self,
        request: pb::ReadConversationRequest,
    ) -> Result<pb::ReadConversationResponse, Error> {
        let caller = self.callers.identify(&request.caller_token).await?;
        let context = request_context(&caller, &request.client_ip)?;
        let id = parse_conversation_id(&request.conversation_id)?;
        let limit = bounded_limit(request.limit, 100, 500);
        let page = self
            .conversations
            .read_conversation(context, &id, request.after, limit)
            .await?;
        Ok(pb::ReadConversationResponse {
            conversation: Some(page.conversation.into()),
            messages: to_wire(page.messages),
            more: page.more,
            recall: page.recall.as_ref().map(Into::into),
        })
    }

    pub(super) async fn search(
        &self,
        request: pb::SearchRequest,
    ) -> Result<pb::SearchResponse, Error> {
        let caller = self.callers.identify(&request.caller_token).await?;
        let context = request_context(&caller, &request.client_ip)?;
        let within = parse_optional_conversation_id(&request.conversation_id)?;
        let limit = bounded_limit(request.limit, 20, 100);
        let hits = self
            .conversations
            .search(context, &request.query, within.as_ref(), limit)
            .await?;
        let hits = hits.into_iter().map(|hit| pb::Hit {
            conversation_id: hit.conversation_id.as_str().to_owned(),
            message: Some(hit.message.into()),
        });
        Ok(pb::SearchResponse {
            hits: hits.collect(),
        })
    }
}

fn to_wire(messages: Vec<Message>) -> Vec<pb::Message> {
    messages.into_iter().map(Into::into).collect()
}

fn request_context<'a>(
    caller: &'a Caller,
    client_ip: &'a str,
) -> Result<RequestContext<'a>, InvalidMessage> {
    if client_ip.len() > MAX_ADDRESS {
        return Err(InvalidMessage::field("client_ip", "is not an address"));
    }
    Ok(RequestContext { caller, client_ip })
}

fn parse_optional_conversation_id(text: &str) -> Result<Option<ConversationId>, InvalidMessage> {
    (!text.is_empty())
        .then(|| parse_conversation_id(text))
        .transpose()
}

fn parse_turn_id(text: &str) -> Result<TurnId, InvalidMessage> {
    let invalid = |error: InvalidText| InvalidMessage::field("turn_id", error.to_string());
    text.parse().map_err(invalid)
}

fn turn_and_state(
    request: &pb::AddMessagesRequest,
) -> Result<Option<(TurnId, TurnState)>, InvalidMessage> {
    if !request.turn_id.is_empty() {
        let turn = parse_turn_id(&request.turn_id)?;
        return Ok(Some((turn, request.state().try_into()?)));
    }
    match request.state() {
        pb::TurnState::Unspecified | pb::TurnState::Complete => Ok(None),
        pb::TurnState::Open | pb::TurnState::Abandoned => {
            let problem = "is missing; only a turn with an id can be open or abandoned";
            Err(InvalidMessage::field("turn_id", problem))
        }
    }
}
