//! The operations that callers perform on their conversations.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::Arc;

use metrics::counter;
use wardgate_domain::{
    Ambient, Caller, Conversation, ConversationId, ConversationKey, InvalidMessage, Message,
    NewMessage, ReadDecision, Source, TurnId, TurnState,
};
use wardgate_rpc::client::{
    AddedMessages, ContextWindow, ConversationPage, ConversationTurn, SearchHit,
};
use wardgate_telemetry::names;

use crate::Error;
use crate::config::OwnerLimits;
use crate::erasure::{Erasure, ErasureActor};
use crate::owner::Owner;
use crate::rights::{self, RequestContext, Rights};
use crate::store::{
    Addition, ConversationExcerpt, ConversationSelector, MAX_BATCH_BYTES, MAX_MESSAGES, MAX_TEXT,
    MemoryStore, MessageEntry, size,
};
use crate::words;

/// Maximum number of characters of a search query.
const MAX_QUERY: usize = 512;

/// The operations on conversations.
pub(crate) struct ConversationMethods<R> {
    pub(crate) store: MemoryStore,
    pub(crate) erasure: Arc<Erasure>,
    pub(crate) rights: R,
    pub(crate) ambient: Ambient,
    pub(crate) limits: OwnerLimits,
}

impl<R: Rights> ConversationMethods<R> {
    /// Returns the owner's conversation `id`, and whether it was created by this call. Creates it if it does not exist;
    /// without an id, creates a new conversation.
    pub(crate) async fn get_or_create(
        &self,
        owner: &Owner,
        id: Option<&ConversationId>,
    ) -> Result<(Conversation, bool), Error> {
        let maximum = self.limits.conversations.get();
        let now = self.ambient.now();
        self.store.get_or_create(owner, id, maximum, now).await
    }

    /// Returns the last messages of complete turns that fit the limits. The window is empty if the caller has no such
    /// conversation.
    pub(crate) async fn get_context(
        &self,
        context: RequestContext<'_>,
        id: &ConversationId,
        max_messages: u32,
        max_tokens: u32,
    ) -> Result<ContextWindow, Error> {
        let owner = Owner::from(context.caller);
        let window = self.store.window(&owner, id, max_messages, max_tokens);
        let window = match window.await {
            Err(Error::UnknownConversation) => return Ok(ContextWindow::default()),
            found => found?,
        };
        let key = window.reading.conversation.key;
        let mut messages = self.filter_readable(context, window.reading).await;
        let first = messages.first();
        let with_summary = first.is_some_and(|first| first.source == Source::Summary);
        let summary = with_summary.then(|| messages.remove(0));
        Ok(ContextWindow {
            summary,
            messages,
            uncovered: window.uncovered,
            key: Some(key),
        })
    }

    /// Adds a batch of messages atomically. The caller is the author of messages by a person.
    pub(crate) async fn add_messages(
        &self,
        context: RequestContext<'_>,
        id: &ConversationId,
        messages: Vec<NewMessage>,
        turn: Option<(TurnId, TurnState)>,
    ) -> Result<AddedMessages, Error> {
        let messages = prepare_batch(messages, context.caller)?;
        if messages.is_empty() && turn.is_none() {
            let problem = "is empty, and no turn is given whose state would change";
            return Err(InvalidMessage::field("messages", problem).into());
        }
        let addition = Addition {
            entries: self.add_rights(context, messages).await?,
            turn,
        };
        let count = addition.entries.len() as u64;
        let owner = Owner::from(context.caller);
        let added = self.store.add(&owner, id, addition, self.ambient.now());
        let (key, messages) = added.await?;
        counter!(names::MESSAGES_ADDED).increment(count);
        Ok(AddedMessages { key, messages })
    }

