//! The move of the store from a former master key to the current one.
//!
//! ```text
//!   begin    the current key is put in force: what is written from now on is under it
//!   batch    the next conversations: their keys are wrapped, and their words and grounds hidden, under the current key
//!   last     the former key is not needed any more
//!   check    the keys of all conversations are read again, to count those that the current key does not decrypt
//! ```
//!
//! Every batch is one transaction, which also says how far the move is, so it goes on where it was interrupted. Until its end
//! every service needs both keys.

use wardgate_domain::ConversationKey;
use wardgate_store::{Statement, Transaction, Value};

use super::adding::{INSERT_WORDS, is_searchable};
use super::row::{ConversationRow, MessageRow, UnlockedConversation, conversation, rekey_grounds};
use super::{MemoryStore, to_u64, within};
use crate::Error;
use crate::owner::Owner;
use crate::words;

/// Maximum number of conversations in one batch, and of messages.
const MAX_CONVERSATIONS: u64 = 50;
const MAX_MESSAGES: i64 = 50;

/// Maximum number of conversations whose keys one step of the check reads.
const MAX_CHECKED: i64 = 1_000;

/// Number of bytes of searchable text after which a batch ends. The words of a text are removed from the index one by one, so
/// that a batch of long documents would exceed the time limit.
const MAX_TEXT_BYTES: usize = 64 * 1024;

pub(super) const FORMER: &str = "SELECT former FROM memory.rekeying";

/// Waits until every transaction that writes under the former key has ended, and keeps later ones waiting.
const WAIT_FOR_WRITERS: Statement = Statement::Each {
    sqlite: "SELECT number FROM master_key",
    postgres: "LOCK TABLE memory.master_key IN EXCLUSIVE MODE",
};

const PUT_IN_FORCE: &str = "UPDATE memory.master_key SET known_by = $1";

const BEGIN: &str = "
    INSERT INTO memory.rekeying (number, former, conversation, position) VALUES (1, $1, 0, 0)";

const PROGRESS: &str = "SELECT former, conversation, position FROM memory.rekeying FOR UPDATE";

const ADVANCE: &str = "UPDATE memory.rekeying SET conversation = $1, position = $2";

const END: &str = "DELETE FROM memory.rekeying";

const REMAINING: &str = "
    SELECT count(*) FROM memory.conversation
    WHERE number > (SELECT conversation FROM memory.rekeying)";

/// Nothing but the number, which never changes, selects the conversation: a concurrent erasure must not hide those after it.
pub(super) const NEXT: &str = concat!(
    conversation!(),
    "WHERE c.number > $1 ORDER BY c.number LIMIT 1 FOR UPDATE"
);

const OWNER: &str = "SELECT tenant, issuer, subject FROM memory.conversation WHERE number = $1";

const REWRAP: &str = "UPDATE memory.conversation SET data_key = $2 WHERE number = $1";

/// Selects the messages that have words or grounds: those of persons and models, and results of tools.
pub(super) const MESSAGES: &str = "
    SELECT m.number, m.grounds, m.position, m.id, m.turn, m.state, m.role, m.source, m.covers_to, m.at,
        m.policy_hash, m.rights, m.call, m.body
    FROM memory.message m
    WHERE m.conversation = $1 AND m.position > $2 AND (m.source IN (1, 2) OR m.grounds IS NOT NULL)
    ORDER BY m.position LIMIT $3";

const REMOVE_WORDS: Statement = Statement::Each {
    sqlite: "DELETE FROM message_words WHERE rowid = $1",
    postgres: "DELETE FROM memory.message_words WHERE message = $1",
};

const REGROUND: &str = "UPDATE memory.message SET grounds = $2 WHERE number = $1";

/// Selects the keys of the next conversations. Those that are erased are selected too, so that the limit bounds the number of rows
/// that are read.
pub(super) const KEYS: &str = "
    SELECT c.number, c.key, c.data_key FROM memory.conversation c
    WHERE c.number > $1 ORDER BY c.number LIMIT $2";

struct IndexedMessageRow {
    number: i64,
    grounds: Option<Vec<u8>>,
    message: MessageRow,
}

wardgate_store::from_row!(IndexedMessageRow { number, grounds; message });

