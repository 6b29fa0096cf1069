//! The methods that callers have for their conversations.

use std::cmp::Reverse;
use std::sync::Arc;

use metrics::counter;
use wardgate_domain::{
    Ambient, Caller, Conversation, ConversationId, InvalidMessage, Message, NewMessage, Source,
    TurnId, TurnState,
};
use wardgate_proto::memory::v1 as pb;
use wardgate_telemetry::names;

use crate::Error;
use crate::callers::CallerCache;
use crate::config::Limits;
use crate::erasure::{Erasure, ErasureActor};
use crate::owner::Owner;
use crate::rights::{self, RequestContext, Rights};
use crate::store::{
    Addition, ConversationExcerpt, ConversationSelector, MAX_BATCH_BYTES, MAX_MESSAGES, MAX_TEXT,
    MessageEntry, Store, size,
};
use crate::words;

/// Characters of one search.
const MAX_QUERY: usize = 512;

/// Longest address of a client.
const MAX_ADDRESS: usize = 64;

/// The methods of conversations.
pub(crate) struct ConversationMethods<R> {
    pub(crate) callers: Arc<CallerCache<R>>,
    pub(crate) store: Store,
    pub(crate) erasure: Arc<Erasure>,
    pub(crate) rights: R,
    pub(crate) ambient: Ambient,
    pub(crate) limits: Limits,
}

impl<R: Rights> ConversationMethods<R> {
    pub(crate) async fn get_or_create(
        &self,
        request: pb::GetOrCreateRequest,
    ) -> Result<pb::GetOrCreateResponse, Error> {
        let caller = self.callers.identify(&request.caller_token).await?;
        let id = optional_id(&request.conversation_id)?;
        let now = self.ambient.now();
        let owner = Owner::from(&*caller);
        let most = self.limits.conversations.get();
        let found = self.store.get_or_create(&owner, id.as_ref(), most, now);
        let (conversation, created) = found.await?;
        Ok(pb::GetOrCreateResponse {
            conversation: Some(conversation.into()),
            created,
        })
    }

    pub(crate) async fn get_context(
        &self,
        request: pb::GetContextRequest,
    ) -> Result<pb::GetContextResponse, Error> {
        let caller = self.callers.identify(&request.caller_token).await?;
        let context = context(&caller, &request.client_ip)?;
        let id = id(&request.conversation_id)?;
        let max_messages = at_most(request.max_messages, 20, 500);
        let owner = Owner::from(&*caller);
        let window = self
            .store
            .window(&owner, &id, max_messages, request.max_tokens);
        let window = match window.await {
            Err(Error::UnknownConversation) => return Ok(pb::GetContextResponse::default()),
            found => found?,
        };
        let key = window.reading.conversation.key.to_string();
        let mut messages = self.shown(context, window.reading).await;
        let first = messages.first();
        let with_summary = first.is_some_and(|first| first.source == Source::Summary);
        let summary = with_summary.then(|| messages.remove(0));
        Ok(pb::GetContextResponse {
            summary: summary.map(Into::into),
            messages: messages.into_iter().map(Into::into).collect(),
            uncovered: window.uncovered,
            key,
        })
    }

    pub(crate) async fn add_messages(
        &self,
        request: pb::AddMessagesRequest,
    ) -> Result<pb::AddMessagesResponse, Error> {
        let caller = self.callers.identify(&request.caller_token).await?;
        let context = context(&caller, &request.client_ip)?;
        let id = id(&request.conversation_id)?;
        let turn = turn(&request)?;
        let messages = batch(request.messages, &caller)?;
        if messages.is_empty() && turn.is_none() {
            let problem = "is empty; only a turn can change without a message";
            return Err(InvalidMessage::field("messages", problem).into());
        }
        let addition = Addition {
            entries: self.judged(context, messages).await?,
            turn,
        };
        let count = addition.entries.len() as u64;
        let owner = Owner::from(&*caller);
        let added = self.store.add(&owner, &id, addition, self.ambient.now());
        let (key, added) = added.await?;
        counter!(names::MESSAGES_ADDED).increment(count);
        Ok(pb::AddMessagesResponse {
            messages: added.into_iter().map(Into::into).collect(),
            key: key.to_string(),
        })
    }

    /// A tool's result is kept only for a caller whom the policy lets make that call, with the rights of now.
    async fn judged(
        &self,
        context: RequestContext<'_>,
        messages: Vec<NewMessage>,
    ) -> Result<Vec<MessageEntry>, Error> {
        let calls: Vec<_> = messages
            .iter()
            .filter_map(|new| new.call.as_ref())
            .collect();
        let rights_of_calls = rights::rights_of_calls(&self.rights, context, &calls).await;
        let mut rights_of_calls = rights_of_calls.map_err(Error::Policy)?.into_iter();
        messages
            .into_iter()
            .map(|message| {
                let call_rights = match message.call {
                    None => None,
                    Some(_) => Some(rights_of_calls.next().flatten().ok_or(Error::Denied)?),
                };
                Ok(MessageEntry {
                    message,
                    call_rights,
                })
            })
            .collect()
    }

