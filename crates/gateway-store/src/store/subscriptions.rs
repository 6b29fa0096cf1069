//! The resource subscriptions of sessions.

use std::time::Duration;

use super::{Store, StoreError};
use wardgate_domain::{Digest, Timestamp};

/// Time after which subscriptions expire that are not written again.
const KEPT: Duration = Duration::from_hours(24);

/// Maximum number of sessions with subscriptions of one owner. A further one deletes the subscriptions that were
/// written longest ago.
const EACH: i64 = 100;

/// Maximum number of sessions in one query.
const MOST: i64 = 1_000;

const READ: &str = "
    SELECT sealed, written_at FROM gateway.subscriptions WHERE id = $1 AND expires_at > $2";

const ADD: &str = "
    INSERT INTO gateway.subscriptions (id, owner, sealed, written_at, expires_at)
    VALUES ($1, $2, $3, $4, $5) ON CONFLICT (id) DO NOTHING";

const REPLACE: &str = "
    UPDATE gateway.subscriptions SET sealed = $2, written_at = $3, expires_at = $4
    WHERE id = $1 AND written_at = $5";

const TRIM: &str = "
    DELETE FROM gateway.subscriptions WHERE id IN (
        SELECT id FROM (
            SELECT id, row_number() OVER (ORDER BY written_at DESC, id) AS place
            FROM gateway.subscriptions WHERE owner = $1
        ) AS newest_first WHERE place > $2)";

const SINCE: &str = "
    SELECT id, written_at FROM gateway.subscriptions WHERE written_at >= $1
    ORDER BY written_at DESC LIMIT $2";

pub(crate) const SWEEP: &str = "
    DELETE FROM gateway.subscriptions WHERE id IN
        (SELECT id FROM gateway.subscriptions WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)";

/// The id of subscriptions: those of a session, or of a caller without a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SubscriptionsId(pub Digest);

impl Store {
    /// Returns the last subscriptions that were written, and their revision, which only grows.
    pub async fn read_subscriptions(
        &self,
        id: SubscriptionsId,
    ) -> Result<Option<(Vec<u8>, i64)>, StoreError> {
        let values = [id.0.as_bytes()[..].into(), self.now().as_micros().into()];
        let found = self.rows(READ, values).await?;
        Ok(found.into_iter().next())
    }

    /// Replaces the revision `before` of the subscriptions, and returns the new revision, or `None` if another revision
    /// was written meanwhile.
    pub async fn write_subscriptions(
        &self,
        id: SubscriptionsId,
        owner: Digest,
        sealed: Vec<u8>,
        before: Option<i64>,
    ) -> Result<Option<i64>, StoreError> {
        let now = self.now();
        let expires_at = now.plus(KEPT).as_micros();
        let revision = before.map_or(now.as_micros(), |before| now.as_micros().max(before + 1));
        let (id, owner) = (id.0.as_bytes(), owner.as_bytes());
        let written = match before {
            None => {
                // Expired subscriptions are deleted first, because `before` is `None` for them too.
                self.execute(SWEEP, [now.as_micros().into(), MOST.into()])
                    .await?;
                let values = [
                    id[..].into(),
                    owner[..].into(),
                    sealed.as_slice().into(),
                    revision.into(),
                    expires_at.into(),
                ];
                let added = self.execute(ADD, values).await?;
                self.execute(TRIM, [owner[..].into(), EACH.into()]).await?;
                added
            }
            Some(before) => {
                let values = [
                    id[..].into(),
                    sealed.as_slice().into(),
                    revision.into(),
                    expires_at.into(),
                    before.into(),
                ];
                self.execute(REPLACE, values).await?
            }
        };
        Ok((written == 1).then_some(revision))
    }

    /// Returns the subscriptions that were written in the last `age`, the newest ones if they do not fit into one query.
    pub async fn subscriptions_since(
        &self,
        age: Duration,
    ) -> Result<Vec<(SubscriptionsId, i64)>, StoreError> {
        let since: Timestamp = self.now().minus(age);
        let values = [since.as_micros().into(), MOST.into()];
        let found: Vec<(Vec<u8>, i64)> = self.rows(SINCE, values).await?;
        let found = found.into_iter().filter_map(|(id, revision)| {
            let bytes: [u8; 32] = id.try_into().ok()?;
            Some((SubscriptionsId(Digest::from_bytes(bytes)), revision))
        });
        Ok(found.collect())
    }
}