/// What one batch moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RekeyBatch {
    /// The number of conversations that are moved as a whole.
    pub(crate) conversations: u64,
    /// The number of conversations whose keys cannot be decrypted, which stay as they are.
    pub(crate) unreadable: u64,
    /// The number of messages of the moved conversations that cannot be decrypted, which stay as they are.
    pub(crate) unreadable_messages: u64,
    /// Whether everything is moved.
    pub(crate) is_last: bool,
}

/// What one step of the check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyCheck {
    /// The number of checked conversations, including those that are erased.
    pub(crate) checked: u64,
    /// The identifiers of the checked conversations whose keys the current master key does not decrypt.
    pub(crate) unreadable: Vec<String>,
    /// The conversation at which the next step continues, or `None` if all are checked.
    pub(crate) last: Option<i64>,
}

/// How far a batch has moved a conversation.
enum ConversationMove {
    /// The conversation is moved as a whole, or there is nothing to move.
    Complete,
    /// The messages up to this position are moved.
    UpTo(i64),
    /// The key of the conversation cannot be decrypted.
    Unreadable,
}

/// The transaction of a batch.
struct BatchTransaction<'a> {
    store: &'a MemoryStore,
    transaction: Transaction,
    /// The number of messages that the batch may still move.
    messages_left: i64,
    /// The number of bytes of searchable text that the batch has moved.
    text_bytes: usize,
    batch: RekeyBatch,
}

impl MemoryStore {
    /// Puts the current master key in force, unless it is. Returns the number of conversations to move, or `None` if nothing
    /// is under another key. Fails if no service has used the store yet, or if it is under another key than those configured.
    pub(crate) async fn begin_rekeying(&self) -> Result<Option<u64>, Error> {
        within(async {
            let mut transaction = self.database.write().await?;
            transaction.execute(WAIT_FOR_WRITERS, []).await?;
            let current = self.keys.current().known_by();
            let (in_force, former) = self.stored_keys(&mut transaction).await?;
            match (in_force == current.as_bytes(), former) {
                (true, None) => return Ok(None),
                (true, Some(_)) => {}
                (false, Some(_)) => return Err(Error::RekeyUnfinished),
                (false, None) => {
                    transaction.execute(BEGIN, [in_force.into()]).await?;
                    let known_by = [current.as_bytes()[..].into()];
                    transaction.execute(PUT_IN_FORCE, known_by).await?;
                }
            }
            let remaining: Option<(i64,)> = transaction.row(REMAINING, []).await?;
            transaction.commit().await?;
            Ok(Some(to_u64(remaining.map_or(0, |(count,)| count))))
        })
        .await
    }

    /// Moves the next conversations to the current master key, after [`MemoryStore::begin_rekeying`].
    pub(crate) async fn rekey_batch(&self) -> Result<RekeyBatch, Error> {
        within(async {
            let mut transaction = self.database.write().await?;
            let progress: Option<(Vec<u8>, i64, i64)> = transaction.row(PROGRESS, []).await?;
            let Some((former, conversation, position)) = progress else {
                return Ok(RekeyBatch {
                    is_last: true,
                    ..RekeyBatch::default()
                });
            };
            if self.keys.find(&former).is_none() {
                return Err(Error::OtherMasterKey);
            }
            let mut moving = BatchTransaction {
                store: self,
                transaction,
                messages_left: MAX_MESSAGES,
                text_bytes: 0,
                batch: RekeyBatch::default(),
            };
            moving.run(conversation, position).await?;
            moving.transaction.commit().await?;
            Ok(moving.batch)
        })
        .await
    }

    /// Checks the keys of the conversations that come after `after`, as many as one step may.
    pub(crate) async fn check_keys(&self, after: i64) -> Result<KeyCheck, Error> {
        within(async {
            let mut transaction = self.database.begin_read().await?;
            let bounds = [after.into(), MAX_CHECKED.into()];
            let found: Vec<(i64, String, Option<Vec<u8>>)> = transaction.rows(KEYS, bounds).await?;
            transaction.commit().await?;
            let current = self.keys.current();
            let last = found.last().map(|(number, ..)| *number);
            let checked = found.len() as u64;
            let unreadable = found.into_iter().filter_map(|(_, identifier, wrapped)| {
                // An erased conversation has no key.
                let wrapped = wrapped?;
                let key = identifier.parse::<ConversationKey>();
                let is_readable = key.is_ok_and(|key| current.unwrap(key, wrapped).is_ok());
                (!is_readable).then_some(identifier)
            });
            Ok(KeyCheck {
                checked,
                unreadable: unreadable.collect(),
                last,
            })
        })
        .await
    }
}

