//! The rows of the store and their conversion to domain types.

use std::borrow::Cow;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use wardgate_domain::{
    About, Ambient, AnsweredCall, Conversation, ConversationKey, Digest, Message, NewMessage, Role,
    Source, Timestamp, TurnState,
};

use super::{CallRights, GroundingResult, MemoryStore, StoredMessage, to_i64, to_u64};
use crate::Error;
use crate::owner::Owner;
use crate::sealing::{DataKey, MasterKey, MasterKeys};
use crate::wire::{decode_call, encode_call};

/// An SQL expression for whether the conversation `c` is held.
macro_rules! held {
    () => {
        "EXISTS (SELECT 1 FROM memory.hold h WHERE
            (h.kind = 'conversation' AND h.tenant = '' AND h.name = c.key)
            OR (h.kind = 'person' AND h.tenant = c.tenant AND h.name = c.subject)
            OR (h.kind = 'tenant' AND h.tenant = c.tenant AND h.name = ''))"
    };
}
pub(super) use held;

/// Selects the columns of a [`ConversationRow`] from `conversation c`.
macro_rules! conversation {
    () => {
        concat!(
            "SELECT c.number, c.key, c.id, c.data_key, c.created_at, c.updated_at, c.positions,
                c.messages, c.cleared_to, ",
            $crate::store::row::held!(),
            " AS held FROM memory.conversation c "
        )
    };
}
pub(super) use conversation;

/// Selects the columns of a [`MessageRow`] from `message m`.
macro_rules! message {
    () => {
        "SELECT m.position, m.id, m.turn, m.state, m.role, m.source, m.covers_to, m.at,
            m.policy_hash, m.rights, m.call, m.body FROM memory.message m "
    };
}
pub(super) use message;

/// A conversation that is not erased.
pub(super) struct ConversationRow {
    pub(super) number: i64,
    key: String,
    id: Option<String>,
    data_key: Option<Vec<u8>>,
    created_at: i64,
    updated_at: i64,
    pub(super) positions: i64,
    pub(super) messages: i64,
    pub(super) cleared_to: i64,
    pub(super) held: bool,
}

wardgate_store::from_row!(ConversationRow {
    number,
    key,
    id,
    data_key,
    created_at,
    updated_at,
    positions,
    messages,
    cleared_to,
    held,
});

impl ConversationRow {
    pub(super) fn key(&self) -> Result<ConversationKey, Error> {
        self.key.parse().map_err(|_| Error::Damaged("conversation"))
    }

    pub(super) fn to_conversation(&self) -> Result<Conversation, Error> {
        let damaged = || Error::Damaged("conversation");
        let id = self.id.as_deref().ok_or_else(damaged)?;
        Ok(Conversation {
            id: id.parse().map_err(|_| damaged())?,
            key: self.key()?,
            created_at: Timestamp::from_micros(self.created_at),
            updated_at: Timestamp::from_micros(self.updated_at),
            messages: to_u64(self.messages),
            held: self.held,
            shared: false,
        })
    }

    /// Unwraps the key of the conversation, so that its messages can be read.
    pub(super) fn unlock(&self, store: &MemoryStore) -> Result<UnlockedConversation, Error> {
        let key = self.key()?;
        let wrapped = self.wrapped_key();
        let wrapped = wrapped.ok_or(Error::Damaged("conversation"))?;
        Ok(UnlockedConversation {
            data_key: store.keys.unwrap(key, wrapped)?,
            key,
        })
    }

    /// Returns the key of the conversation as it is stored, or `None` if the conversation is erased.
    pub(super) fn wrapped_key(&self) -> Option<&[u8]> {
        self.data_key.as_deref()
    }
}

pub(super) struct MessageRow {
    pub(super) position: i64,
    id: Option<String>,
    turn: Option<String>,
    pub(super) state: i64,
    role: i64,
    source: i64,
    pub(super) covers_to: i64,
    at: i64,
    policy_hash: Option<Vec<u8>>,
    rights: Option<Vec<u8>>,
    call: Option<Vec<u8>>,
    body: Option<Vec<u8>>,
}

wardgate_store::from_row!(MessageRow {
    position,
    id,
    turn,
    state,
    role,
    source,
    covers_to,
    at,
    policy_hash,
    rights,
    call,
    body
});

/// Selects the columns of a [`GroundingRow`] from `message t`.
macro_rules! ground {
    () => {
        "SELECT t.position, t.id, t.turn, t.role, t.source, t.covers_to, t.rights, t.call
            FROM memory.message t "
    };
}
pub(super) use ground;

