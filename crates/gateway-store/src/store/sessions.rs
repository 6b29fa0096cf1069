//! The sessions of clients before 2026-07-28.

use std::time::Duration;

use wardgate_domain::{Digest, Timestamp};

use super::{Store, StoreError};

/// Time after which an unused session ends.
pub(crate) const IDLE: Duration = Duration::from_hours(1);

/// Maximum number of sessions of one caller. A further session ends the one that was unused for the longest time.
pub(crate) const EACH: i64 = 100;

/// Minimum interval between two writes of the time at which a session was last used.
const TOUCH: Duration = Duration::from_mins(1);

const BEGIN: &str = "
    INSERT INTO gateway.session (id, owner, touched_at, expires_at) VALUES ($1, $2, $3, $4)";

const TRIM: &str = "
    DELETE FROM gateway.session WHERE id IN (
        SELECT id FROM (
            SELECT id, row_number() OVER (ORDER BY touched_at DESC, id) AS place
            FROM gateway.session WHERE owner = $1
        ) AS newest_first WHERE place > $2)";

const VISIT: &str = "
    SELECT touched_at, log_level FROM gateway.session WHERE id = $1 AND owner = $2 AND expires_at > $3";

const TOUCHED: &str = "UPDATE gateway.session SET touched_at = $2, expires_at = $3 WHERE id = $1";

const END: &str = "DELETE FROM gateway.session WHERE id = $1";

const SET_LOG_LEVEL: &str = "UPDATE gateway.session SET log_level = $2 WHERE id = $1";

const LISTEN: &str = "UPDATE gateway.session SET listener = $2 WHERE id = $1";

const LISTENS: &str = "
    SELECT touched_at FROM gateway.session WHERE id = $1 AND listener = $2 AND expires_at > $3";

pub(crate) const SWEEP: &str = "
    DELETE FROM gateway.session WHERE id IN
        (SELECT id FROM gateway.session WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)";

/// The id of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionId(pub [u8; 16]);

/// The state of a session that its client does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionSettings {
    /// The lowest level of the log messages for the client, or `None` until the client sets one.
    pub log_level: Option<String>,
}

impl Store {
    /// Begins a session that belongs to `owner`.
    pub async fn begin_session(&self, id: SessionId, owner: Digest) -> Result<(), StoreError> {
        let now = self.now();
        let values = [
            id.0[..].into(),
            owner.as_bytes()[..].into(),
            now.as_micros().into(),
            now.plus(IDLE).as_micros().into(),
        ];
        self.execute(BEGIN, values).await?;
        self.execute(TRIM, [owner.as_bytes()[..].into(), EACH.into()])
            .await?;
        Ok(())
    }

    /// Returns the session if it exists and belongs to `owner`, and marks it as used.
    pub async fn find_session(
        &self,
        id: SessionId,
        owner: Digest,
    ) -> Result<Option<SessionSettings>, StoreError> {
        let now = self.now();
        let values = [
            id.0[..].into(),
            owner.as_bytes()[..].into(),
            now.as_micros().into(),
        ];
        let found: Vec<(i64, Option<String>)> = self.rows(VISIT, values).await?;
        let Some((touched_at, log_level)) = found.into_iter().next() else {
            return Ok(None);
        };
        self.touch(id, touched_at, now).await?;
        Ok(Some(SessionSettings { log_level }))
    }

    /// Ends the session, and deletes its streams.
    pub async fn end_session(&self, id: SessionId) -> Result<(), StoreError> {
        self.execute(END, [id.0[..].into()]).await?;
        Ok(())
    }

    /// Sets the lowest level of the log messages that the client of the session wants.
    pub async fn set_log_level(&self, id: SessionId, level: &str) -> Result<(), StoreError> {
        self.execute(SET_LOG_LEVEL, [id.0[..].into(), level.into()])
            .await?;
        Ok(())
    }

    /// Makes `stream` the stream of changes of the session, in place of an earlier one.
    pub async fn listen_in_session(
        &self,
        id: SessionId,
        stream: [u8; 16],
    ) -> Result<(), StoreError> {
        self.execute(LISTEN, [id.0[..].into(), stream[..].into()])
            .await?;
        Ok(())
    }

    /// Returns whether `stream` is still the stream of changes of a session that has not ended, and marks the session
    /// as used.
    pub async fn listens_in_session(
        &self,
        id: SessionId,
        stream: [u8; 16],
    ) -> Result<bool, StoreError> {
        let now = self.now();
        let values = [id.0[..].into(), stream[..].into(), now.as_micros().into()];
        let found: Vec<(i64,)> = self.rows(LISTENS, values).await?;
        let Some((touched_at,)) = found.into_iter().next() else {
            return Ok(false);
        };
        self.touch(id, touched_at, now).await?;
        Ok(true)
    }

    async fn touch(
        &self,
        id: SessionId,
        touched_at: i64,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        if now.since(Timestamp::from_micros(touched_at)) >= TOUCH {
            let values = [
                id.0[..].into(),
                now.as_micros().into(),
                now.plus(IDLE).as_micros().into(),
            ];
            self.execute(TOUCHED, values).await?;
        }
        Ok(())
    }
}
