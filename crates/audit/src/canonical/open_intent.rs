//! An intent whose call has no outcome, as it is read from the store.

use wardgate_domain::{Status, Timestamp};
use wardgate_rpc::client::RecordDamage;

use super::{CallRecord, RecordEntry, rfc_3339};
use crate::Error;
use crate::stored_row::StoredRow;

/// A stored intent that is to be closed.
#[derive(Debug)]
pub(crate) struct OpenIntent {
    call: CallRecord<'static>,
    pub(crate) time: Timestamp,
}

impl OpenIntent {
    pub(crate) fn from_stored_row(stored: &StoredRow) -> Result<Self, Error> {
        let sequence = stored.sequence;
        let damaged = |problem: String| {
            Error::Damaged(RecordDamage {
                sequence: Some(sequence),
                problem,
                is_warning: false,
            })
        };
        let call: CallRecord<'static> = serde_json::from_slice(&stored.canonical)
            .map_err(|error| damaged(error.to_string()))?;
        let time = call
            .time
            .parse()
            .map_err(|_| damaged("it contains no time".to_owned()))?;
        Ok(Self { call, time })
    }

    /// Creates the outcome `unknown` of the call, which makes no statement about what happened after the intent.
    pub(crate) fn unknown_outcome(self, now: Timestamp) -> Result<RecordEntry, Error> {
        let outcome = CallRecord {
            event: "outcome".into(),
            reason: "no_outcome".into(),
            status: Status::Unknown.as_str().into(),
            time: rfc_3339(now, "record.time")?,
            violation: Some(false),
            ..self.call
        };
        Ok(RecordEntry::of_call(
            &outcome,
            "outcome",
            now,
            Some(Status::Unknown),
        )?)
    }
}
