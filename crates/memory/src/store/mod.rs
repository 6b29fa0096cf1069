//! The store of conversations, in SQLite or PostgreSQL.
//!
//! ```text
//!   conversation   one row each; additions and erasures lock this row first
//!   message        fields in clear (position, turn, role, times) and the sealed texts
//!   message_words  keyed digests of the words, for the search
//!   hold           legal holds, which prevent erasure
//!   change         the log of recent changes, for watchers
//!   subscription   the subscriptions of older clients
//!   rekeying       how far the move to a new master key is
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
mod rekeying;
mod row;
mod searching;
mod sqlite;
mod subscriptions;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use wardgate_domain::{Ambient, AnsweredCall, Digest, Message, Source};
use wardgate_store::{Address, DatabaseSettings, Layout, Statement, Transaction};

use crate::Error;
use crate::sealing::{MasterKey, MasterKeys};
use database::Database;

pub(crate) use adding::{Addition, MAX_BATCH_BYTES, MAX_MESSAGES, MAX_TEXT, MessageEntry, size};
pub(crate) use erasing::ErasureCandidate;
pub(crate) use reading::{ConversationExcerpt, ConversationSelector};
#[cfg(test)]
pub(crate) use rekeying::RekeyBatch;

/// Maximum time that one operation may take.
pub(crate) const LIMIT: Duration = Duration::from_secs(5);

/// The layout of the store: its schema, migrations and timeout.
pub const LAYOUT: Layout = Layout {
    schema: postgres::SCHEMA,
    sqlite: sqlite::MIGRATIONS,
    limit: LIMIT,
};

const KNOWN_BY: &str = "SELECT known_by FROM memory.master_key";

/// The lock keeps another key from being put in force until the transaction ends.
const KEY_IN_FORCE: Statement = Statement::Each {
    sqlite: "SELECT known_by FROM master_key",
    postgres: "SELECT known_by FROM memory.master_key FOR SHARE",
};

/// The rights under which a tool's result was produced, and the policies that granted them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallRights {
    /// A digest of everything that the policy lets the caller see through the tool.
    pub(crate) rights: Digest,
    pub(crate) policy_hash: Digest,
    /// Whether the verdict applies to these arguments only.
    pub(crate) by_arguments: bool,
}

/// A message and the rights that decide whether its reader may read it.
#[derive(Debug, Clone)]
pub(crate) struct StoredMessage {
    pub(crate) message: Message,
    /// The rights under which a tool's result was produced, or `None` for other messages.
    pub(crate) rights: Option<Digest>,
}

impl StoredMessage {
    /// Returns the last position of a result on which this message can be based, or 0 if it is based on none. An author
    /// has the whole conversation so far in view, including other turns. Only a summary outside of turns names the end
    /// of what it covers.
    pub(crate) fn rests_up_to(&self) -> u64 {
        match self.message.source {
            Source::Person | Source::Tool => 0,
            Source::Summary if self.message.turn.is_none() => self.message.covers_to,
            Source::Model | Source::Summary | Source::Approval => self.message.position,
        }
    }
}

/// A tool's result on which a message may be based.
#[derive(Debug, Clone)]
pub(crate) struct GroundingResult {
    pub(crate) position: u64,
    pub(crate) call: AnsweredCall,
    pub(crate) rights: Digest,
}

/// The store of conversations. Clones share the connections.
#[derive(Clone)]
pub(crate) struct MemoryStore {
    address: Address,
    database: Database,
    keys: Arc<MasterKeys>,
    ambient: Ambient,
    /// Notified when a change was added to the log of changes.
    change_signal: Arc<Notify>,
}

impl MemoryStore {
    /// Opens the store at `sqlite:PATH` or `postgres://…`. It connects on first use.
    pub(crate) fn open(
        url: &str,
        settings: &DatabaseSettings,
        keys: impl Into<MasterKeys>,
        ambient: Ambient,
    ) -> Result<Self, Error> {
        let address = Address::new(url, settings)?;
        Ok(Self {
            database: Database::new(&address, settings),
            address,
            keys: Arc::new(keys.into()),
            ambient,
            change_signal: Arc::default(),
        })
    }

