//! The representations of records for people and other programs.

use serde_json::{Map, Value, json};
use wardgate_rpc::client::{RecordDamage, RecordDetails, StoredRecord};

use crate::Error;

/// Returns one line of `audit query -o jsonl`: `sequence`, `leaf_hash`, the seven fields of [`access_view`], then every field
/// of the record under its own name, and `details`, an object, `"erased"` or `"undecryptable"`, if they were requested.
pub fn record_line(stored: &StoredRecord) -> Result<Value, Error> {
    let sequence = stored.sequence;
    let record = parse(sequence, &stored.record)?;
    let mut line = Map::new();
    line.insert("sequence".to_owned(), sequence.into());
    line.insert("leaf_hash".to_owned(), stored.leaf_hash.to_string().into());
    line.extend(seven_fields(&record));
    line.extend(record);
    let details = match &stored.details {
        None => None,
        Some(RecordDetails::Erased) => Some(json!("erased")),
        Some(RecordDetails::Undecryptable) => Some(json!("undecryptable")),
        Some(RecordDetails::Open(details)) => Some(Value::Object(parse(sequence, details)?)),
    };
    line.extend(details.map(|details| ("details".to_owned(), details)));
    Ok(Value::Object(line))
}

/// Returns a record in the form of an access log, with exactly seven fields:
///
/// An `anomaly` has the action `ANOMALY` and its kind as `record_id`. An `execution`, which the tool-runner records for a call
/// in addition to the gateway, has the action `TOOL_EXECUTION`.
///
/// | field | of a call | of counted refusals | of an operator's change | of remembered conversations |
/// |---|---|---|---|---|
/// | `user` | token subject | null | the operator | token subject |
/// | `action` | `LLM_TOOL_CALL`, or the method | `REFUSED_REQUESTS` | such as `tool.disable` | such as `memory/get_context` |
/// | `table_name` | `LLM` | `LLM` | `LLM` | `Memory` |
/// | `record_id` | the tool or source, or else the requested name | null | what was changed | key of the conversation, or null |
/// | `timestamp` | RFC 3339, `Z` | the same | the same | the same |
/// | `is_phi_access` | whether health information was released | false | false | whether results of tools that release it were |
/// | `ip_address` | address of the client, or null | null | null | address of the client, or null |
pub fn access_view(sequence: u64, record: &[u8]) -> Result<Value, Error> {
    Ok(Value::Object(seven_fields(&parse(sequence, record)?)))
}

fn parse(sequence: u64, record: &[u8]) -> Result<Map<String, Value>, Error> {
    serde_json::from_slice(record).map_err(|error| {
        Error::Damaged(RecordDamage {
            sequence: Some(sequence),
            problem: error.to_string(),
            is_warning: false,
        })
    })
}

/// Name of the event for an access to remembered conversations.
const MEMORY_ACCESS: &str = "memory_access";

fn seven_fields(record: &Map<String, Value>) -> Map<String, Value> {
    let field = |name: &str| record.get(name).cloned().unwrap_or(Value::Null);
    let caller = || {
        let caller = record.get("caller");
        caller.map_or(Value::Null, |caller| caller["subject"].clone())
    };
    let event = record.get("event").and_then(Value::as_str);
    let (user, action, record_id) = match event {
        Some("anomaly") => (caller(), json!("ANOMALY"), field("anomaly")),
        Some("refusals") => (Value::Null, json!("REFUSED_REQUESTS"), Value::Null),
        Some("admin_change") => (field("actor"), field("action"), field("target")),
        Some(MEMORY_ACCESS) => (caller(), field("method"), field("conversation")),
        Some("execution") => (caller(), json!("TOOL_EXECUTION"), field("tool")),
        _ => {
            let tool = record.get("tool").cloned();
            (
                caller(),
                record
                    .get("method")
                    .cloned()
                    .unwrap_or_else(|| json!("LLM_TOOL_CALL")),
                tool.unwrap_or_else(|| field("requested_tool")),
            )
        }
    };
    let table = if event == Some(MEMORY_ACCESS) {
        "Memory"
    } else {
        "LLM"
    };
    let fields = [
        ("user", user),
        ("action", action),
        ("table_name", json!(table)),
        ("record_id", record_id),
        ("timestamp", field("time")),
        (
            "is_phi_access",
            json!(record.get("phi") == Some(&Value::Bool(true))),
        ),
        ("ip_address", field("client_ip")),
    ];
    fields
        .map(|(name, value)| (name.to_owned(), value))
        .into_iter()
        .collect()
}

#[cfg(test)]
mod tests {
    use wardgate_domain::Digest;

    use super::*;

