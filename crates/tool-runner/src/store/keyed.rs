//! Idempotency keys, which ensure that a tool never runs twice with the same key and arguments.
//!
//! ```text
//!   begin ─▶ Fresh ─▶ run ─▶ finish:  Done(result)   from then on `begin` returns the result
//!                      │              NothingRan     the key is free again
//!                      │              Open           from then on `begin` returns Unknown
//!                      │              Waiting        `begin` returns the request for input; `resume` ─▶ Fresh, once
//!                      └─ crash ──── until its deadline `begin` returns Running, then Unknown
//! ```
//!
//! The row is inserted before the tool runs, so a failure in between leaves a key whose call never runs again.

use std::fmt;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;
use tracing::warn;
use wardgate_domain::{About, Caller, Digest, Timestamp};
use wardgate_store::Value;

use super::{LIMIT, StoreError, ToolRunnerStore, person, within};

/// Time for which a key is kept.
const KEPT: Duration = Duration::from_hours(24);

/// An expired row counts as absent and is overwritten.
const BEGIN: &str = "
    INSERT INTO tool_runner.keyed_call AS held
        (id, arguments, terms, started_at, running_until, expires_at)
    VALUES ($1, $2, $3, $4, $5, $6)
    ON CONFLICT (id) DO UPDATE SET
        arguments = excluded.arguments, terms = excluded.terms, started_at = excluded.started_at,
        running_until = excluded.running_until, expires_at = excluded.expires_at, result = NULL
    WHERE held.expires_at <= excluded.started_at";

const LOOK: &str =
    "SELECT arguments, terms, running_until, result FROM tool_runner.keyed_call WHERE id = $1";

const DONE: &str = "UPDATE tool_runner.keyed_call SET result = $2 WHERE id = $1";

const OPEN: &str = "UPDATE tool_runner.keyed_call SET running_until = started_at WHERE id = $1";

const FORGET: &str = "DELETE FROM tool_runner.keyed_call WHERE id = $1";

pub(super) const SWEEP: &str = "
    DELETE FROM tool_runner.keyed_call WHERE id IN
        (SELECT id FROM tool_runner.keyed_call WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)";

const WAIT: &str =
    "UPDATE tool_runner.keyed_call SET result = $2, running_until = $3 WHERE id = $1";

/// The condition ensures that only one caller resumes a waiting call.
const RESUME: &str = "
    UPDATE tool_runner.keyed_call SET result = NULL, running_until = $3
    WHERE id = $1 AND running_until = $2 AND result = $4";

/// Value of `running_until` for a call that waits for its client. The `result` of such a row is the request for the
/// client's input.
const WAITING: i64 = i64::MAX;

/// A row of [`LOOK`].
type KeyedCallRow = (Vec<u8>, Vec<u8>, i64, Option<Vec<u8>>);

/// A call with an idempotency key.
#[derive(Clone, Copy)]
pub(crate) struct KeyedCall<'a> {
    /// The caller. Keys are separate for each caller, so the same key of another caller means another call.
    pub(crate) caller: &'a Caller,
    /// The canonical name of the tool.
    pub(crate) tool: &'a str,
    pub(crate) key: &'a str,
    /// The digest of the arguments.
    pub(crate) arguments: Digest,
    /// The digest of everything that decides how much of the result this caller may see: rights, permit and definition.
    pub(crate) terms: Digest,
    /// The time at which the call has ended in any case.
    pub(crate) deadline: Timestamp,
}

/// The state of a call with an idempotency key.
pub(crate) enum KeyedCallState {
    /// Nothing has run yet. Run the call, then [`ToolRunnerStore::finish`] it.
    Fresh(Ticket),
    /// The key was used for a call with other arguments.
    SameKeyOtherArguments,
    /// The call is running, here or on another replica.
    Running,
    /// The call began, and how it ended is not known. It never runs again.
    Unknown,
    /// The call waits for its client. The bytes are the request for input.
    Waiting(Vec<u8>),
    /// The call ran, and the bytes are its result.
    Done(Vec<u8>),
    /// The call ran, and its result was released under terms other than the caller's current ones.
    DoneUnderOtherTerms,
}

impl fmt::Debug for KeyedCallState {
    /// Leaves out the result.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fresh(_) => "Fresh",
            Self::SameKeyOtherArguments => "SameKeyOtherArguments",
            Self::Running => "Running",
            Self::Unknown => "Unknown",
            Self::Waiting(_) => "Waiting",
            Self::Done(_) => "Done",
            Self::DoneUnderOtherTerms => "DoneUnderOtherTerms",
        })
    }
}

/// The right to store how a call ended.
pub(crate) struct Ticket {
    id: Digest,
    about: About,
}

