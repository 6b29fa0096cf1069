//! Erasure of conversations and their messages.
//!
//! ```text
//!   clear   a new key; all messages are gone                         the conversation stays
//!   erase   no key, no id, no text; places, roles and times remain   a skeleton
//! ```
//!
//! Both take effect at once, however long the conversation is, because nothing can be read without its key. The rows
//! are removed afterwards in batches.

use std::time::Duration;

use wardgate_domain::{ConversationId, ConversationKey, Digest, Timestamp};

use super::changes::{ChangeKind, log_change};
use super::conversations::lock_owned_conversation;
use super::row::{ConversationRow, conversation, held};
use super::subscriptions::end_subscriptions;
use super::{MemoryStore, within};
use crate::Error;
use crate::owner::Owner;
use wardgate_store::{Statement, Transaction};

/// Maximum number of messages in one batch.
pub(super) const BATCH: i64 = 500;

/// Number of bytes of messages after which a batch ends. Their words are removed from the index one by one, so that a batch of
/// long messages would exceed the time limit.
const BATCH_BYTES: i64 = 128 * 1024;

const SIZES: &str = "
    SELECT position, size FROM memory.message
    WHERE conversation = $1 AND position > $2 AND position <= $3 ORDER BY position";

const CLEAR: &str = "
    UPDATE memory.conversation SET data_key = $2, cleared_to = positions, messages = 0, updated_at = $3
    WHERE number = $1";

const BY_KEY_LOCKED: &str = concat!(
    conversation!(),
    "WHERE c.key = $1 AND c.erased_at IS NULL FOR UPDATE"
);

const ERASE: &str = "
    UPDATE memory.conversation
    SET data_key = NULL, id = NULL, cleared_to = positions, erased_at = $2 WHERE number = $1";

pub(super) const TO_EMPTY: &str = "
    SELECT number, emptied_to, cleared_to, erased_at FROM memory.conversation
    WHERE emptied_to < cleared_to ORDER BY number LIMIT 1 FOR UPDATE";

const REMOVE_WORDS: Statement = Statement::Each {
    sqlite: "DELETE FROM message_words WHERE rowid IN (SELECT number FROM message
             WHERE conversation = $1 AND position > $2 AND position <= $3)",
    postgres: "DELETE FROM memory.message_words WHERE message IN (SELECT number FROM memory.message
               WHERE conversation = $1 AND position > $2 AND position <= $3)",
};

const REMOVE: &str = "
    DELETE FROM memory.message WHERE conversation = $1 AND position > $2 AND position <= $3";

const BLANK: &str = "
    UPDATE memory.message
    SET id = NULL, turn = NULL, policy_hash = NULL, rights = NULL, grounds = NULL, call = NULL, body = NULL
    WHERE conversation = $1 AND position > $2 AND position <= $3";

const EMPTIED: &str = "UPDATE memory.conversation SET emptied_to = $2 WHERE number = $1";

pub(super) const NEXT_TENANT: &str = "
    SELECT c.tenant FROM memory.conversation c WHERE c.erased_at IS NULL AND c.tenant > $1
    ORDER BY c.tenant LIMIT 1";

const FIRST_TENANT: &str = "
    SELECT c.tenant FROM memory.conversation c WHERE c.erased_at IS NULL ORDER BY c.tenant LIMIT 1";

pub(super) const EXPIRED: &str = concat!(
    conversation!(),
    "WHERE c.tenant = $1 AND c.updated_at < $2 AND c.erased_at IS NULL AND NOT ",
    held!(),
    " ORDER BY c.updated_at LIMIT $3"
);

pub(super) const STALE_TURNS: &str = "
    SELECT DISTINCT m.conversation, m.turn FROM memory.message m
    WHERE m.state = 0 AND m.at < $1 AND NOT EXISTS (SELECT 1 FROM memory.message y
        WHERE y.conversation = m.conversation AND y.turn = m.turn AND y.at >= $1)
    LIMIT $2";

