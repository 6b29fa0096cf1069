//! The store of the results of calls, for the pages that show them.
//!
//! ```text
//!  POST a form ─▶ begin ─▶ the call ─▶ finish ─▶ 303 ─▶ GET the page of the call, any number of times, at any replica
//! ```
//!
//! A result is shown only to the caller who made the call, and with the rights of that time. It is sealed for its call
//! and its caller, kept for [`KEPT`], and removed earlier if newer results of the same caller need the space.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use wardgate_domain::{About, Caller, Digest, Timestamp};

use crate::fields::FormFields;
use crate::mcp::{CALL_LIMIT, GatewayFault};
use crate::store::{ConsoleStore, StoreError};

/// Time for which a result is kept.
pub(crate) const KEPT: Duration = Duration::from_mins(15);

/// Maximum size of the sealed results of one caller, in bytes, and their maximum number.
const MAX_EACH: i64 = 16 << 20;
const MAX_CALLS: i64 = 64;

/// Maximum size of all results, in bytes: in a file, which may be on a small volume of a pod, and on a server.
const MAX_FILE: i64 = 32 << 20;
const MAX_SERVER: i64 = 1 << 30;

/// The context under which results are sealed, so that no other text sealed under this key can be used as a result.
const SEALED: &str = "wardgate console result 1";

const BEGIN: &str = "
    INSERT INTO console.result (id, owner, sealed, is_over, started_at, expires_at)
    VALUES ($1, $2, $3, 0, $4, $5) ON CONFLICT (id) DO NOTHING";

const FINISH: &str =
    "UPDATE console.result SET sealed = $2, is_over = 1 WHERE id = $1 AND is_over = 0";

const READ: &str = "
    SELECT sealed FROM console.result WHERE id = $1 AND owner = $2 AND expires_at > $3";

/// Deletes the oldest results of an owner beyond a number or a size. Results of running calls stay.
const TRIM: &str = "
    DELETE FROM console.result WHERE is_over = 1 AND id IN (
        SELECT id FROM (
            SELECT id,
                row_number() OVER (ORDER BY started_at DESC, id) AS place,
                sum(octet_length(sealed)) OVER (ORDER BY started_at DESC, id) AS bytes
            FROM console.result WHERE owner = $1
        ) AS newest_first WHERE place > $2 OR (place > 1 AND bytes > $3))";

/// Deletes the oldest results of all owners beyond a size.
const TRIM_ALL: &str = "
    DELETE FROM console.result WHERE is_over = 1 AND id IN (
        SELECT id FROM (
            SELECT id, sum(octet_length(sealed)) OVER (ORDER BY started_at DESC, id) AS bytes
            FROM console.result
        ) AS newest_first WHERE bytes > $1)";

/// A call that was requested by a form, and its outcome.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SubmittedCall {
    /// The name of the tool.
    pub(crate) tool: String,
    /// The submitted fields.
    pub(crate) fields: FormFields,
    /// The time of the submission, in microseconds since 1970.
    pub(crate) at_micros: i64,
    /// The outcome of the call, or `None` while it is running.
    pub(crate) outcome: Option<CallOutcome>,
}

/// The outcome of a call.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum CallOutcome {
    /// Nothing was called, because these fields are invalid for these reasons.
    Invalid(Vec<(String, String)>),
    /// The gateway answered. Contains the texts of the request and the response.
    Answered { request: String, answer: String },
    /// The gateway did not answer.
    Failed(GatewayFault),
    /// The browser disconnected or the console ended before there was a response, which cancelled the call.
    Interrupted,
}

/// A running call. Dropping it without an outcome stores that it was interrupted.
pub(crate) struct RunningCall {
    store: Arc<ConsoleStore>,
    id: String,
    owner: Digest,
    /// The call, or `None` once it has finished.
    call: Option<SubmittedCall>,
}

/// Returns the id of a call. It is the same if the same caller submits one form twice, because every form contains a
/// unique key.
pub(crate) fn result_id(caller: &Caller, tool: &str, key: &str, form: &[u8]) -> String {
    let about = About::new("console call")
        .and(caller.digest().as_bytes())
        .and(tool.as_bytes())
        .and(key.as_bytes())
        .and(form);
    about.digest().to_string()
}

