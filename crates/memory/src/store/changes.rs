//! What changed, in a log that is read from where one was and soon forgotten.
//!
//! A change is noted in the transaction that makes it, so it is seen when the change is. Numbers are given in order but
//! not seen in order: a slow transaction's number can appear after a later one, or never.

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

/// Changes read at once.
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
    /// None: the conversation was erased since, which has a note of its own.
    pub(crate) change: Option<ConversationChange>,
}

/// Notes that the conversation of that number changed.
pub(super) async fn log_change(
    transaction: &mut Transaction,
    conversation: i64,
    kind: ChangeKind,
) -> Result<(), Error> {
    let values = [conversation.into(), (kind as i64).into()];
    transaction.execute(NOTE, values).await?;
    Ok(())
}

/// Notes that something else of that owner changed.
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
    /// Notified whenever this replica added a change to the log.
    pub(crate) fn change_signal(&self) -> Arc<tokio::sync::Notify> {
        Arc::clone(&self.change_signal)
    }

    /// The number of the last change.
    pub(crate) async fn latest_change(&self) -> Result<i64, Error> {
        within(async {
            let mut transaction = self.database.read().await?;
            let latest: Option<(i64,)> = transaction.row(LATEST, []).await?;
            transaction.commit().await?;
            Ok(latest.map_or(0, |(number,)| number))
        })
        .await
    }

    /// Changes with a higher number, in order, a bounded count; none: there are no further ones.
    pub(crate) async fn changes_after(&self, number: i64) -> Result<Vec<LoggedChange>, Error> {
        within(async {
            let mut transaction = self.database.read().await?;
            let bounds = [number.into(), PAGE.into()];
            let rows: Vec<(i64, Vec<u8>, i64, Option<String>)> =
                transaction.rows(AFTER, bounds).await?;
            transaction.commit().await?;
            rows.into_iter().map(parse_change).collect()
        })
        .await
    }

    /// Forgets the changes up to that number.
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
