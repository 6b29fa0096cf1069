//! Conversations at rest, in SQLite or PostgreSQL.
//!
//! ```text
//!   conversation   one row each; whoever adds to it or erases it locks that row first
//!   message        what stands in clear (place, turn, role, times), and the sealed texts
//!   message_words  keyed digests of the words, for the search
//!   hold           what must not be erased
//!   change         what changed lately, for whoever watches
//!   subscription   what older clients want to hear of
//! ```
//!
//! No operation takes longer than [`LIMIT`].

mod adding;
mod changes;
mod conversations;
mod database;
mod erasing;
mod holds;
mod postgres;
mod reading;
mod row;
mod searching;
mod sqlite;
mod subscriptions;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use wardgate_domain::{Ambient, AnsweredCall, Digest, Message, Source};
use wardgate_store::{Address, DatabaseSettings, Layout};

use crate::Error;
use crate::sealing::MasterKey;
use database::Database;

pub(crate) use adding::{Addition, MAX_BATCH_BYTES, MAX_MESSAGES, MAX_TEXT, MessageEntry, size};
pub(crate) use erasing::ErasureCandidate;
pub(crate) use reading::{ConversationExcerpt, ConversationSelector};

/// How long one operation may take.
pub(crate) const LIMIT: Duration = Duration::from_secs(5);

/// What the store consists of.
pub const LAYOUT: Layout = Layout {
    schema: postgres::SCHEMA,
    sqlite: sqlite::MIGRATIONS,
    limit: LIMIT,
};

/// The rights that a tool's result was given under, and the policies they follow from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallRights {
    /// Of everything the policy lets the caller see through the tool.
    pub(crate) rights: Digest,
    pub(crate) policy_hash: Digest,
    /// The answer is one to these arguments only.
    pub(crate) by_arguments: bool,
}

/// A message with what decides whether its reader may read it.
#[derive(Debug, Clone)]
pub(crate) struct StoredMessage {
    pub(crate) message: Message,
    /// Of a tool's result, what it was given under.
    pub(crate) rights: Option<Digest>,
}

impl StoredMessage {
    /// The last position whose result this can have been written from; 0: it rests on none. Whoever writes has all of
    /// the conversation so far before its eyes, whichever turn it is of; only a summary outside of turns names its end.
    pub(crate) fn rests_up_to(&self) -> u64 {
        match self.message.source {
            Source::Person | Source::Tool => 0,
            Source::Summary if self.message.turn.is_none() => self.message.covers_to,
            Source::Model | Source::Summary | Source::Approval => self.message.position,
        }
    }
}

/// A tool's result that a message may be grounded in.
#[derive(Debug, Clone)]
pub(crate) struct GroundingResult {
    pub(crate) position: u64,
    pub(crate) call: AnsweredCall,
    pub(crate) rights: Digest,
}

/// The store; cheap to clone.
#[derive(Clone)]
pub(crate) struct MemoryStore {
    address: Address,
    database: Database,
    key: Arc<MasterKey>,
    ambient: Ambient,
    /// Notified when a change was added to the log of changes.
    change_signal: Arc<Notify>,
}

impl MemoryStore {
    /// The store at `sqlite:PATH` or `postgres://…`; connects on first use.
    pub(crate) fn open(
        url: &str,
        settings: &DatabaseSettings,
        key: MasterKey,
        ambient: Ambient,
    ) -> Result<Self, Error> {
        let address = Address::new(url, settings)?;
        Ok(Self {
            database: Database::new(&address, settings),
            address,
            key: Arc::new(key),
            ambient,
            change_signal: Arc::default(),
        })
    }

    /// Brings the store to the schema this program knows, creating it when absent, or where that is not for this program to
    /// do, sees that somebody did; and checks that it is under this master key. Nothing else works before.
    pub(crate) async fn prepare(&self) -> Result<(), Error> {
        self.database.prepare().await?;
        within(self.claim()).await
    }

    /// The first start says which master key it is.
    async fn claim(&self) -> Result<(), Error> {
        const CLAIM: &str = "INSERT INTO memory.master_key (number, known_by) VALUES (1, $1)
            ON CONFLICT (number) DO NOTHING";
        let ours = self.key.known_by();
        let mut transaction = self.database.write().await?;
        let known_by = [ours.as_bytes()[..].into()];
        transaction.execute(CLAIM, known_by).await?;
        let known: Option<(Vec<u8>,)> = transaction
            .row("SELECT known_by FROM memory.master_key", [])
            .await?;
        transaction.commit().await?;
        if known.is_some_and(|(known,)| known == ours.as_bytes()) {
            return Ok(());
        }
        Err(Error::OtherMasterKey)
    }

    /// Whether the store answers.
    pub(crate) async fn probe(&self) -> Result<(), Error> {
        within(async {
            let mut transaction = self.database.read().await?;
            let _: Option<(i64,)> = transaction
                .row("SELECT count(*) FROM memory.master_key", [])
                .await?;
            Ok(transaction.commit().await?)
        })
        .await
    }

    /// Whether the store is a file of this machine, which is there or never will be.
    pub(crate) fn is_a_file(&self) -> bool {
        matches!(self.address, Address::Sqlite(_))
    }
}

impl std::fmt::Display for MemoryStore {
    /// Where it is, without credentials.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.address.fmt(f)
    }
}

/// Waits at most [`LIMIT`], whatever the database does.
async fn within<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    tokio::time::timeout(LIMIT, work)
        .await
        .unwrap_or(Err(Error::Late))
}

/// Counts and positions are never negative, and never near the end of an `i64`.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

#[cfg(test)]
mod plans;