    /// Migrates the store to the schema of this program, creating it if it is absent. If this program may not migrate
    /// it, checks the schema instead. Then checks that the store is under a master key of this service. Must succeed before
    /// any other operation.
    pub(crate) async fn prepare(&self) -> Result<(), Error> {
        self.prepare_schema().await?;
        within(self.claim()).await
    }

    /// Migrates the store or checks its schema, as [`MemoryStore::prepare`] does, whatever its master key is.
    pub(crate) async fn prepare_schema(&self) -> Result<(), Error> {
        self.database.prepare().await
    }

    /// Stores the digest of the current master key on the first start. On every later one, checks that the key in force is
    /// one of the keys, and that the former one is too while the store is moved from it.
    async fn claim(&self) -> Result<(), Error> {
        const CLAIM: &str = "INSERT INTO memory.master_key (number, known_by) VALUES (1, $1)
            ON CONFLICT (number) DO NOTHING";
        let ours = self.keys.current().known_by();
        let mut transaction = self.database.write().await?;
        let known_by = [ours.as_bytes()[..].into()];
        transaction.execute(CLAIM, known_by).await?;
        self.stored_keys(&mut transaction).await?;
        Ok(transaction.commit().await?)
    }

    /// Returns the digests of the master key in force, and of the former one while the store is moved from it. Fails if this
    /// service does not have them, or if no service has used the store yet.
    async fn stored_keys(
        &self,
        transaction: &mut Transaction,
    ) -> Result<(Vec<u8>, Option<Vec<u8>>), Error> {
        let in_force: Option<(Vec<u8>,)> = transaction.row(KNOWN_BY, []).await?;
        let (in_force,) = in_force.ok_or(Error::NoMasterKey)?;
        let former: Option<(Vec<u8>,)> = transaction.row(rekeying::FORMER, []).await?;
        let former = former.map(|(former,)| former);
        let is_ours = |known_by: &Vec<u8>| self.keys.find(known_by).is_some();
        if is_ours(&in_force) && former.as_ref().is_none_or(is_ours) {
            return Ok((in_force, former));
        }
        Err(Error::OtherMasterKey)
    }

    /// Returns the master key that is in force, under which `transaction` writes. It stays in force until the transaction
    /// ends. A transaction that locks a conversation locks that first.
    async fn key_in_force(&self, transaction: &mut Transaction) -> Result<&MasterKey, Error> {
        self.find_key(transaction, KEY_IN_FORCE).await
    }

    /// Returns the master key that `statement` names. Fails if this service does not have it.
    async fn find_key(
        &self,
        transaction: &mut Transaction,
        statement: impl Into<Statement>,
    ) -> Result<&MasterKey, Error> {
        let known: Option<(Vec<u8>,)> = transaction.row(statement, []).await?;
        let known = known.and_then(|(known_by,)| self.keys.find(&known_by));
        known.ok_or(Error::OtherMasterKey)
    }

    /// Checks that the store answers, and is under a master key of this service.
    pub(crate) async fn probe(&self) -> Result<(), Error> {
        within(async {
            let mut transaction = self.database.begin_read().await?;
            self.find_key(&mut transaction, KNOWN_BY).await?;
            Ok(transaction.commit().await?)
        })
        .await
    }

    /// Returns whether the store is a local file. Waiting does not help if such a store cannot be opened.
    pub(crate) fn is_a_file(&self) -> bool {
        matches!(self.address, Address::Sqlite(_))
    }
}

impl std::fmt::Display for MemoryStore {
    /// Writes the location of the store, without credentials.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.address.fmt(f)
    }
}

/// Runs `work` with the timeout [`LIMIT`].
async fn within<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    tokio::time::timeout(LIMIT, work)
        .await
        .unwrap_or(Err(Error::Late))
}

/// Converts a count or a position to the type of the database. Such numbers are far below the maximum of an `i64`.
fn to_i64(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn to_u64(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

#[cfg(test)]
mod plans;
