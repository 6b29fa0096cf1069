//! Idempotency keys: the same key and arguments never run a tool twice.
//!
//! ```text
//!   begin ─▶ Fresh ─▶ run ─▶ finish:  Done(result)   from then on `begin` gives the result
//!                      │              NothingRan     the key is free again
//!                      │              Open           from then on `begin` says Unknown
//!                      │              Waiting        `begin` gives what it waits for; `resume` ─▶ Fresh, once
//!                      └─ crash ──── until its deadline `begin` says Running, then Unknown
//! ```
//!
//! The row is there before the tool runs, so whatever ends in between leaves a key that never runs again.

use std::fmt;
use std::time::Duration;

use wardgate_domain::{About, Caller, Digest, Timestamp};

use super::{StoreError, ToolRunnerStore, person, within};

/// How long a key is remembered.
const KEPT: Duration = Duration::from_hours(24);

/// A row that expired is as good as none, so it is taken over in place.
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

/// Only who finds it waiting takes it up.
const RESUME: &str = "
    UPDATE tool_runner.keyed_call SET result = NULL, running_until = $3
    WHERE id = $1 AND running_until = $2 AND result = $4";

/// `running_until` of a call that waits for its client; its `result` is what it waits for.
const WAITING: i64 = i64::MAX;

/// As [`LOOK`] gives it.
type KeyedCallRow = (Vec<u8>, Vec<u8>, i64, Option<Vec<u8>>);

/// A call with an idempotency key.
#[derive(Clone, Copy)]
pub(crate) struct KeyedCall<'a> {
    /// A key is the caller's own; whoever else uses the same text means another call.
    pub(crate) caller: &'a Caller,
    /// Canonical name.
    pub(crate) tool: &'a str,
    pub(crate) key: &'a str,
    /// Digest of the arguments.
    pub(crate) arguments: Digest,
    /// Digest of everything that decides what of the result this caller may see: rights, permit, definition.
    pub(crate) terms: Digest,
    /// When the call is over at the latest, whatever becomes of it.
    pub(crate) deadline: Timestamp,
}

/// Where a call with an idempotency key stands.
pub(crate) enum KeyedCallState {
    /// Nothing ran yet: run it, then [`ToolRunnerStore::finish`] it.
    Fresh(Ticket),
    /// The key stands for a call with other arguments.
    SameKeyOtherArguments,
    /// It runs now, here or on another replica.
    Running,
    /// It began and nobody knows how it ended. It is never run again.
    Unknown,
    /// It waits for its client, and for this.
    Waiting(Vec<u8>),
    /// It ran, and this was its result.
    Done(Vec<u8>),
    /// It ran, and its result was released under other terms than the caller's now.
    DoneUnderOtherTerms,
}

impl fmt::Debug for KeyedCallState {
    /// Without the result.
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

/// The right to say how a call ended.
pub(crate) struct Ticket {
    id: Digest,
    about: About,
}

/// How a call with an idempotency key ended.
pub(crate) enum KeyedOutcome<'a> {
    /// It ran; the bytes of its result, as the caller gets them.
    Done(&'a [u8]),
    /// Certainly nothing ran: the key may be used again.
    NothingRan,
    /// Whether it ran, or to which end, is open.
    Open,
    /// It has not ended: it waits for its client; the bytes say for what.
    Waiting(&'a [u8]),
}

impl ToolRunnerStore {
    /// Takes the key for this call unless it is taken. After an error nothing may run.
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
            // A row can go between the two statements, when nothing ran after all; then the key is free again.
            loop {
                if self.database.execute(BEGIN, row()).await? > 0 {
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

    /// Takes up the call of this key that waits for its client, if `is_it` knows what it waits for.
    pub(crate) async fn resume(
        &self,
        call: KeyedCall<'_>,
        is_it: impl Fn(&[u8]) -> bool,
        now: Timestamp,
    ) -> Result<KeyedCallState, StoreError> {
        let id = call.id();
        let key = || id.as_bytes()[..].into();
        within(async {
            // It can be taken up by another between the two statements; then that one runs.
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

    /// Says how the call of `ticket` ended.
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
    /// Says nothing of the key's text to whoever reads the store.
    fn id(&self) -> Digest {
        let whole = About::new("idempotency key")
            .and(person(self.caller).as_bytes())
            .and(self.tool.as_bytes())
            .and(self.key.as_bytes());
        Digest::of(whole.as_bytes())
    }

    fn about(&self, id: Digest) -> About {
        About::new("keyed call")
            .and(id.as_bytes())
            .and(self.arguments.as_bytes())
            .and(self.terms.as_bytes())
    }
}