    const OUTCOME: &[u8] = br#"{"call_id":"c","caller":{"issuer":"i","subject":"dr.yenji"},"client_ip":"192.0.2.7","event":"outcome","phi":true,"requested_tool":"get_patient_records","status":"ok","time":"2025-11-11T13:50:00.000042Z","tool":"get_medical_records","version":1,"violation":false}"#;
    const REFUSALS: &[u8] = br#"{"counts":[{"count":2,"reason":"token_expired"}],"event":"refusals","time":"2025-11-11T13:50:00.000042Z","version":1,"window_start":"2025-11-11T13:49:59.000000Z"}"#;
    const ADMIN_CHANGE: &[u8] = br#"{"action":"tool.disable","actor":"ada","event":"admin_change","scope":"role:Nurse","target":"get_shifts","time":"2025-11-11T13:50:00.000042Z","version":1}"#;

    const MEMORY: &[u8] = br#"{"call_id":"c","caller":{"issuer":"i","subject":"anna"},"client_ip":"192.0.2.7","conversation":"019a7318-2b40-7000-8000-000000000004","event":"memory_access","messages":3,"method":"memory/get_context","phi":true,"status":"ok","time":"2025-11-11T13:50:00.000042Z","version":1,"violation":false,"withheld":1}"#;

    #[test]
    fn a_call_is_seen_in_seven_fields() {
        assert_eq!(
            access_view(7, OUTCOME).unwrap(),
            json!({
                "user": "dr.yenji",
                "action": "LLM_TOOL_CALL",
                "table_name": "LLM",
                "record_id": "get_medical_records",
                "timestamp": "2025-11-11T13:50:00.000042Z",
                "is_phi_access": true,
                "ip_address": "192.0.2.7",
            })
        );
    }

    #[test]
    fn a_tool_that_does_not_exist_is_seen_by_the_name_asked_for() {
        let record = br#"{"caller":{"subject":"b"},"event":"outcome","requested_tool":"drop_all","time":"t"}"#;
        let view = access_view(0, record).unwrap();
        assert_eq!(view["record_id"], "drop_all");
        assert_eq!(view["is_phi_access"], false);
        assert_eq!(view["ip_address"], Value::Null);
    }

    #[test]
    fn another_method_is_seen_as_such() {
        let record = br#"{"caller":{"subject":"b"},"event":"outcome","method":"prompts/get","requested_tool":"greet","time":"t","tool":"guides"}"#;
        let view = access_view(0, record).unwrap();
        assert_eq!(view["action"], "prompts/get");
        assert_eq!(view["record_id"], "guides");
    }

    #[test]
    fn refusals_are_seen_as_such() {
        let view = access_view(0, REFUSALS).unwrap();
        assert_eq!(view["action"], "REFUSED_REQUESTS");
        assert_eq!(view["user"], Value::Null);
        assert_eq!(view.as_object().unwrap().len(), 7);
    }

    #[test]
    fn an_operators_change_is_seen_with_its_operator() {
        let view = access_view(0, ADMIN_CHANGE).unwrap();
        assert_eq!(view["user"], "ada");
        assert_eq!(view["action"], "tool.disable");
        assert_eq!(view["record_id"], "get_shifts");
        assert_eq!(view["is_phi_access"], false);
        assert_eq!(view.as_object().unwrap().len(), 7);
    }

    #[test]
    fn a_use_of_the_memory_is_seen_by_its_method_and_the_key_of_the_conversation() {
        assert_eq!(
            access_view(7, MEMORY).unwrap(),
            json!({
                "user": "anna",
                "action": "memory/get_context",
                "table_name": "Memory",
                "record_id": "019a7318-2b40-7000-8000-000000000004",
                "timestamp": "2025-11-11T13:50:00.000042Z",
                "is_phi_access": true,
                "ip_address": "192.0.2.7",
            })
        );
    }

    #[test]
    fn a_line_holds_position_view_and_record() {
        for record in [OUTCOME, ADMIN_CHANGE, MEMORY] {
            let stored = StoredRecord {
                sequence: 7,
                leaf_hash: Digest::compute(b"abc"),
                record: record.into(),
                details: None,
            };
            let line = record_line(&stored).unwrap();
            assert_eq!(line["sequence"], 7);
            assert_eq!(line["leaf_hash"], Digest::compute(b"abc").to_string());
            let holds = |part: Value| {
                part.as_object()
                    .unwrap()
                    .iter()
                    .all(|(name, value)| &line[name.as_str()] == value)
            };
            assert!(holds(access_view(7, record).unwrap()));
            assert!(holds(serde_json::from_slice(record).unwrap()));
        }
    }

    #[test]
    fn a_damaged_record_is_named() {
        assert!(
            access_view(7, b"{\"cut")
                .unwrap_err()
                .to_string()
                .contains("record 7: ")
        );
    }
}