    pub(crate) async fn get_turn(
        &self,
        request: pb::GetTurnRequest,
    ) -> Result<pb::GetTurnResponse, Error> {
        let caller = self.callers.identify(&request.caller_token).await?;
        let context = context(&caller, &request.client_ip)?;
        let id = id(&request.conversation_id)?;
        let turn = turn_id(&request.turn_id)?;
        let owner = Owner::from(&*caller);
        let Some((state, reading)) = self.store.turn(&owner, &id, &turn).await? else {
            return Ok(pb::GetTurnResponse::default());
        };
        let key = reading.conversation.key.to_string();
        let messages = self.shown(context, reading).await;
        Ok(pb::GetTurnResponse {
            state: pb::TurnState::from(state).into(),
            messages: messages.into_iter().map(Into::into).collect(),
            key,
        })
    }

    pub(crate) async fn clear(
        &self,
        request: pb::ClearRequest,
    ) -> Result<pb::ClearResponse, Error> {
        let caller = self.callers.identify(&request.caller_token).await?;
        let id = id(&request.conversation_id)?;
        let owner = Owner::from(&*caller);
        let key = self.store.clear(&owner, &id, self.ambient.now()).await?;
        self.erasure.clean_up_cleared().await;
        Ok(pb::ClearResponse {
            key: key.to_string(),
        })
    }

    pub(crate) async fn delete(
        &self,
        request: pb::DeleteRequest,
    ) -> Result<pb::DeleteResponse, Error> {
        let caller = self.callers.identify(&request.caller_token).await?;
        let id = id(&request.conversation_id)?;
        let found = self.store.find(&Owner::from(&*caller), &id).await?;
        let found = found.ok_or(Error::UnknownConversation)?;
        let by = ErasureActor::Owner(caller.subject().to_owned());
        self.erasure.erase(found.key, by).await?;
        Ok(pb::DeleteResponse {
            key: found.key.to_string(),
        })
    }

    pub(crate) async fn list_conversations(
        &self,
        request: pb::ListConversationsRequest,
    ) -> Result<pb::ListConversationsResponse, Error> {
        let owner = Owner::from(&*self.callers.identify(&request.caller_token).await?);
        let limit = at_most(request.limit, 50, 200);
        let listed = self.store.list(&owner, limit, &request.page_token).await?;
        let (conversations, next_page_token) = listed;
        Ok(pb::ListConversationsResponse {
            conversations: conversations.into_iter().map(Into::into).collect(),
            next_page_token,
        })
    }

    pub(crate) async fn read_conversation(
        &self,
        request: pb::ReadConversationRequest,
    ) -> Result<pb::ReadConversationResponse, Error> {
        let caller = self.callers.identify(&request.caller_token).await?;
        let context = context(&caller, &request.client_ip)?;
        let id = id(&request.conversation_id)?;
        let limit = at_most(request.limit, 100, 500);
        let owner = Owner::from(&*caller);
        let own = self
            .store
            .page(ConversationSelector::Own(&owner, &id), request.after, limit);
        let (reading, more, shared) = match own.await {
            Err(Error::UnknownConversation) => {
                let (key, shared) = self.recallable(&caller, &id).await?;
                let page = self
                    .store
                    .page(ConversationSelector::Key(key), request.after, limit);
                let (reading, more) = page.await?;
                (reading, more, shared)
            }
            found => {
                let (reading, more) = found?;
                (reading, more, false)
            }
        };
        let conversation = Conversation {
            shared,
            ..reading.conversation.clone()
        };
        let messages = self.shown(context, reading).await;
        Ok(pb::ReadConversationResponse {
            conversation: Some(conversation.into()),
            messages: messages.into_iter().map(Into::into).collect(),
            more,
        })
    }

    /// The conversation whose key was given for an id, if the caller may read it, and whether another owns it. One
    /// that the caller may not read is answered like one that does not exist.
    async fn recallable(
        &self,
        caller: &Caller,
        id: &ConversationId,
    ) -> Result<(wardgate_domain::ConversationKey, bool), Error> {
        let unknown = Error::UnknownConversation;
        let Ok(key) = id.as_str().parse() else {
            return Err(unknown);
        };
        let Some((_, owner)) = self.store.find_by_key(key).await? else {
            return Err(unknown);
        };
        if owner == Owner::from(caller) {
            return Ok((key, false));
        }
        // The policy knows an owner by subject and tenant. Nothing is shared between tenants, and nobody is taken for
        // their namesake of another issuer.
        let namesake = owner.subject == caller.subject();
        if owner.tenant != caller.tenant() || namesake {
            return Err(unknown);
        }
        let allowed = self.rights.may_recall(caller, key, &owner).await;
        match allowed {
            Ok(true) => Ok((key, true)),
            Ok(false) => Err(unknown),
            // Whoever is told that nobody can be asked is told that there is something to ask about.
            Err(error) => {
                tracing::warn!(%error, "the policy cannot be asked; nothing is shared");
                Err(unknown)
            }
        }
    }