impl ConsoleStore {
    /// Stores the call `id` as running. Returns `None` if it has already begun, at this or another replica.
    pub(crate) async fn begin(
        self: &Arc<Self>,
        id: String,
        caller: &Caller,
        call: SubmittedCall,
    ) -> Result<Option<RunningCall>, StoreError> {
        let (owner, now) = (caller.digest(), self.ambient.now());
        let values = [
            id.as_str().into(),
            owner.as_bytes()[..].into(),
            self.seal_call(&id, owner, &call)?.into(),
            now.as_micros().into(),
            now.plus(KEPT).as_micros().into(),
        ];
        let begun = self.execute(BEGIN, values).await? == 1;
        Ok(begun.then(|| RunningCall {
            store: Arc::clone(self),
            id,
            owner,
            call: Some(call),
        }))
    }

    /// Returns the call `id` if it belongs to this caller and is still kept.
    pub(crate) async fn get(
        &self,
        id: &str,
        caller: &Caller,
    ) -> Result<Option<SubmittedCall>, StoreError> {
        let (owner, now) = (caller.digest(), self.ambient.now());
        let values = [
            id.into(),
            owner.as_bytes()[..].into(),
            now.as_micros().into(),
        ];
        let rows: Vec<(Vec<u8>,)> = self.rows(READ, values).await?;
        let Some((sealed,)) = rows.into_iter().next() else {
            return Ok(None);
        };
        let text = self.key.results.open(&about(id, owner), sealed);
        let text = text.map_err(|_| StoreError::Unreadable)?;
        let mut call: SubmittedCall =
            serde_json::from_slice(&text).map_err(|_| StoreError::Unreadable)?;
        let began = Timestamp::from_micros(call.at_micros);
        if call.outcome.is_none() && began.plus(CALL_LIMIT) < now {
            // The process that ran the call is gone.
            call.outcome = Some(CallOutcome::Interrupted);
        }
        Ok(Some(call))
    }

    async fn finish(
        &self,
        id: &str,
        owner: Digest,
        call: &SubmittedCall,
    ) -> Result<(), StoreError> {
        let sealed = self.seal_call(id, owner, call)?;
        self.execute(FINISH, [id.into(), sealed.into()]).await?;
        let values = [
            owner.as_bytes()[..].into(),
            MAX_CALLS.into(),
            MAX_EACH.into(),
        ];
        self.execute(TRIM, values).await?;
        let all = if self.is_file() { MAX_FILE } else { MAX_SERVER };
        self.execute(TRIM_ALL, [all.into()]).await?;
        Ok(())
    }

    fn seal_call(
        &self,
        id: &str,
        owner: Digest,
        call: &SubmittedCall,
    ) -> Result<Vec<u8>, StoreError> {
        let text = serde_json::to_vec(call).map_err(|_| StoreError::Unreadable)?;
        let sealed = self
            .key
            .results
            .seal(&about(id, owner), &text, &self.ambient);
        sealed.map_err(|_| StoreError::Unreadable)
    }
}

impl RunningCall {
    /// Stores the outcome for the page of the call.
    pub(crate) async fn finish(mut self, outcome: CallOutcome) -> Result<(), StoreError> {
        let Some(mut call) = self.call.take() else {
            return Ok(());
        };
        call.outcome = Some(outcome);
        self.store.finish(&self.id, self.owner, &call).await
    }
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        let (Some(mut call), Ok(runtime)) =
            (self.call.take(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        call.outcome = Some(CallOutcome::Interrupted);
        let (store, id, owner) = (Arc::clone(&self.store), self.id.clone(), self.owner);
        // A failure is logged where it happens. The page shows the interruption anyway once the time limit of the call
        // has passed.
        runtime.spawn(async move { store.finish(&id, owner, &call).await });
    }
}

fn about(id: &str, owner: Digest) -> About {
    About::new(SEALED).and(id.as_bytes()).and(owner.as_bytes())
}

#[cfg(test)]
mod tests;
