//! The subscriptions of older clients' sessions. Such clients have no long-lived request, so the subscriptions are
//! stored for all replicas.

use std::time::Duration;

use wardgate_domain::{ConversationId, Digest, Timestamp};

use super::changes::{ChangeKind, log_change, log_owner_change};
use super::row::owner_digest;
use super::{MemoryStore, within};
use crate::Error;
use crate::owner::Owner;
use wardgate_store::{Transaction, Value};

/// Maximum number of subscriptions of one owner.
const MOST: i64 = 1_000;

/// Time after which a subscription expires, counted from when it was made or last prolonged.
const LASTS: Duration = Duration::from_hours(24);

const MAKE: &str = "
    INSERT INTO memory.subscription (owner, id, session, expires_at) VALUES ($1, $2, $3, $4)
    ON CONFLICT (owner, id, session) DO UPDATE SET expires_at = excluded.expires_at";

/// Counts the subscriptions of an owner, but at most `$3`, because only reaching the limit matters.
const COUNT: &str = "
    SELECT count(*) FROM (
        SELECT 1 FROM memory.subscription s WHERE s.owner = $1 AND s.expires_at > $2 LIMIT $3
    ) AS alive";

const END: &str = "DELETE FROM memory.subscription WHERE owner = $1 AND id = $2 AND session = $3";

pub(super) const OF_SESSION: &str = "
    SELECT s.id, s.expires_at FROM memory.subscription s
    WHERE s.owner = $1 AND s.session = $2 AND s.expires_at > $3 ORDER BY s.id LIMIT $4";

const PROLONG: &str = "
    UPDATE memory.subscription SET expires_at = $4
    WHERE owner = $1 AND session = $2 AND expires_at > $3";

const END_EXPIRED: &str = "DELETE FROM memory.subscription WHERE expires_at <= $1";

/// Deletes every subscription to a conversation, which must still have its id.
const END_OF_CONVERSATION: &str = "
    DELETE FROM memory.subscription WHERE (owner, id) IN
        (SELECT c.owner, c.id FROM memory.conversation c WHERE c.number = $1)";

/// Returns the digest of a session, or an empty one for a caller without sessions.
fn session_digest(session: Option<Digest>) -> Vec<u8> {
    session.map_or_else(Vec::new, |session| session.as_bytes().to_vec())
}

impl MemoryStore {
    /// Subscribes a session to the owner's conversation `id`, whether or not the conversation exists.
    pub(crate) async fn subscribe(
        &self,
        owner: &Owner,
        session: Option<Digest>,
        id: &ConversationId,
        now: Timestamp,
    ) -> Result<(), Error> {
        let owner = owner_digest(owner);
        let subscribed = within(async {
            let mut transaction = self.database.write().await?;
            let row = [
                owner.as_slice().into(),
                id.as_str().into(),
                session_digest(session).into(),
                now.plus(LASTS).as_micros().into(),
            ];
            transaction.execute(MAKE, row).await?;
            let enough = [
                owner.as_slice().into(),
                now.as_micros().into(),
                Value::Integer(MOST + 1),
            ];
            let count: Option<(i64,)> = transaction.row(COUNT, enough).await?;
            if count.is_some_and(|(count,)| count > MOST) {
                return Err(Error::TooManySubscriptions(MOST));
            }
            log_owner_change(&mut transaction, &owner, ChangeKind::Subscriptions).await?;
            Ok(transaction.commit().await?)
        });
        subscribed.await?;
        self.change_signal.notify_one();
        Ok(())
    }

    /// Ends a subscription if it exists.
    pub(crate) async fn unsubscribe(
        &self,
        owner: &Owner,
        session: Option<Digest>,
        id: &ConversationId,
    ) -> Result<(), Error> {
        let owner = owner_digest(owner);
        let unsubscribed = within(async {
            let mut transaction = self.database.write().await?;
            let row = [
                owner.as_slice().into(),
                id.as_str().into(),
                session_digest(session).into(),
            ];
            if transaction.execute(END, row).await? > 0 {
                log_owner_change(&mut transaction, &owner, ChangeKind::Subscriptions).await?;
            }
            Ok(transaction.commit().await?)
        });
        unsubscribed.await?;
        self.change_signal.notify_one();
        Ok(())
    }

    /// Returns the ids of the conversations to which a session is subscribed. A session that asks is alive, so its
    /// subscriptions are prolonged if one of them is past half of its lifetime.
    pub(crate) async fn subscriptions(
        &self,
        owner: &Owner,
        session: Option<Digest>,
        now: Timestamp,
    ) -> Result<Vec<String>, Error> {
        let (owner, session) = (owner_digest(owner), session_digest(session));
        within(async {
            let mut transaction = self.database.begin_read().await?;
            let alive = [
                owner.as_slice().into(),
                session.as_slice().into(),
                now.as_micros().into(),
                MOST.into(),
            ];
            let rows: Vec<(String, i64)> = transaction.rows(OF_SESSION, alive).await?;
            transaction.commit().await?;
            let half_over = now.plus(LASTS / 2).as_micros();
            if rows.iter().any(|(_, expires_at)| *expires_at < half_over) {
                let mut transaction = self.database.write().await?;
                let anew = [
                    owner.into(),
                    session.into(),
                    now.as_micros().into(),
                    now.plus(LASTS).as_micros().into(),
                ];
                transaction.execute(PROLONG, anew).await?;
                transaction.commit().await?;
            }
            Ok(rows.into_iter().map(|(id, _)| id).collect())
        })
        .await
    }

    /// Removes the subscriptions that have expired.
    pub(crate) async fn end_expired_subscriptions(&self, now: Timestamp) -> Result<(), Error> {
        within(async {
            let mut transaction = self.database.write().await?;
            let over = [now.as_micros().into()];
            transaction.execute(END_EXPIRED, over).await?;
            Ok(transaction.commit().await?)
        })
        .await
    }
}

/// Ends every subscription to a conversation that is about to lose its id.
pub(super) async fn end_subscriptions(
    transaction: &mut Transaction,
    conversation: i64,
) -> Result<(), Error> {
    let number = [conversation.into()];
    if transaction.execute(END_OF_CONVERSATION, number).await? > 0 {
        log_change(transaction, conversation, ChangeKind::Subscriptions).await?;
    }
    Ok(())
}
