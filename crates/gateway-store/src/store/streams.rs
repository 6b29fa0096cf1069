//! Streams of events, stored so that a client that lost one can resume it at any replica.
//!
//! ```text
//!   open ─▶ write … write(last) ─▶ ended
//!     │       └─ too much, or no store ──▶ give up: later events are not stored
//!     └─ its replica is gone ─▶ another takes it over: the suspended call is resumed, or the stream ends in an error
//! ```

use std::time::Duration;

use futures::FutureExt;

use super::sessions::SessionId;
use super::{Store, StoreError, within_limit};

/// Time for which the events of a stream are stored after the last one.
const KEPT: Duration = Duration::from_hours(1);

/// Time after which a replica without a heartbeat counts as gone.
pub(crate) const ALIVE: Duration = Duration::from_secs(15);

/// Maximum size of the streams of one session in bytes, and below it their maximum number. The oldest streams are
/// deleted when another begins.
const SESSION_BYTES: i64 = 32 << 20;
const SESSION_STREAMS: i64 = 256;

/// Maximum number of events that are read at once.
const PAGE: i64 = 16;

const BEAT: &str = "
    INSERT INTO gateway.replica (id, alive_until) VALUES ($1, $2)
    ON CONFLICT (id) DO UPDATE SET alive_until = excluded.alive_until";

const OPEN: &str = "
    INSERT INTO gateway.stream (id, session, replica, request, basis, ended, bytes, expires_at)
    SELECT $1, id, $3, $4, $5, 0, $6, $7 FROM gateway.session WHERE id = $2";

/// Deletes the streams that exceed the limits, counted from the newest.
const TRIM: &str = "
    DELETE FROM gateway.stream WHERE number IN (
        SELECT number FROM (
            SELECT number, sum(bytes) OVER newest AS together, row_number() OVER newest AS place
            FROM gateway.stream WHERE session = $1 WINDOW newest AS (ORDER BY number DESC)
        ) AS newest_first WHERE together > $2 OR place > $3)";

const WRITE: &str = "
    UPDATE gateway.stream SET bytes = bytes + $3, ended = $4, expires_at = $5
    WHERE id = $1 AND replica = $2 AND ended = 0";

const EVENT: &str = "INSERT INTO gateway.event (stream, position, sealed) VALUES ($1, $2, $3)";

const GIVE_UP: &str = "UPDATE gateway.stream SET ended = 2 WHERE id = $1 AND ended = 0";

const WAIT: &str = "
    UPDATE gateway.stream SET waiting = $3, expires_at = $4 WHERE id = $1 AND replica = $2 AND ended = 0";

const LEAVE: &str = "
    UPDATE gateway.stream SET replica = $3 WHERE id = $1 AND replica = $2 AND ended = 0";

const LOOK: &str = "
    SELECT ended, request, COALESCE(alive_until, 0) FROM gateway.stream
    LEFT JOIN gateway.replica ON replica.id = stream.replica
    WHERE stream.id = $1 AND stream.session = $2 AND stream.expires_at > $3";

const BASIS: &str = "SELECT basis FROM gateway.stream WHERE id = $1 AND session = $2";

const EVENTS: &str = "
    SELECT position, sealed FROM gateway.event WHERE stream = $1 AND position > $2 ORDER BY position LIMIT $3";

const TAKE_OVER: &str = "
    UPDATE gateway.stream SET replica = $2, expires_at = $4
    WHERE id = $1 AND ended = 0 AND NOT EXISTS
        (SELECT 1 FROM gateway.replica AS holder WHERE holder.id = stream.replica AND holder.alive_until > $3)
    RETURNING waiting, (SELECT COALESCE(max(position), 0) FROM gateway.event WHERE event.stream = $1)";

pub(crate) const SWEEP: &str = "
    DELETE FROM gateway.stream WHERE id IN
        (SELECT id FROM gateway.stream WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)";

pub(crate) const SWEEP_REPLICAS: &str = "
    DELETE FROM gateway.replica WHERE id IN (
        SELECT id FROM gateway.replica WHERE alive_until <= $1
            AND NOT EXISTS (SELECT 1 FROM gateway.stream WHERE stream.replica = replica.id) LIMIT $2)";

/// The id of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StreamId(pub [u8; 16]);

/// The id of a gateway process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplicaId(pub [u8; 16]);

/// The result of a write to a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteResult {
    /// The write succeeded.
    Stored,
    /// The stream no longer belongs to this replica, or it has ended with its session.
    Gone,
}

/// A page of a stored stream.
#[derive(Debug)]
pub struct StreamPage {
    /// The events with their positions. Empty if there are none yet.
    pub events: Vec<(i64, Vec<u8>)>,
    /// Whether more events may follow.
    pub state: StreamState,
    /// The sealed id of the request that the stream answers.
    pub request: Vec<u8>,
}

/// The state of a stored stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamState {
    /// More events may follow.
    GoesOn,
    /// The stream has not ended, but the gateway that writes it is gone.
    Orphaned,
    /// The last event is stored.
    Ended,
    /// Later events were not stored.
    Broken,
}

/// A stream that this replica has taken over.
#[derive(Debug)]
pub struct TakenOverStream {
    /// The sealed suspended call, or `None` if no call is suspended. In that case a call may still be running.
    pub waiting: Option<Vec<u8>>,
    /// The position of the last event.
    pub position: i64,
}

impl Store {
    /// Marks the replica as alive for [`ALIVE`] from now on.
    pub async fn beat(&self, replica: ReplicaId) -> Result<(), StoreError> {
        let until = self.now().plus(ALIVE).as_micros();
        self.execute(BEAT, [replica.0[..].into(), until.into()])
            .await?;
        Ok(())
    }