/// The columns of a tool's result that a [`GroundingResult`] needs.
pub(super) struct GroundingRow {
    pub(super) position: i64,
    id: Option<String>,
    turn: Option<String>,
    role: i64,
    source: i64,
    covers_to: i64,
    rights: Option<Vec<u8>>,
    call: Option<Vec<u8>>,
}

wardgate_store::from_row!(GroundingRow {
    position,
    id,
    turn,
    role,
    source,
    covers_to,
    rights,
    call
});

/// Where a new message is stored in its conversation.
#[derive(Clone, Copy)]
pub(super) struct MessageSlot<'a> {
    pub(super) id: &'a str,
    pub(super) position: i64,
    pub(super) turn: Option<&'a str>,
}

/// The fields of a message that are stored in clear and are authenticated with its sealed texts. The state is not among
/// them, because it changes.
struct ClearFields<'a> {
    id: &'a str,
    position: i64,
    turn: Option<&'a str>,
    role: i64,
    source: i64,
    covers_to: i64,
    rights: Option<&'a [u8]>,
}

/// The fields of a message that are stored sealed.
#[derive(Serialize, Deserialize)]
struct SealedFields<'a> {
    author: Cow<'a, str>,
    content: Cow<'a, str>,
    calls: Cow<'a, str>,
    is_error: bool,
}

/// The sealed texts of a message.
pub(super) struct SealedMessage {
    pub(super) body: Vec<u8>,
    pub(super) call: Option<Vec<u8>>,
    /// A keyed digest of the call and its rights, equal for results of the same kind; `None` for messages that are not
    /// results.
    pub(super) grounds: Option<Vec<u8>>,
}

/// A conversation's unwrapped key.
pub(super) struct UnlockedConversation {
    key: ConversationKey,
    data_key: DataKey,
}

impl UnlockedConversation {
    pub(super) fn seal(
        &self,
        message: &NewMessage,
        slot: MessageSlot<'_>,
        call_rights: Option<&CallRights>,
        master: &MasterKey,
        ambient: &Ambient,
    ) -> Result<SealedMessage, Error> {
        let calls = std::str::from_utf8(&message.calls);
        let body = SealedFields {
            author: message.author.as_str().into(),
            content: message.content.as_str().into(),
            calls: calls.map_err(|_| Error::Damaged("message"))?.into(),
            is_error: message.is_error,
        };
        let body = serde_json::to_vec(&body).map_err(|_| Error::Damaged("message"))?;
        let clear = ClearFields {
            id: slot.id,
            position: slot.position,
            turn: slot.turn,
            role: role_number(message.role),
            source: source_number(message.source),
            covers_to: to_i64(message.covers_to),
            rights: call_rights.map(|given| &given.rights.as_bytes()[..]),
        };
        let seal = |kind, plain: &[u8]| {
            let about = self.about(kind, &clear);
            self.data_key.seal(&about, plain, ambient)
        };
        let call = message
            .call
            .as_ref()
            .map(|call| seal("call", &encode_call(call)));
        let grounds = message.call.as_ref().zip(call_rights);
        Ok(SealedMessage {
            body: seal("body", &body)?,
            call: call.transpose()?,
            grounds: grounds.map(|(call, call_rights)| {
                let grounds = grounds_of(call, call_rights.rights, call_rights.by_arguments);
                master.tag(&grounds).as_bytes().to_vec()
            }),
        })
    }

    pub(super) fn open(&self, row: MessageRow) -> Result<StoredMessage, Error> {
        let damaged = || Error::Damaged("message");
        let id = row.id.as_deref().ok_or_else(damaged)?;
        let clear = ClearFields {
            id,
            position: row.position,
            turn: row.turn.as_deref(),
            role: row.role,
            source: row.source,
            covers_to: row.covers_to,
            rights: row.rights.as_deref(),
        };
        let body = row.body.ok_or_else(damaged)?;
        let body = self.data_key.open(&self.about("body", &clear), body)?;
        let body: SealedFields<'_> = serde_json::from_slice(&body).map_err(|_| damaged())?;
        let call = row.call.map(|sealed| self.open_call(&clear, sealed));
        let call = call.transpose()?;
        let message = Message {
            id: id.parse().map_err(|_| damaged())?,
            position: to_u64(row.position),
            turn: turn(row.turn)?,
            time: Timestamp::from_micros(row.at),
            role: find_by_number(Role::ALL, role_number, row.role)?,
            source: find_by_number(Source::ALL, source_number, row.source)?,
            author: body.author.into_owned(),
            content: body.content.into_owned(),
            calls: Bytes::from(body.calls.into_owned()),
            call,
            is_error: body.is_error,
            covers_to: to_u64(row.covers_to),
            policy_hash: row.policy_hash.map(digest).transpose()?,
            withheld: false,
        };
        Ok(StoredMessage {
            message,
            rights: row.rights.map(digest).transpose()?,
        })
    }

