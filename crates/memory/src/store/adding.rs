//! Adds messages to a conversation: a batch is added atomically, in one dense order, and each id is added once.
//!
//! ```text
//!   lock the conversation ─▶ look up known ids ─▶ next positions ─▶ insert ─▶ end the turn ─▶ commit
//! ```
//!
//! Concurrent additions to the same conversation wait for the lock, so positions have no gaps and no turn ends twice.

use wardgate_domain::{
    ConversationId, ConversationKey, InvalidMessage, Message, MessageId, NewMessage, Source,
    Timestamp, TurnId, TurnState,
};

use super::changes::{ChangeKind, log_change};
use super::conversations::lock_owned_conversation;
use super::row::{
    ConversationRow, MessageRow, MessageSlot, UnlockedConversation, message, role_number,
    source_number, state, state_number,
};
use super::{CallRights, MemoryStore, to_i64, to_u64, within};
use crate::Error;
use crate::owner::Owner;
use crate::sealing::{MasterKey, WordKey};
use crate::words;
use wardgate_store::{Statement, Transaction, Value};

/// Maximum number of messages in one batch.
pub(crate) const MAX_MESSAGES: usize = 200;

/// Maximum size of the texts of one message, in bytes.
pub(crate) const MAX_TEXT: usize = 1 << 20;

/// Maximum size of the texts of one batch, in bytes.
pub(crate) const MAX_BATCH_BYTES: usize = 8 << 20;

/// Maximum number of messages of one turn, so that a turn can be returned as a whole.
const MAX_TURN_MESSAGES: i64 = 1_000;
const MAX_TURN_BYTES: i64 = 16 << 20;

pub(super) const BY_ID: &str = concat!(message!(), "WHERE m.conversation = $1 AND m.id = $2");

const INSERT: &str = "
    INSERT INTO memory.message
        (conversation, position, id, turn, state, role, source, covers_to, characters, size, at,
         policy_hash, rights, grounds, call, body)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
    RETURNING number";

pub(super) const INSERT_WORDS: Statement = Statement::Each {
    sqlite: "INSERT INTO message_words (rowid, words) VALUES ($1, $2)",
    postgres: "INSERT INTO memory.message_words (message, words)
               VALUES ($1, array_to_tsvector(string_to_array($2, ' ')))",
};

/// Selects the state, the number of messages and the size of a turn. The sum is cast because its type differs between
/// the backends.
pub(super) const TURN: &str = "
    SELECT min(m.state), count(*), CAST(sum(m.size) AS bigint) FROM memory.message m
    WHERE m.conversation = $1 AND m.turn = $2 AND m.position > $3 HAVING count(*) > 0";

const END_TURN: &str = "
    UPDATE memory.message SET state = $3
    WHERE conversation = $1 AND turn = $2 AND state = 0 AND position > $4";

/// Deletes a message with this id that was cleared but whose row still exists.
const FORGET: &str =
    "DELETE FROM memory.message WHERE conversation = $1 AND id = $2 AND position <= $3";

const FORGET_WORDS: Statement = Statement::Each {
    sqlite: "DELETE FROM message_words WHERE rowid IN (SELECT number FROM message
             WHERE conversation = $1 AND id = $2 AND position <= $3)",
    postgres: "DELETE FROM memory.message_words WHERE message IN (SELECT number FROM memory.message
               WHERE conversation = $1 AND id = $2 AND position <= $3)",
};

const COUNT_UP: &str = "
    UPDATE memory.conversation SET positions = $2, messages = $3, updated_at = $4 WHERE number = $1";

/// A message to add.
pub(crate) struct MessageEntry {
    pub(crate) message: NewMessage,
    /// The rights under which a tool's result was produced, or `None` for other messages.
    pub(crate) call_rights: Option<CallRights>,
}

/// The messages to add atomically.
pub(crate) struct Addition {
    pub(crate) entries: Vec<MessageEntry>,
    /// The turn that the messages belong to and its state after the addition, or `None` if each message is a turn of
    /// its own.
    pub(crate) turn: Option<(TurnId, TurnState)>,
}

/// The state of the turn before the addition.
struct TurnProgress {
    state: TurnState,
    messages: i64,
    bytes: i64,
}

impl MemoryStore {
    /// Adds messages to the owner's conversation. Returns the key of the conversation and the stored messages without
    /// their texts, in the order given. A message whose id exists already with the same content counts as added.
    pub(crate) async fn add(
        &self,
        owner: &Owner,
        id: &ConversationId,
        addition: Addition,
        now: Timestamp,
    ) -> Result<(ConversationKey, Vec<Message>), Error> {
        let added = within(async {
            let mut transaction = self.database.write().await?;
            let conversation =
                lock_owned_conversation(&mut transaction, owner, id.as_str()).await?;
            let key = conversation.key()?;
            let unlocked = conversation.unlock(self)?;
            let master = self.key_in_force(&mut transaction).await?;
            let mut adding = AdditionTransaction {
                store: self,
                last: conversation.positions,
                complete: conversation.messages,
                turn: None,
                conversation,
                unlocked,
                master,
                word_key: master.word_key(owner),
                now,
                transaction,
            };
            let stored = adding.run(addition).await?;
            adding.transaction.commit().await?;
            Ok((key, stored))
        });
        let added = added.await?;
        self.change_signal.notify_one();
        Ok(added)
    }
}