    pub(crate) async fn search(
        &self,
        request: pb::SearchRequest,
    ) -> Result<pb::SearchResponse, Error> {
        let caller = self.callers.identify(&request.caller_token).await?;
        let context = context(&caller, &request.client_ip)?;
        if request.query.chars().nth(MAX_QUERY).is_some() {
            let problem = format!("is longer than {MAX_QUERY} characters");
            return Err(InvalidMessage::field("query", problem).into());
        }
        let owner = Owner::from(&*caller);
        let asked = self.store.words(&owner, &request.query);
        if asked.len() > words::MAX_ASKED {
            let problem = format!("holds more than {} words", words::MAX_ASKED);
            return Err(InvalidMessage::field("query", problem).into());
        }
        let within = optional_id(&request.conversation_id)?;
        if asked.is_empty() {
            return Ok(pb::SearchResponse::default());
        }
        let limit = at_most(request.limit, 20, 100);
        let found = self.store.search(&owner, &asked, within.as_ref(), limit);
        let mut hits = Vec::new();
        for reading in found.await? {
            let conversation_id = reading.conversation.id.as_str().to_owned();
            let shown = self.shown(context, reading).await;
            // That it is found would tell its words.
            let readable = shown.into_iter().filter(|message| !message.withheld);
            hits.extend(readable.map(|message| (conversation_id.clone(), message)));
        }
        hits.sort_by_key(|(_, message)| Reverse((message.time, message.position)));
        let hits = hits.into_iter().map(|(conversation_id, message)| pb::Hit {
            conversation_id,
            message: Some(message.into()),
        });
        Ok(pb::SearchResponse {
            hits: hits.collect(),
        })
    }

    async fn shown(
        &self,
        context: RequestContext<'_>,
        reading: ConversationExcerpt,
    ) -> Vec<Message> {
        let shown = rights::shown(&self.rights, context, reading).await;
        let withheld = shown.iter().filter(|message| message.withheld).count();
        counter!(names::MESSAGES_WITHHELD).increment(withheld as u64);
        shown
    }
}

/// What was asked for within bounds; 0 stands for the default.
pub(crate) fn at_most(asked: u32, default: u32, most: u32) -> u32 {
    if asked == 0 { default } else { asked.min(most) }
}

fn context<'a>(
    caller: &'a Caller,
    client_ip: &'a str,
) -> Result<RequestContext<'a>, InvalidMessage> {
    if client_ip.len() > MAX_ADDRESS {
        return Err(InvalidMessage::field("client_ip", "is no address"));
    }
    Ok(RequestContext { caller, client_ip })
}

pub(crate) fn id(text: &str) -> Result<ConversationId, InvalidMessage> {
    let invalid = |error: wardgate_domain::InvalidText| {
        InvalidMessage::field("conversation_id", error.to_string())
    };
    text.parse().map_err(invalid)
}

fn optional_id(text: &str) -> Result<Option<ConversationId>, InvalidMessage> {
    (!text.is_empty()).then(|| id(text)).transpose()
}

fn turn_id(text: &str) -> Result<TurnId, InvalidMessage> {
    let invalid =
        |error: wardgate_domain::InvalidText| InvalidMessage::field("turn_id", error.to_string());
    text.parse().map_err(invalid)
}

fn turn(request: &pb::AddMessagesRequest) -> Result<Option<(TurnId, TurnState)>, InvalidMessage> {
    if !request.turn_id.is_empty() {
        return Ok(Some((
            turn_id(&request.turn_id)?,
            request.state().try_into()?,
        )));
    }
    match request.state() {
        pb::TurnState::Unspecified | pb::TurnState::Complete => Ok(None),
        pb::TurnState::Open | pb::TurnState::Abandoned => {
            let problem = "is missing; only a turn with an id can be open or abandoned";
            Err(InvalidMessage::field("turn_id", problem))
        }
    }
}

/// The messages of a batch, within their limits, each id once.
fn batch(messages: Vec<pb::Message>, caller: &Caller) -> Result<Vec<NewMessage>, InvalidMessage> {
    let too = |problem: String| Err(InvalidMessage::field("messages", problem));
    if messages.len() > MAX_MESSAGES {
        return too(format!("holds more than {MAX_MESSAGES}"));
    }
    let mut ids = std::collections::HashSet::new();
    let mut bytes = 0;
    let mut batch = Vec::with_capacity(messages.len());
    for message in messages {
        let mut message = NewMessage::try_from(message)?;
        if matches!(message.source, Source::Person | Source::Approval) {
            caller.subject().clone_into(&mut message.author);
        }
        let size = size(&message);
        if size > MAX_TEXT {
            return too(format!("holds one of more than {MAX_TEXT} bytes"));
        }
        bytes += size;
        if bytes > MAX_BATCH_BYTES {
            return too(format!("holds more than {MAX_BATCH_BYTES} bytes together"));
        }
        if let Some(id) = &message.id
            && !ids.insert(id.clone())
        {
            return Err(InvalidMessage::field(
                "message_id",
                "occurs twice in one batch",
            ));
        }
        batch.push(message);
    }
    Ok(batch)
}
