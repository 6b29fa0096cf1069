//! Receipts of calls, which identify the record of a call so that the log can prove it.

use serde_json::Value;
use wardgate_domain::Digest;
use wardgate_transparency::{Hash, leaf_hash};

/// Key of the id of the call in the response.
const CALL_ID: &str = "dev.wardgate/callId";
/// Key of the receipt beside the id of the call.
const RECEIPT: &str = "dev.wardgate/receipt";

/// The reason why a saved response contains no usable receipt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReceiptError {
    /// The response contains no receipt.
    #[error(
        "it contains no receipt: save the answer of a call, with `dev.wardgate/receipt` and `dev.wardgate/callId`"
    )]
    Missing,
    /// The response contains receipts of several calls.
    #[error("it contains receipts of several calls: save only one of them")]
    Several,
    /// The receipt has no valid leaf hash.
    #[error("the leaf hash of its receipt does not have 64 hexadecimal digits")]
    LeafHash,
}

/// A receipt for the record of the call `call_id`. Its hash distinguishes that record from every other one, and shows whether
/// the log contains it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallReceipt {
    /// The id of the call.
    pub call_id: String,
    /// The RFC 6962 leaf hash of the record.
    pub leaf_hash: Hash,
}

impl CallReceipt {
    /// Finds the receipt in `answer`: a JSON-RPC response, its result or error, their `_meta` or `data`, or an event stream
    /// that contains one of these.
    pub fn find(answer: &str) -> Result<Self, ReceiptError> {
        let mut found = Vec::new();
        if let Ok(value) = serde_json::from_str(answer) {
            collect(&value, &mut found)?;
        } else {
            for line in answer.lines() {
                let line = line.strip_prefix("data:").unwrap_or(line);
                if let Ok(value) = serde_json::from_str(line) {
                    collect(&value, &mut found)?;
                }
            }
        }
        found.dedup();
        match found.len() {
            0 => Err(ReceiptError::Missing),
            1 => found.pop().ok_or(ReceiptError::Missing),
            _ => Err(ReceiptError::Several),
        }
    }

    /// Returns whether `record` has the hash of this receipt and belongs to its call.
    pub(crate) fn is_of(&self, record: &[u8]) -> bool {
        if leaf_hash(record) != self.leaf_hash {
            return false;
        }
        let record = serde_json::from_slice::<Value>(record);
        record.is_ok_and(|record| record["call_id"] == self.call_id.as_str())
    }
}

/// Appends every receipt in `value` to `found`.
fn collect(value: &Value, found: &mut Vec<CallReceipt>) -> Result<(), ReceiptError> {
    match value {
        Value::Array(items) => items.iter().try_for_each(|item| collect(item, found)),
        Value::Object(members) => {
            if let (Some(receipt), Some(Value::String(call_id))) =
                (members.get(RECEIPT), members.get(CALL_ID))
            {
                let hash = receipt["leafHash"].as_str();
                let hash = hash.and_then(|digits| digits.parse::<Digest>().ok());
                found.push(CallReceipt {
                    call_id: call_id.clone(),
                    leaf_hash: *hash.ok_or(ReceiptError::LeafHash)?.as_bytes(),
                });
            }
            members
                .values()
                .try_for_each(|member| collect(member, found))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: &[u8] = br#"{"call_id":"call-1","event":"outcome"}"#;

    fn meta(call_id: &str, hash: &str) -> String {
        format!(r#"{{"{CALL_ID}":"{call_id}","{RECEIPT}":{{"leafHash":"{hash}"}}}}"#)
    }

    #[test]
    fn a_receipt_is_found_wherever_an_answer_has_it_and_is_of_one_record_of_one_call() {
        let hash = Digest::from_bytes(leaf_hash(RECORD)).to_string();
        let meta_text = meta("call-1", &hash);
        for answer in [
            meta_text.clone(),
            format!(r#"{{"id":1,"result":{{"content":[],"_meta":{meta_text}}}}}"#),
            format!(r#"{{"id":1,"error":{{"code":1,"data":{meta_text}}}}}"#),
            format!("event: message\ndata: {{\"result\":{{\"_meta\":{meta_text}}}}}\n\n"),
        ] {
            let receipt = CallReceipt::find(&answer).unwrap();
            assert!(receipt.is_of(RECORD), "{answer}");
            assert!(!receipt.is_of(br#"{"call_id":"call-2","event":"outcome"}"#));
        }
        // This receipt combines the id of a call with the hash of the record of another call.
        let other = CallReceipt::find(&meta("call-2", &hash)).unwrap();
        assert!(!other.is_of(RECORD));
    }

    #[test]
    fn what_is_no_receipt_is_named() {
        let hash = "0".repeat(64);
        for (answer, error) in [
            (String::new(), ReceiptError::Missing),
            (r#"{"result":{}}"#.to_owned(), ReceiptError::Missing),
            (meta("call-1", &hash[1..]), ReceiptError::LeafHash),
            (
                meta("call-1", &hash.replace('0', "g")),
                ReceiptError::LeafHash,
            ),
            (
                format!("[{},{}]", meta("call-1", &hash), meta("call-2", &hash)),
                ReceiptError::Several,
            ),
        ] {
            assert_eq!(CallReceipt::find(&answer), Err(error), "{answer}");
        }
    }
}