/// One addition and its transaction.
struct AdditionTransaction<'a> {
    store: &'a MemoryStore,
    transaction: Transaction,
    conversation: ConversationRow,
    unlocked: UnlockedConversation,
    /// The master key in force.
    master: &'a MasterKey,
    word_key: WordKey,
    now: Timestamp,
    /// The last position that was assigned.
    last: i64,
    /// The number of complete messages.
    complete: i64,
    turn: Option<TurnProgress>,
}

impl AdditionTransaction<'_> {
    async fn run(&mut self, addition: Addition) -> Result<Vec<Message>, Error> {
        let Addition { entries, turn } = addition;
        if let Some((id, _)) = &turn {
            self.turn = self.turn_progress(id).await?;
        }
        let before = self.last;
        let mut stored = Vec::with_capacity(entries.len());
        for entry in entries {
            let found = match &entry.message.id {
                Some(id) => self.find_message(id).await?,
                None => None,
            };
            stored.push(match found {
                Some(found) if repeats(&entry.message, &found, turn.as_ref()) => found,
                Some(_) => return Err(Error::OtherMessage),
                None => self.insert(entry, turn.as_ref()).await?,
            });
        }
        let added = self.last - before;
        if let Some((id, target)) = &turn {
            self.end_turn(id, *target, added, stored.is_empty()).await?;
        } else {
            self.complete += added;
        }
        if added > 0 || self.complete != self.conversation.messages {
            let counts = [
                self.conversation.number.into(),
                self.last.into(),
                self.complete.into(),
                self.now.as_micros().into(),
            ];
            self.transaction.execute(COUNT_UP, counts).await?;
        }
        // Messages of an open turn are not readable yet, so they are not announced.
        if self.complete != self.conversation.messages {
            let number = self.conversation.number;
            log_change(&mut self.transaction, number, ChangeKind::Messages).await?;
        }
        Ok(stored.into_iter().map(without_texts).collect())
    }

    async fn turn_progress(&mut self, id: &TurnId) -> Result<Option<TurnProgress>, Error> {
        let key = [
            self.conversation.number.into(),
            id.as_str().into(),
            self.conversation.cleared_to.into(),
        ];
        let found: Option<(i64, i64, i64)> = self.transaction.row(TURN, key).await?;
        found
            .map(|(number, messages, bytes)| {
                Ok(TurnProgress {
                    state: state(number)?,
                    messages,
                    bytes,
                })
            })
            .transpose()
    }

    /// Returns the message with this id, or `None` if it does not exist or was cleared.
    async fn find_message(&mut self, id: &MessageId) -> Result<Option<Message>, Error> {
        let number = self.conversation.number;
        let key = [number.into(), id.as_str().into()];
        let row: Option<MessageRow> = self.transaction.row(BY_ID, key).await?;
        let Some(row) = row else { return Ok(None) };
        if row.position <= self.conversation.cleared_to {
            let cleared_to = self.conversation.cleared_to;
            let cleared = || [number.into(), id.as_str().into(), cleared_to.into()];
            self.transaction.execute(FORGET_WORDS, cleared()).await?;
            self.transaction.execute(FORGET, cleared()).await?;
            return Ok(None);
        }
        Ok(Some(self.unlocked.open(row)?.message))
    }

    async fn insert(
        &mut self,
        entry: MessageEntry,
        turn: Option<&(TurnId, TurnState)>,
    ) -> Result<Message, Error> {
        let MessageEntry {
            message,
            call_rights,
        } = entry;
        if let Some(progress) = &self.turn
            && progress.state != TurnState::Open
        {
            return Err(Error::TurnOver(progress.state.as_str()));
        }
        if message.covers_to > to_u64(self.last) {
            let problem = "is not the position of an earlier message";
            return Err(InvalidMessage::field("covers_to", problem).into());
        }
        let size = to_i64(size(&message) as u64);
        self.make_room_in_turn(turn, size)?;
        self.last += 1;
        let position = self.last;
        let id = message.id.clone();
        let id = id.unwrap_or_else(|| MessageId::new(&self.store.ambient));
        let state = turn.map_or(TurnState::Complete, |(_, state)| *state);
        let characters = message.content.chars().count() + message.calls.len();
        let slot = MessageSlot {
            id: id.as_str(),
            position,
            turn: turn.map(|(turn, _)| turn.as_str()),
        };
        let sealed = self.unlocked.seal(
            &message,
            slot,
            call_rights.as_ref(),
            self.master,
            &self.store.ambient,
        )?;
        let bytes = |digest: wardgate_domain::Digest| digest.as_bytes().to_vec();
        let row = [
            self.conversation.number.into(),
            position.into(),
            id.as_str().into(),
            turn.map(|(turn, _)| turn.as_str()).into(),
            state_number(state).into(),
            role_number(message.role).into(),
            source_number(message.source).into(),
            to_i64(message.covers_to).into(),
            to_i64(characters as u64).into(),
            size.into(),
            self.now.as_micros().into(),
            call_rights.map(|given| bytes(given.policy_hash)).into(),
            call_rights.map(|given| bytes(given.rights)).into(),
            sealed.grounds.into(),
            sealed.call.into(),
            sealed.body.into(),
        ];
        let number: Option<(i64,)> = self.transaction.row(INSERT, row).await?;
        let (number,) = number.ok_or(Error::Damaged("message"))?;
        self.index(number, &message).await?;
        Ok(Message {
            id,
            position: to_u64(position),
            turn: turn.map(|(turn, _)| turn.clone()),
            time: self.now,
            role: message.role,
            source: message.source,
            author: message.author,
            content: String::new(),
            calls: bytes::Bytes::new(),
            call: message.call,
            is_error: message.is_error,
            covers_to: message.covers_to,
            policy_hash: call_rights.map(|given| given.policy_hash),
            withheld: false,
        })
    }

    fn make_room_in_turn(
        &mut self,
        turn: Option<&(TurnId, TurnState)>,
        size: i64,
    ) -> Result<(), Error> {
        if turn.is_none() {
            return Ok(());
        }
        let progress = self.turn.get_or_insert(TurnProgress {
            state: TurnState::Open,
            messages: 0,
            bytes: 0,
        });
        progress.messages += 1;
        progress.bytes += size;
        if progress.messages > MAX_TURN_MESSAGES || progress.bytes > MAX_TURN_BYTES {
            return Err(Error::TurnFull {
                messages: MAX_TURN_MESSAGES,
                bytes: MAX_TURN_BYTES,
            });
        }
        Ok(())
    }

    /// Adds a message to the search index, if it is searchable.
    async fn index(&mut self, number: i64, message: &NewMessage) -> Result<(), Error> {
        if !is_searchable(message.source) {
            return Ok(());
        }
        let words = words::blind(&message.content, &self.word_key);
        if words.is_empty() {
            return Ok(());
        }
        let words: Vec<_> = words.into_iter().collect();
        let row = [number.into(), Value::from(words.join(" "))];
        self.transaction.execute(INSERT_WORDS, row).await?;
        Ok(())
    }

    /// Moves the turn to the state `target` after `added` messages were added.
    async fn end_turn(
        &mut self,
        id: &TurnId,
        target: TurnState,
        added: i64,
        nothing_given: bool,
    ) -> Result<(), Error> {
        let Some(progress) = &self.turn else {
            // A turn begins with its first message. Without messages there is nothing to complete or to abandon.
            return Ok(());
        };
        match (progress.state, target) {
            (is, target) if is != TurnState::Open => {
                // A late retry of an earlier step changes nothing.
                if is == target || (target == TurnState::Open && !nothing_given) {
                    return Ok(());
                }
                Err(Error::TurnOver(is.as_str()))
            }
            (_, TurnState::Open) => Ok(()),
            (_, target) => {
                let values = [
                    self.conversation.number.into(),
                    id.as_str().into(),
                    state_number(target).into(),
                    self.conversation.cleared_to.into(),
                ];
                let ended = self.transaction.execute(END_TURN, values).await?;
                if target == TurnState::Complete {
                    self.complete += added + to_i64(ended);
                }
                Ok(())
            }
        }
    }
}

