//! What `_meta` of a result and `data` of an error say of a call: its id, its receipt, and what was left out.

use std::fmt::Write;

use wardgate_domain::{CallId, DecisionId, Receipt};
use wardgate_rpc::client::DroppedColumns;

/// Key of the call's id in `_meta` of results and in `data` of errors.
const CALL_ID: &str = "dev.wardgate/callId";
/// Key of the audit receipt beside it.
const RECEIPT: &str = "dev.wardgate/receipt";
/// Key of how many columns the result lost, by reason; absent when it lost none.
const DROPPED_COLUMNS: &str = "dev.wardgate/droppedColumns";
/// Key of the decision's id, where a policy refused.
const DECISION_ID: &str = "dev.wardgate/decisionId";

/// The form in which a call is on record, which its answer needs to be released.
#[derive(Debug, Clone, Copy)]
pub enum RecordStatus {
    /// By a record of its own.
    ByItself(Receipt),
    /// A refusal that is counted with others of its caller, and on record within a second.
    InSummary,
}

impl RecordStatus {
    /// The receipt of a record of its own.
    pub fn receipt(self) -> Option<Receipt> {
        match self {
            Self::ByItself(receipt) => Some(receipt),
            Self::InSummary => None,
        }
    }
}

/// The members of `_meta` that say which call it was, and that it is on record.
pub fn call_meta(call_id: CallId, recorded: RecordStatus) -> String {
    let mut meta = String::new();
    write_call(&mut meta, call_id, recorded.receipt(), None);
    meta
}

/// Appends the members of one call.
pub fn write_call(
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
        // Without the position, which says how much others do.
        let leaf_hash = receipt.leaf_hash();
        let _ = write!(to, r#","{RECEIPT}":{{"leafHash":"{leaf_hash}"}}"#);
    }
}

/// Appends how many columns were left out. Their names are not for a caller who may not see them.
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