const LOCK: &str = "SELECT number FROM memory.conversation WHERE number = $1 FOR UPDATE";

/// Checks again that the turn is stale, because now the conversation is locked against additions.
const ABANDON: &str = "
    UPDATE memory.message SET state = 2 WHERE conversation = $1 AND turn = $2 AND state = 0
        AND NOT EXISTS (SELECT 1 FROM memory.message y
            WHERE y.conversation = $1 AND y.turn = $2 AND y.at >= $3)";

/// A conversation that is to be erased.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ErasureCandidate {
    pub(crate) key: ConversationKey,
    /// A digest of the conversation's id. A person who knows the id can recognise the conversation by it.
    pub(crate) id_digest: Digest,
    /// If set, the conversation is erased only if it did not change since this time.
    unchanged_since: Option<Timestamp>,
}

impl ErasureCandidate {
    fn from_row(row: &ConversationRow, unchanged_since: Option<Timestamp>) -> Result<Self, Error> {
        let conversation = row.to_conversation()?;
        Ok(Self {
            key: conversation.key,
            id_digest: Digest::compute(conversation.id.as_str().as_bytes()),
            unchanged_since,
        })
    }
}

impl MemoryStore {
    /// Erases every message of the owner's conversation and returns its key.
    pub(crate) async fn clear(
        &self,
        owner: &Owner,
        id: &ConversationId,
        now: Timestamp,
    ) -> Result<ConversationKey, Error> {
        let cleared = within(async {
            let mut transaction = self.database.write().await?;
            let row = lock_owned_conversation(&mut transaction, owner, id.as_str()).await?;
            if row.held {
                return Err(Error::Held);
            }
            let key = row.key()?;
            let master = self.key_in_force(&mut transaction).await?;
            let (_, wrapped) = master.new_data_key(key, &self.ambient)?;
            let values = [row.number.into(), wrapped.into(), now.as_micros().into()];
            transaction.execute(CLEAR, values).await?;
            log_change(&mut transaction, row.number, ChangeKind::Messages).await?;
            transaction.commit().await?;
            Ok(key)
        });
        let key = cleared.await?;
        self.change_signal.notify_one();
        Ok(key)
    }

    /// Returns the conversation with this key. Fails if it does not exist or is held.
    pub(crate) async fn find_erasable(
        &self,
        key: ConversationKey,
    ) -> Result<ErasureCandidate, Error> {
        within(async {
            let mut transaction = self.database.write().await?;
            let row = lock_erasable(&mut transaction, key).await?;
            ErasureCandidate::from_row(&row, None)
        })
        .await
    }

    /// Destroys the key and the id of a conversation. [`MemoryStore::empty`] removes its rows later.
    pub(crate) async fn erase(
        &self,
        candidate: &ErasureCandidate,
        now: Timestamp,
    ) -> Result<(), Error> {
        let erased = within(async {
            let mut transaction = self.database.write().await?;
            let row = lock_erasable(&mut transaction, candidate.key).await?;
            let updated_at = row.to_conversation()?.updated_at;
            if candidate
                .unchanged_since
                .is_some_and(|since| updated_at >= since)
            {
                return Err(Error::Changed);
            }
            let values = [row.number.into(), now.as_micros().into()];
            end_subscriptions(&mut transaction, row.number).await?;
            transaction.execute(ERASE, values).await?;
            log_change(&mut transaction, row.number, ChangeKind::List).await?;
            Ok(transaction.commit().await?)
        });
        erased.await?;
        self.change_signal.notify_one();
        Ok(())
    }

