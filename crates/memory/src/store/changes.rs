//! The log of recent changes. Every reader continues from its own position, and old entries are deleted soon.
//!
//! A change is logged in the transaction that makes it, so both become visible together. Numbers are assigned in order
//! but may become visible out of order: the number of a slow transaction can appear after a later one, or never.

use std::sync::Arc;

use wardgate_domain::{ChangedPart, ConversationChange, Digest};

use super::{MemoryStore, within};
use crate::Error;
use wardgate_store::Transaction;

const NOTE: &str = "
    INSERT INTO memory.change (owner, kind, conversation)
    SELECT c.owner, $2, c.number FROM memory.conversation c WHERE c.number = $1";

const NOTE_OF_OWNER: &str =
    "INSERT INTO memory.change (owner, kind, conversation) VALUES ($1, $2, NULL)";

pub(super) const AFTER: &str = "
    SELECT n.number, n.owner, n.kind, c.id FROM memory.change n
    LEFT JOIN memory.conversation c ON c.number = n.conversation
    WHERE n.number > $1 ORDER BY n.number LIMIT $2";

pub(super) const LATEST: &str = "SELECT coalesce(max(number), 0) FROM memory.change";

const FORGET: &str = "DELETE FROM memory.change WHERE number <= $1";

/// Maximum number of changes in one page.
const PAGE: i64 = 500;

/// The kind of a change.
#[derive(Debug, Clone, Copy)]
pub(super) enum ChangeKind {
    Messages = 0,
    List = 1,
    Subscriptions = 2,
}

/// A change with its number in the log.
#[derive(Debug)]
pub(crate) struct LoggedChange {
    pub(crate) number: i64,
    /// The change, or `None` if the conversation was erased since. Its erasure is logged as a change of the list.
    pub(crate) change: Option<ConversationChange>,
}

/// Logs a change of the conversation with the row number `conversation`.
pub(super) async fn log_change(
    transaction: &mut Transaction,
    conversation: i64,
    kind: ChangeKind,
) -> Result<(), Error> {
    let values = [conversation.into(), (kind as i64).into()];
    transaction.execute(NOTE, values).await?;
    Ok(())
}

/// Logs a change that concerns the owner and no single conversation.
pub(super) async fn log_owner_change(
    transaction: &mut Transaction,
    owner: &[u8],
    kind: ChangeKind,
) -> Result<(), Error> {
    let values = [owner.into(), (kind as i64).into()];
    transaction.execute(NOTE_OF_OWNER, values).await?;
    Ok(())
}

impl MemoryStore {
    /// Returns the signal that is notified whenever this replica adds a change to the log.
    pub(crate) fn change_signal(&self) -> Arc<tokio::sync::Notify> {
        Arc::clone(&self.change_signal)
    }

    /// Returns the number of the last change, or 0 if the log is empty.
    pub(crate) async fn latest_change(&self) -> Result<i64, Error> {
        within(async {
            let mut transaction = self.database.begin_read().await?;
            let latest: Option<(i64,)> = transaction.row(LATEST, []).await?;
            transaction.commit().await?;
            Ok(latest.map_or(0, |(number,)| number))
        })
        .await
    }

    /// Returns a page of the changes with a higher number, in order. The page is empty if there are none.
    pub(crate) async fn changes_after(&self, number: i64) -> Result<Vec<LoggedChange>, Error> {
        within(async {
            let mut transaction = self.database.begin_read().await?;
            let bounds = [number.into(), PAGE.into()];
            let rows: Vec<(i64, Vec<u8>, i64, Option<String>)> =
                transaction.rows(AFTER, bounds).await?;
            transaction.commit().await?;
            rows.into_iter().map(parse_change).collect()
        })
        .await
    }

    /// Deletes the changes up to that number.
    pub(crate) async fn forget_changes(&self, up_to: i64) -> Result<(), Error> {
        within(async {
            let mut transaction = self.database.write().await?;
            transaction.execute(FORGET, [up_to.into()]).await?;
            Ok(transaction.commit().await?)
        })
        .await
    }
}

fn parse_change(
    (number, owner, kind, id): (i64, Vec<u8>, i64, Option<String>),
) -> Result<LoggedChange, Error> {
    let damaged = || Error::Damaged("change");
    let what = match (kind, id) {
        (0, None) => None,
        (0, Some(id)) => Some(ChangedPart::Messages(id.parse().map_err(|_| damaged())?)),
        (1, _) => Some(ChangedPart::List),
        (2, _) => Some(ChangedPart::Subscriptions),
        _ => return Err(damaged()),
    };
    let owner = owner.try_into().map(Digest::from_bytes);
    let owner = owner.map_err(|_| damaged())?;
    Ok(LoggedChange {
        number,
        change: what.map(|what| ConversationChange { owner, what }),
    })
}