/// The outcome of a call with an idempotency key.
pub(crate) enum KeyedOutcome<'a> {
    /// The call ran. The bytes are its result, as the caller receives it.
    Done(&'a [u8]),
    /// Nothing ran, so the key may be used again.
    NothingRan,
    /// Whether the call ran, or how it ended, is not known.
    Open,
    /// The call has not ended, because it waits for its client. The bytes are the request for input.
    Waiting(&'a [u8]),
}

impl ToolRunnerStore {
    /// Claims the key for this call, or returns the state of the key if it is already used. After an error nothing may
    /// run, and the key is free again unless the connection to the database failed.
    pub(crate) async fn begin(
        &self,
        call: KeyedCall<'_>,
        now: Timestamp,
    ) -> Result<KeyedCallState, StoreError> {
        let id = call.id();
        let expires_at = now.plus(KEPT).as_micros();
        let row = || {
            [
                id.as_bytes()[..].into(),
                call.arguments.as_bytes()[..].into(),
                call.terms.as_bytes()[..].into(),
                now.as_micros().into(),
                call.deadline.as_micros().into(),
                expires_at.into(),
            ]
        };
        within(async {
            // The row may be deleted between the two statements if nothing ran after all. The key is then free again.
            loop {
                if self.claim(id, row()).await? {
                    let about = call.about(id);
                    return Ok(KeyedCallState::Fresh(Ticket { id, about }));
                }
                let id = [id.as_bytes()[..].into()];
                let rows: Vec<KeyedCallRow> = self.database.rows(LOOK, id).await?;
                if let Some(row) = rows.into_iter().next() {
                    return self.stands(call, row, now);
                }
            }
        })
        .await
    }

    /// Inserts the row of a key, and returns whether it was free. If the caller of this function stops waiting, nothing
    /// will run under the key, so the row is deleted again.
    async fn claim(&self, id: Digest, row: [Value; 6]) -> Result<bool, StoreError> {
        let (answer, answered) = oneshot::channel();
        let database = self.database.clone();
        let claim = async move {
            let claimed = database.execute(BEGIN, row).await.map(|rows| rows > 0);
            let Err(Ok(true)) = answer.send(claimed) else {
                return;
            };
            let id = [id.as_bytes()[..].into()];
            if let Err(error) = database.execute(FORGET, id).await {
                warn!(%error, "an idempotency key under which nothing ran could not be released");
            }
        };
        // The task ends later than its caller stops waiting, and does not wait for a lost server forever.
        tokio::spawn(timeout(2 * LIMIT, claim));
        let claimed = answered.await.map_err(|_| StoreError::Late)?;
        Ok(claimed?)
    }

    /// Resumes the call of this key that waits for its client, if `is_it` accepts its request for input.
    pub(crate) async fn resume(
        &self,
        call: KeyedCall<'_>,
        is_it: impl Fn(&[u8]) -> bool,
        now: Timestamp,
    ) -> Result<KeyedCallState, StoreError> {
        let id = call.id();
        let key = || id.as_bytes()[..].into();
        within(async {
            // Another caller may resume the call between the two statements, and then runs it.
            loop {
                let rows: Vec<KeyedCallRow> = self.database.rows(LOOK, [key()]).await?;
                let Some(row) = rows.into_iter().next() else {
                    return Ok(KeyedCallState::Unknown);
                };
                let sealed = row.3.clone().unwrap_or_default();
                let stands = self.stands(call, row, now)?;
                match &stands {
                    KeyedCallState::Waiting(waits) if is_it(waits) => {}
                    _ => return Ok::<_, StoreError>(stands),
                }
                let until = call.deadline.as_micros().into();
                let row = [key(), WAITING.into(), until, sealed[..].into()];
                if self.database.execute(RESUME, row).await? > 0 {
                    let about = call.about(id);
                    return Ok(KeyedCallState::Fresh(Ticket { id, about }));
                }
            }
        })
        .await
    }

    /// Stores how the call of `ticket` ended.
    pub(crate) async fn finish(
        &self,
        ticket: Ticket,
        ending: KeyedOutcome<'_>,
    ) -> Result<(), StoreError> {
        let id = || ticket.id.as_bytes()[..].into();
        let changed = match ending {
            KeyedOutcome::Done(result) => {
                let sealed = self.key.seal(&ticket.about, result, &self.ambient)?;
                let row = [id(), sealed[..].into()];
                within(self.database.execute(DONE, row)).await
            }
            KeyedOutcome::Waiting(waits) => {
                let sealed = self.key.seal(&ticket.about, waits, &self.ambient)?;
                let row = [id(), sealed[..].into(), WAITING.into()];
                within(self.database.execute(WAIT, row)).await
            }
            KeyedOutcome::NothingRan => within(self.database.execute(FORGET, [id()])).await,
            KeyedOutcome::Open => within(self.database.execute(OPEN, [id()])).await,
        };
        changed.map(drop)
    }

    fn stands(
        &self,
        call: KeyedCall<'_>,
        row: KeyedCallRow,
        now: Timestamp,
    ) -> Result<KeyedCallState, StoreError> {
        let (arguments, terms, running_until, result) = row;
        if arguments != call.arguments.as_bytes() {
            return Ok(KeyedCallState::SameKeyOtherArguments);
        }
        Ok(match result {
            Some(_) if terms != call.terms.as_bytes() => KeyedCallState::DoneUnderOtherTerms,
            Some(sealed) => {
                let kept = self.key.open(&call.about(call.id()), sealed)?;
                if running_until == WAITING {
                    KeyedCallState::Waiting(kept)
                } else {
                    KeyedCallState::Done(kept)
                }
            }
            None if now.as_micros() < running_until => KeyedCallState::Running,
            None => KeyedCallState::Unknown,
        })
    }
}

impl KeyedCall<'_> {
    /// Returns the id of the row, which does not reveal the text of the key.
    fn id(&self) -> Digest {
        let whole = About::new("idempotency key")
            .and(person(self.caller).as_bytes())
            .and(self.tool.as_bytes())
            .and(self.key.as_bytes());
        Digest::compute(whole.as_bytes())
    }

    fn about(&self, id: Digest) -> About {
        About::new("keyed call")
            .and(id.as_bytes())
            .and(self.arguments.as_bytes())
            .and(self.terms.as_bytes())
    }
}