    /// Begins a stream of the session with the replay grant `basis`. Returns `false` if the session has ended.
    pub async fn open_stream(
        &self,
        id: StreamId,
        session: SessionId,
        replica: ReplicaId,
        request: &[u8],
        basis: Option<&[u8]>,
    ) -> Result<bool, StoreError> {
        let trim = [
            session.0[..].into(),
            SESSION_BYTES.into(),
            SESSION_STREAMS.into(),
        ];
        self.execute(TRIM, trim).await?;
        let values = [
            id.0[..].into(),
            session.0[..].into(),
            replica.0[..].into(),
            request.into(),
            basis.into(),
            i64::try_from(basis.map_or(0, <[u8]>::len))
                .unwrap_or(i64::MAX)
                .into(),
            self.expiry().into(),
        ];
        Ok(self.execute(OPEN, values).await? == 1)
    }

    /// Stores the events that follow the position `after`. With the last one the stream ends.
    pub async fn write_stream(
        &self,
        id: StreamId,
        replica: ReplicaId,
        after: i64,
        events: &[Vec<u8>],
        is_last: bool,
    ) -> Result<WriteResult, StoreError> {
        let bytes: usize = events.iter().map(Vec::len).sum();
        let database = self.database().await?;
        let written = async {
            let mut transaction = database.begin().await?;
            let stream = [
                id.0[..].into(),
                replica.0[..].into(),
                i64::try_from(bytes).unwrap_or(i64::MAX).into(),
                i64::from(is_last).into(),
                self.expiry().into(),
            ];
            if transaction.execute(WRITE, stream).await? == 0 {
                return Ok::<_, StoreError>(WriteResult::Gone);
            }
            for (position, sealed) in (after + 1..).zip(events) {
                let event = [id.0[..].into(), position.into(), sealed.as_slice().into()];
                transaction.execute(EVENT, event).await?;
            }
            transaction.commit().await?;
            Ok(WriteResult::Stored)
        };
        self.log_failure_of(within_limit(written.boxed()).await)
    }

    /// Marks the stream as broken: no later event of it is stored.
    pub async fn give_up_stream(&self, id: StreamId) -> Result<(), StoreError> {
        self.execute(GIVE_UP, [id.0[..].into()]).await?;
        Ok(())
    }

    /// Stores the suspended call of a stream, so that another replica can resume it, or removes it if `call` is `None`.
    /// The result is `Gone` if another replica has taken the stream over.
    pub async fn set_suspended_call(
        &self,
        id: StreamId,
        replica: ReplicaId,
        call: Option<&[u8]>,
    ) -> Result<WriteResult, StoreError> {
        let values = [
            id.0[..].into(),
            replica.0[..].into(),
            call.into(),
            self.expiry().into(),
        ];
        Ok(match self.execute(WAIT, values).await? {
            0 => WriteResult::Gone,
            _ => WriteResult::Stored,
        })
    }

    /// Releases a stream, so that any replica can take it over.
    pub async fn leave_stream(&self, id: StreamId, replica: ReplicaId) -> Result<(), StoreError> {
        let nobody = [0; 16];
        let values = [id.0[..].into(), replica.0[..].into(), nobody[..].into()];
        self.execute(LEAVE, values).await?;
        Ok(())
    }

    /// Returns the events after `after` in a stream of the session, or `None` if there is no such stream.
    pub async fn read_stream(
        &self,
        id: StreamId,
        session: SessionId,
        after: i64,
    ) -> Result<Option<StreamPage>, StoreError> {
        let now = self.now().as_micros();
        // The state is read first, so that an event that is written in between cannot be missed after a final state.
        let key = [id.0[..].into(), session.0[..].into(), now.into()];
        let found: Vec<(i64, Vec<u8>, i64)> = self.rows(LOOK, key).await?;
        let Some((ended, request, alive_until)) = found.into_iter().next() else {
            return Ok(None);
        };
        let events: Vec<(i64, Vec<u8>)> = self
            .rows(EVENTS, [id.0[..].into(), after.into(), PAGE.into()])
            .await?;
        let state = match ended {
            // There may be more events after a full page.
            _ if i64::try_from(events.len()).is_ok_and(|count| count == PAGE) => {
                StreamState::GoesOn
            }
            0 if alive_until > now => StreamState::GoesOn,
            0 => StreamState::Orphaned,
            1 => StreamState::Ended,
            _ => StreamState::Broken,
        };
        Ok(Some(StreamPage {
            events,
            state,
            request,
        }))
    }

    /// Returns the sealed replay grant of a stream of the session, or `None` if there is none.
    pub async fn replay_grant_of_stream(
        &self,
        id: StreamId,
        session: SessionId,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let of = [id.0[..].into(), session.0[..].into()];
        let found: Vec<(Option<Vec<u8>>,)> = self.rows(BASIS, of).await?;
        Ok(found.into_iter().next().and_then(|(basis,)| basis))
    }

    /// Takes over an orphaned stream for this replica. Returns `None` if the stream is not orphaned, or another replica
    /// was faster.
    pub async fn take_over_stream(
        &self,
        id: StreamId,
        replica: ReplicaId,
    ) -> Result<Option<TakenOverStream>, StoreError> {
        let values = [
            id.0[..].into(),
            replica.0[..].into(),
            self.now().as_micros().into(),
            self.expiry().into(),
        ];
        let taken: Vec<(Option<Vec<u8>>, i64)> = self.rows(TAKE_OVER, values).await?;
        let taken = taken.into_iter().next();
        Ok(taken.map(|(waiting, position)| TakenOverStream { waiting, position }))
    }

    fn expiry(&self) -> i64 {
        self.now().plus(KEPT).as_micros()
    }
}