/// Returns whether messages of this source can be found by their words: what a person or a model wrote.
pub(super) fn is_searchable(source: Source) -> bool {
    matches!(source, Source::Person | Source::Model)
}

/// Returns the size of the texts of a message, in bytes.
pub(crate) fn size(message: &NewMessage) -> usize {
    let call = message.call.as_ref();
    message.content.len()
        + message.calls.len()
        + message.author.len()
        + call.map_or(0, |call| call.arguments.len())
}

/// Returns whether `new` repeats the message `stored`. The definition of the tool may have changed in between.
fn repeats(new: &NewMessage, stored: &Message, turn: Option<&(TurnId, TurnState)>) -> bool {
    let call = match (&new.call, &stored.call) {
        (None, None) => true,
        (Some(new), Some(stored)) => {
            new.call_id == stored.call_id
                && new.tool.name == stored.tool.name
                && new.arguments == stored.arguments
        }
        _ => false,
    };
    call && turn.map(|(turn, _)| turn) == stored.turn.as_ref()
        && new.role == stored.role
        && new.source == stored.source
        && new.author == stored.author
        && new.content == stored.content
        && new.calls == stored.calls
        && new.is_error == stored.is_error
        && new.covers_to == stored.covers_to
}

fn without_texts(message: Message) -> Message {
    Message {
        content: String::new(),
        calls: bytes::Bytes::new(),
        call: message.call.map(|call| wardgate_domain::AnsweredCall {
            arguments: bytes::Bytes::new(),
            ..call
        }),
        ..message
    }
}