    /// Adds the caller's rights to the results of tools. Fails if the policy does not allow the caller to make one of
    /// the calls now.
    async fn add_rights(
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

    /// Returns one turn, complete or not, or `None` if there is no such turn.
    pub(crate) async fn get_turn(
        &self,
        context: RequestContext<'_>,
        id: &ConversationId,
        turn: &TurnId,
    ) -> Result<Option<ConversationTurn>, Error> {
        let owner = Owner::from(context.caller);
        let Some((state, reading)) = self.store.turn(&owner, id, turn).await? else {
            return Ok(None);
        };
        let key = reading.conversation.key;
        Ok(Some(ConversationTurn {
            state,
            messages: self.filter_readable(context, reading).await,
            key,
        }))
    }

    /// Erases every message of the owner's conversation and returns its key.
    pub(crate) async fn clear(
        &self,
        owner: &Owner,
        id: &ConversationId,
    ) -> Result<ConversationKey, Error> {
        let key = self.store.clear(owner, id, self.ambient.now()).await?;
        self.erasure.clean_up_cleared().await;
        Ok(key)
    }

    /// Erases the owner's conversation, records the erasure, and returns its key.
    pub(crate) async fn delete(
        &self,
        owner: &Owner,
        id: &ConversationId,
    ) -> Result<ConversationKey, Error> {
        let found = self.store.find(owner, id).await?;
        let found = found.ok_or(Error::UnknownConversation)?;
        let by = ErasureActor::Owner(owner.subject.clone());
        self.erasure.erase(found.key, by).await?;
        Ok(found.key)
    }

    /// Returns a page of the caller's own conversation `id`, or of the conversation with the key `id` if the policy
    /// allows the caller to recall it.
    pub(crate) async fn read_conversation(
        &self,
        context: RequestContext<'_>,
        id: &ConversationId,
        after: u64,
        limit: u32,
    ) -> Result<ConversationPage, Error> {
        let owner = Owner::from(context.caller);
        let own = self
            .store
            .page(ConversationSelector::Own(&owner, id), after, limit);
        let (reading, more, recall) = match own.await {
            Err(Error::UnknownConversation) => {
                let (key, recall) = self.find_recallable(context.caller, id).await?;
                let page = self
                    .store
                    .page(ConversationSelector::Key(key), after, limit);
                let (reading, more) = page.await?;
                (reading, more, recall)
            }
            found => {
                let (reading, more) = found?;
                (reading, more, None)
            }
        };
        let conversation = Conversation {
            shared: recall.is_some(),
            ..reading.conversation.clone()
        };
        Ok(ConversationPage {
            conversation,
            messages: self.filter_readable(context, reading).await,
            more,
            recall,
        })
    }

    /// Returns the key that `id` spells, if the caller may read its conversation, and the decision of the policy if another
    /// person owns it. A conversation that the caller may not read is treated like one that does not exist.
    async fn find_recallable(
        &self,
        caller: &Caller,
        id: &ConversationId,
    ) -> Result<(ConversationKey, Option<ReadDecision>), Error> {
        let unknown = Error::UnknownConversation;
        let Ok(key) = id.as_str().parse() else {
            return Err(unknown);
        };
        let Some((_, owner)) = self.store.find_by_key(key).await? else {
            return Err(unknown);
        };
        if owner == Owner::from(caller) {
            return Ok((key, None));
        }
        // The policy knows an owner by subject and tenant only. So nothing is shared between tenants, nor with an owner
        // of the same subject from another issuer.
        let namesake = owner.subject == caller.subject();
        if owner.tenant != caller.tenant() || namesake {
            return Err(unknown);
        }
        let recall = self.rights.may_recall(caller, key, &owner).await;
        match recall {
            Ok(Some(decision)) => Ok((key, Some(decision))),
            Ok(None) => Err(unknown),
            // An error about the policy service would reveal that the conversation exists.
            Err(error) => {
                tracing::warn!(%error, "the policy service cannot be reached; conversations of other callers are not shown");
                Err(unknown)
            }
        }
    }

    /// Returns the caller's messages that contain every word of `query`, newest first.
    pub(crate) async fn search(
        &self,
        context: RequestContext<'_>,
        query: &str,
        within: Option<&ConversationId>,
        limit: u32,
    ) -> Result<Vec<SearchHit>, Error> {
        if query.chars().nth(MAX_QUERY).is_some() {
            let problem = format!("is longer than {MAX_QUERY} characters");
            return Err(InvalidMessage::field("query", problem).into());
        }
        let owner = Owner::from(context.caller);
        let words = self.store.words(&owner, query);
        let count = words.first().map_or(0, Vec::len);
        if count > words::MAX_SEARCH_WORDS {
            let problem = format!("contains more than {} words", words::MAX_SEARCH_WORDS);
            return Err(InvalidMessage::field("query", problem).into());
        }
        if count == 0 {
            return Ok(Vec::new());
        }
        let found = self.store.search(&owner, &words, within, limit);
        let mut hits = Vec::new();
        for reading in found.await? {
            let conversation_id = reading.conversation.id.clone();
            let messages = self.filter_readable(context, reading).await;
            // A hit on a withheld message would reveal its words.
            let readable = messages.into_iter().filter(|message| !message.withheld);
            hits.extend(readable.map(|message| SearchHit {
                conversation_id: conversation_id.clone(),
                message,
            }));
        }
        hits.sort_by_key(|hit| Reverse((hit.message.time, hit.message.position)));
        Ok(hits)
    }

    /// Returns the messages of `reading` as the caller may read them, and counts those that are withheld.
    async fn filter_readable(
        &self,
        context: RequestContext<'_>,
        reading: ConversationExcerpt,
    ) -> Vec<Message> {
        let messages = rights::filter_readable(&self.rights, context, reading).await;
        let withheld = messages.iter().filter(|message| message.withheld).count();
        counter!(names::MESSAGES_WITHHELD).increment(withheld as u64);
        messages
    }
}

/// Validates the limits of a batch and the uniqueness of its ids, and sets the authors of its messages.
fn prepare_batch(
    mut messages: Vec<NewMessage>,
    caller: &Caller,
) -> Result<Vec<NewMessage>, InvalidMessage> {
    let exceeds = |problem: String| Err(InvalidMessage::field("messages", problem));
    if messages.len() > MAX_MESSAGES {
        return exceeds(format!("contains more than {MAX_MESSAGES} messages"));
    }
    let mut bytes = 0;
    for message in &mut messages {
        if matches!(message.source, Source::Person | Source::Approval) {
            caller.subject().clone_into(&mut message.author);
        }
        let size = size(message);
        if size > MAX_TEXT {
            return exceeds(format!("contains a message of more than {MAX_TEXT} bytes"));
        }
        bytes += size;
        if bytes > MAX_BATCH_BYTES {
            return exceeds(format!(
                "contains more than {MAX_BATCH_BYTES} bytes in total"
            ));
        }
    }
    let mut ids = HashSet::new();
    let given = messages.iter().filter_map(|message| message.id.as_ref());
    for id in given {
        if !ids.insert(id) {
            let problem = "occurs twice in one batch";
            return Err(InvalidMessage::field("message_id", problem));
        }
    }
    Ok(messages)
}