    pub(super) fn open_ground(&self, row: GroundingRow) -> Result<GroundingResult, Error> {
        let damaged = || Error::Damaged("message");
        let clear = ClearFields {
            id: row.id.as_deref().ok_or_else(damaged)?,
            position: row.position,
            turn: row.turn.as_deref(),
            role: row.role,
            source: row.source,
            covers_to: row.covers_to,
            rights: row.rights.as_deref(),
        };
        let call = row.call.ok_or_else(damaged)?;
        Ok(GroundingResult {
            position: to_u64(row.position),
            call: self.open_call(&clear, call)?,
            rights: digest(row.rights.ok_or_else(damaged)?)?,
        })
    }

    fn open_call(&self, clear: &ClearFields<'_>, sealed: Vec<u8>) -> Result<AnsweredCall, Error> {
        let call = self.data_key.open(&self.about("call", clear), sealed)?;
        decode_call(&call)
    }

    fn about(&self, kind: &'static str, clear: &ClearFields<'_>) -> About {
        let about = About::new(kind)
            .and(self.key.to_string().as_bytes())
            .and(clear.id.as_bytes())
            .and(&clear.position.to_be_bytes())
            // Neither a turn nor a digest is ever empty, so an empty field stands for an absent one.
            .and(clear.turn.unwrap_or_default().as_bytes())
            .and(clear.rights.unwrap_or_default());
        let numbers = [clear.role, clear.source, clear.covers_to];
        numbers
            .iter()
            .fold(about, |about, number| about.and(&number.to_be_bytes()))
    }
}

/// Identifies a kind of results: the policy gives the same verdict on all calls of the kind, and they have the same
/// rights. The arguments are included only if the verdict depends on them.
fn grounds_of(call: &AnsweredCall, rights: Digest, by_arguments: bool) -> About {
    let grounds = About::new("grounds")
        .and(crate::tool_digest::digest_of_tool(&call.tool).as_bytes())
        .and(rights.as_bytes());
    if by_arguments {
        return grounds.and(&call.arguments);
    }
    grounds
}

/// Returns the keyed digest of the kind of results that `message` belongs to under the current key, where `grounds` is the one under
/// a former key. Returns `None` if `grounds` is not the digest of its kind under a former key.
pub(super) fn rekey_grounds(
    message: &StoredMessage,
    grounds: &[u8],
    keys: &MasterKeys,
) -> Option<Vec<u8>> {
    let (call, rights) = message.message.call.as_ref().zip(message.rights)?;
    let kinds = [false, true].map(|by_arguments| grounds_of(call, rights, by_arguments));
    let mut kinds = kinds.iter();
    let kind = kinds.find(|kind| {
        let mut former = keys.former().iter();
        former.any(|key| key.tag(kind).as_bytes() == grounds)
    })?;
    Some(keys.current().tag(kind).as_bytes().to_vec())
}

/// Returns the digest that identifies an owner in the tables.
pub(super) fn owner_digest(owner: &Owner) -> Vec<u8> {
    let person = wardgate_domain::person(&owner.tenant, &owner.issuer, &owner.subject);
    person.as_bytes().to_vec()
}

pub(super) fn state_number(state: TurnState) -> i64 {
    match state {
        TurnState::Open => 0,
        TurnState::Complete => 1,
        TurnState::Abandoned => 2,
    }
}

pub(super) fn state(number: i64) -> Result<TurnState, Error> {
    find_by_number(TurnState::ALL, state_number, number)
}

pub(super) fn role_number(role: Role) -> i64 {
    match role {
        Role::User => 1,
        Role::Assistant => 2,
        Role::Tool => 3,
        Role::System => 4,
    }
}

pub(super) fn source_number(source: Source) -> i64 {
    match source {
        Source::Person => 1,
        Source::Model => 2,
        Source::Tool => 3,
        Source::Summary => 4,
        Source::Approval => 5,
    }
}

/// Returns the one of `values` that is stored as `number`.
fn find_by_number<T: Copy>(values: &[T], number_of: fn(T) -> i64, number: i64) -> Result<T, Error> {
    let mut values = values.iter().copied();
    values
        .find(|value| number_of(*value) == number)
        .ok_or(Error::Damaged("message"))
}

fn turn(text: Option<String>) -> Result<Option<wardgate_domain::TurnId>, Error> {
    let parsed = text.map(|turn| turn.parse());
    parsed.transpose().map_err(|_| Error::Damaged("message"))
}

fn digest(bytes: Vec<u8>) -> Result<Digest, Error> {
    let bytes = bytes.try_into().map_err(|_| Error::Damaged("message"))?;
    Ok(Digest::from_bytes(bytes))
}