impl BatchTransaction<'_> {
    /// Moves what comes after `conversation`, and of the first one what comes after `position`.
    async fn run(&mut self, mut conversation: i64, mut position: i64) -> Result<(), Error> {
        while !self.is_full()
            && self.batch.conversations + self.batch.unreadable < MAX_CONVERSATIONS
        {
            let next = [conversation.into()];
            let row: Option<ConversationRow> = self.transaction.row(NEXT, next).await?;
            let Some(row) = row else {
                self.transaction.execute(END, []).await?;
                self.batch.is_last = true;
                return Ok(());
            };
            (conversation, position) = match self.move_conversation(&row, position).await? {
                ConversationMove::UpTo(reached) => (conversation, reached),
                ConversationMove::Complete => {
                    self.batch.conversations += 1;
                    (row.number, 0)
                }
                ConversationMove::Unreadable => {
                    self.batch.unreadable += 1;
                    (row.number, 0)
                }
            };
        }
        let reached = [conversation.into(), position.into()];
        self.transaction.execute(ADVANCE, reached).await?;
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.messages_left == 0 || self.text_bytes >= MAX_TEXT_BYTES
    }

    /// Moves a conversation's key, and its messages after `position` as far as the batch may.
    async fn move_conversation(
        &mut self,
        row: &ConversationRow,
        position: i64,
    ) -> Result<ConversationMove, Error> {
        // An erased conversation has no key.
        let Some(wrapped) = row.wrapped_key() else {
            return Ok(ConversationMove::Complete);
        };
        let Ok(unlocked) = row.unlock(self.store) else {
            return Ok(ConversationMove::Unreadable);
        };
        if position == 0 {
            let (keys, ambient) = (&self.store.keys, &self.store.ambient);
            match keys.rewrap(row.key()?, wrapped, ambient) {
                // It was created or cleared after the current key was put in force, so its messages are under it too.
                Ok(None) => return Ok(ConversationMove::Complete),
                Ok(Some(rewrapped)) => {
                    let values = [row.number.into(), rewrapped.into()];
                    self.transaction.execute(REWRAP, values).await?;
                }
                Err(_) => return Ok(ConversationMove::Unreadable),
            }
        }
        let position = position.max(row.cleared_to);
        self.move_messages(row, &unlocked, position).await
    }

    async fn move_messages(
        &mut self,
        row: &ConversationRow,
        unlocked: &UnlockedConversation,
        position: i64,
    ) -> Result<ConversationMove, Error> {
        let current = self.store.keys.current();
        let owner: Option<(String, String, String)> =
            self.transaction.row(OWNER, [row.number.into()]).await?;
        let (tenant, issuer, subject) = owner.ok_or(Error::Damaged("conversation"))?;
        let word_key = current.word_key(&Owner {
            tenant,
            issuer,
            subject,
        });
        let limit = self.messages_left;
        let bounds = [row.number.into(), position.into(), limit.into()];
        let messages: Vec<IndexedMessageRow> = self.transaction.rows(MESSAGES, bounds).await?;
        let mut reached = position;
        for indexed in messages {
            self.messages_left -= 1;
            reached = indexed.message.position;
            let Ok(stored) = unlocked.open(indexed.message) else {
                self.batch.unreadable_messages += 1;
                continue;
            };
            let number = Value::from(indexed.number);
            if is_searchable(stored.message.source) {
                self.text_bytes += stored.message.content.len();
                self.transaction.execute(REMOVE_WORDS, [number]).await?;
                let words = words::blind(&stored.message.content, &word_key);
                if !words.is_empty() {
                    let words: Vec<_> = words.into_iter().collect();
                    let values = [indexed.number.into(), words.join(" ").into()];
                    self.transaction.execute(INSERT_WORDS, values).await?;
                }
            }
            let grounds = indexed.grounds.as_deref();
            let moved = grounds.and_then(|it| rekey_grounds(&stored, it, &self.store.keys));
            if let Some(grounds) = moved {
                let values = [indexed.number.into(), grounds.into()];
                self.transaction.execute(REGROUND, values).await?;
            }
            if self.is_full() {
                break;
            }
        }
        Ok(if self.is_full() {
            ConversationMove::UpTo(reached)
        } else {
            ConversationMove::Complete
        })
    }
}
