//! The call's id, its receipt and the number of dropped columns, in `_meta` of a result or `data` of an error.

use std::fmt::Write;

use wardgate_domain::{CallId, DecisionId, Receipt};
use wardgate_mcp::meta::{CALL_ID, DECISION_ID, RECEIPT};
use wardgate_rpc::client::DroppedColumns;

/// Key of the numbers of columns dropped from the result, by reason, in `_meta` of the result; absent if none was dropped.
const DROPPED_COLUMNS: &str = "dev.wardgate/droppedColumns";

/// How a call is recorded. A response to the call needs one of these to be released.
#[derive(Debug, Clone, Copy)]
pub enum RecordStatus {
    /// The call has its own record.
    ByItself(Receipt),
    /// The call was refused, and is counted together with other refusals of its caller; the summary is recorded within a second.
    InSummary,
}

impl RecordStatus {
    /// Returns the receipt of the call's own record, or `None` if the call is only counted in a summary.
    pub fn receipt(self) -> Option<Receipt> {
        match self {
            Self::ByItself(receipt) => Some(receipt),
            Self::InSummary => None,
        }
    }
}

/// Returns the members of `_meta` that carry the id of a call and the receipt of its record.
pub fn call_meta(call_id: CallId, recorded: RecordStatus) -> String {
    let mut meta = String::new();
    write_call(&mut meta, call_id, recorded.receipt(), None);
    meta
}

/// Appends the members of `_meta` or `data` that identify one call.
pub(crate) fn write_call(
    to: &mut String,
    call_id: CallId,
    receipt: Option<Receipt>,
    decision: Option<DecisionId>,
) {
    let _ = write!(to, r#""{CALL_ID}":"{call_id}""#);
    if let Some(decision) = decision {
        let _ = write!(to, r#","{DECISION_ID}":"{decision}""#);
    }
    if let Some(receipt) = receipt {
        // The position of the record is left out because it reveals how many records other callers cause.
        let leaf_hash = receipt.leaf_hash();
        let _ = write!(to, r#","{RECEIPT}":{{"leafHash":"{leaf_hash}"}}"#);
    }
}

/// Appends the numbers of dropped columns, by reason. The names are withheld from a caller who may not see the columns.
pub fn write_dropped(to: &mut String, dropped: DroppedColumns) {
    let counts = [
        ("unclassified", dropped.unclassified),
        ("notPermitted", dropped.not_permitted),
    ];
    let counts = counts.into_iter().filter(|(_, count)| *count > 0);
    let counts: Vec<_> = counts
        .map(|(reason, count)| format!(r#""{reason}":{count}"#))
        .collect();
    if !counts.is_empty() {
        let _ = write!(to, r#","{DROPPED_COLUMNS}":{{{}}}"#, counts.join(","));
    }
}