    /// Removes one batch of rows that were cleared or erased. Returns `false` if none were left.
    pub(crate) async fn empty(&self) -> Result<bool, Error> {
        within(async {
            let mut transaction = self.database.write().await?;
            let next: Option<(i64, i64, i64, Option<i64>)> = transaction.row(TO_EMPTY, []).await?;
            let Some((number, from, cleared_to, erased_at)) = next else {
                return Ok(false);
            };
            let mut to = cleared_to.min(from + BATCH);
            let sizes = [number.into(), from.into(), to.into()];
            let mut bytes = 0;
            for (position, size) in transaction.rows::<(i64, i64), 3>(SIZES, sizes).await? {
                bytes += size;
                if bytes >= BATCH_BYTES {
                    to = position;
                    break;
                }
            }
            let rows = || [number.into(), from.into(), to.into()];
            transaction.execute(REMOVE_WORDS, rows()).await?;
            let rest = if erased_at.is_some() { BLANK } else { REMOVE };
            transaction.execute(rest, rows()).await?;
            transaction
                .execute(EMPTIED, [number.into(), to.into()])
                .await?;
            transaction.commit().await?;
            Ok(true)
        })
        .await
    }

    /// Overwrites removed data. Returns `false` if this has to be retried later.
    pub(crate) async fn scrub(&self) -> Result<bool, Error> {
        within(self.database.scrub()).await
    }

    /// Returns every tenant that has a conversation.
    pub(crate) async fn tenants(&self) -> Result<Vec<String>, Error> {
        within(async {
            let mut transaction = self.database.begin_read().await?;
            let mut tenants: Vec<String> = Vec::new();
            loop {
                let next: Option<(String,)> = match tenants.last() {
                    None => transaction.row(FIRST_TENANT, []).await?,
                    Some(last) => {
                        let last = [last.as_str().into()];
                        transaction.row(NEXT_TENANT, last).await?
                    }
                };
                let Some((tenant,)) = next else { break };
                tenants.push(tenant);
            }
            transaction.commit().await?;
            Ok(tenants)
        })
        .await
    }

    /// Returns a bounded number of conversations of `tenant` that have not changed since that time and are not held.
    pub(crate) async fn expired_conversations(
        &self,
        tenant: &str,
        unchanged_since: Timestamp,
    ) -> Result<Vec<ErasureCandidate>, Error> {
        within(async {
            let mut transaction = self.database.begin_read().await?;
            let bounds = [
                tenant.into(),
                unchanged_since.as_micros().into(),
                BATCH.into(),
            ];
            let rows: Vec<ConversationRow> = transaction.rows(EXPIRED, bounds).await?;
            transaction.commit().await?;
            rows.iter()
                .map(|row| ErasureCandidate::from_row(row, Some(unchanged_since)))
                .collect()
        })
        .await
    }

    /// Abandons a bounded number of open turns without activity for that long. Returns the number of turns found.
    pub(crate) async fn abandon(
        &self,
        untouched_for: Duration,
        now: Timestamp,
    ) -> Result<usize, Error> {
        let since = now.minus(untouched_for).as_micros();
        let stale: Vec<(i64, String)> = within(async {
            let mut transaction = self.database.begin_read().await?;
            let stale = transaction
                .rows(STALE_TURNS, [since.into(), BATCH.into()])
                .await?;
            transaction.commit().await?;
            Ok(stale)
        })
        .await?;
        for (conversation, turn) in &stale {
            within(async {
                let mut transaction = self.database.write().await?;
                let _: Option<(i64,)> = transaction.row(LOCK, [(*conversation).into()]).await?;
                let values = [(*conversation).into(), turn.as_str().into(), since.into()];
                transaction.execute(ABANDON, values).await?;
                Ok(transaction.commit().await?)
            })
            .await?;
        }
        Ok(stale.len())
    }
}

async fn lock_erasable(
    transaction: &mut Transaction,
    key: ConversationKey,
) -> Result<ConversationRow, Error> {
    let found: Option<ConversationRow> = transaction
        .row(BY_KEY_LOCKED, [key.to_string().into()])
        .await?;
    match found {
        None => Err(Error::UnknownConversation),
        Some(row) if row.held => Err(Error::Held),
        Some(row) => Ok(row),
    }
}
