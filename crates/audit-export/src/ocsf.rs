//! Events of the Open Cybersecurity Schema Framework, version 1.8.0 (<https://schema.ocsf.io/1.8.0>).
//!
//! | record | class |
//! |---|---|
//! | call, access to conversations, refused request | API Activity (6003) |
//! | request with a refused token | Authentication (3002) |
//! | operator's change or read | Entity Management (3004) |
//! | unusual behaviour of a caller | Detection Finding (2004) |
//! | record that cannot be parsed | Base Event (0) |

use serde_json::{Map, Value, json};
use wardgate_domain::Timestamp;

use crate::event::{EventSeverity, EventSource, UnreadableSource};
use crate::settings::RecordKind;

const VERSION: &str = "1.8.0";

/// The name of an unknown user.
const UNKNOWN: &str = "unknown";

/// The class and the activity of an event.
struct OcsfActivity {
    class: u32,
    id: u32,
    name: String,
}

/// Returns an event as a JSON object.
pub(crate) fn event(source: &EventSource<'_>) -> String {
    let record = source.record;
    let activity = activity(source);
    let (status_id, status) = match source.success() {
        Some(true) => (1, "Success"),
        Some(false) => (2, "Failure"),
        None => (0, "Unknown"),
    };
    let mut event = json!({
        "activity_id": activity.id,
        "activity_name": activity.name,
        "category_uid": activity.class / 1_000,
        "class_uid": activity.class,
        "type_uid": u64::from(activity.class) * 100 + u64::from(activity.id),
        "time": milliseconds(source.time),
        "severity_id": severity_id(source.severity),
        "status_id": status_id,
        "status": status,
        "status_code": text(&record.status),
        "status_detail": text(source.reason()),
        "start_time": record.window_start.parse().ok().map(milliseconds),
        "duration": record.duration_us.map(|micros| micros / 1_000),
        "metadata": {
            "version": VERSION,
            "product": product(),
            "uid": source.uid,
            "sequence": source.sequence,
            "log_name": source.origin,
            "event_code": record.kind.as_str(),
            "original_event_uid": source.leaf_hash.to_string(),
            "original_time": record.time,
            "correlation_uid": text(&record.call_id),
            "tenant_uid": text(&record.caller.tenant),
        },
        "raw_data": source.canonical,
        "unmapped": {
            "decision_id": text(&record.decision.id),
            "rows": record.rows,
            "rows_withheld": record.rows_withheld,
            "fields_redacted": record.fields_redacted,
            "phi": record.phi,
            "messages": record.messages,
            "messages_withheld": record.withheld,
            "scope": text(&record.scope),
            "policy": text(&record.policy),
        },
    });
    let of_class = match activity.class {
        3_002 => authentication(source),
        3_004 => entity_management(source),
        2_004 => detection_finding(source),
        _ => api_activity(source),
    };
    if let (Value::Object(event), Value::Object(of_class)) = (&mut event, of_class) {
        event.extend(of_class);
    }
    remove_empty(&mut event);
    event.to_string()
}

/// Returns the event of a record that cannot be parsed, as a JSON object.
pub(crate) fn unreadable(event: &UnreadableSource<'_>) -> String {
    let event = json!({
        "activity_id": 99,
        "activity_name": "Unreadable",
        "category_uid": 0,
        "class_uid": 0,
        "type_uid": 99,
        "time": milliseconds(event.time),
        "severity_id": severity_id(event.severity),
        "message": "A record that this version does not support",
        "metadata": {
            "version": VERSION,
            "product": product(),
            "uid": event.uid,
            "sequence": event.source.sequence,
            "log_name": event.origin,
            "event_code": event.kind,
            "original_event_uid": event.source.leaf_hash.to_string(),
        },
        "raw_data": event.raw(),
    });
    event.to_string()
}

fn product() -> Value {
    json!({
        "name": "Wardgate",
        "vendor_name": "Wardgate",
        "version": env!("CARGO_PKG_VERSION"),
    })
}

fn activity(source: &EventSource<'_>) -> OcsfActivity {
    let record = source.record;
    let other = |class, name: &str| OcsfActivity {
        class,
        id: 99,
        name: name.to_owned(),
    };
    match record.kind {
        RecordKind::Refusals if source.is_refused_authentication() => OcsfActivity {
            class: 3_002,
            id: 1,
            name: "Logon".to_owned(),
        },
        RecordKind::Refusals => other(6_003, "Refused"),
        RecordKind::Anomaly => OcsfActivity {
            class: 2_004,
            id: 1,
            name: "Create".to_owned(),
        },
        RecordKind::AdminChange => {
            let verb = record.action.rsplit('.').next().unwrap_or_default();
            match verb {
                "enable" => OcsfActivity {
                    class: 3_004,
                    id: 8,
                    name: "Enable".to_owned(),
                },
                "disable" => OcsfActivity {
                    class: 3_004,
                    id: 9,
                    name: "Disable".to_owned(),
                },
                _ => other(3_004, &record.action),
            }
        }
        _ => match record.operation() {
            operation @ ("resources/read" | "prompts/get" | "record/read") => OcsfActivity {
                class: 6_003,
                id: 2,
                name: operation.to_owned(),
            },
            operation => other(6_003, operation),
        },
    }
}

fn authentication(source: &EventSource<'_>) -> Value {
    json!({
        "user": { "name": text(source.user()).unwrap_or(UNKNOWN) },
        "service": { "name": "wardgate" },
        "auth_protocol_id": 6,
        "auth_protocol": "OAUTH 2.0",
        "src_endpoint": { "ip": text(source.client_ip()) },
        "count": source.count(),
    })
}

fn entity_management(source: &EventSource<'_>) -> Value {
    let record = source.record;
    let kind = record.action.split('.').next();
    json!({
        "actor": actor(source),
        "entity": { "name": text(&record.target).unwrap_or(UNKNOWN), "type": kind },
    })
}

fn detection_finding(source: &EventSource<'_>) -> Value {
    let record = source.record;
    let mut evidence = json!({
        "actor": { "user": { "name": text(source.user()) } },
        "src_endpoint": { "ip": text(source.client_ip()) },
    });
    remove_empty(&mut evidence);
    json!({
        // New: not investigated yet.
        "status_id": 1,
        "status": "New",
        "finding_info": {
            "uid": source.uid,
            "title": record.anomaly,
            "types": [record.anomaly],
            "created_time": milliseconds(source.time),
        },
        "evidences": [evidence],
        "count": source.count(),
    })
}

fn api_activity(source: &EventSource<'_>) -> Value {
    let record = source.record;
    let object = record.object();
    let endpoint = match text(source.client_ip()) {
        Some(ip) => json!({ "ip": ip }),
        // An execution is recorded by the tool-runner on behalf of the gateway and has no client address.
        None => json!({ "svc_name": "wardgate" }),
    };
    let resource = (!object.is_empty()).then(|| json!([{ "name": object }]));
    json!({
        "actor": actor(source),
        "api": {
            "operation": if record.kind == RecordKind::Refusals { "request" } else { record.operation() },
            "service": { "name": "wardgate" },
            "version": text(&record.protocol),
            "request": text(&record.call_id).map(|id| json!({ "uid": id })),
        },
        "src_endpoint": endpoint,
        "resources": resource,
        "count": source.count(),
    })
}

fn actor(source: &EventSource<'_>) -> Value {
    let caller = &source.record.caller;
    let groups: Vec<_> = caller
        .roles
        .iter()
        .map(|role| json!({ "name": role }))
        .collect();
    let decision = if &*source.record.status == "denied" {
        "denied"
    } else {
        "allowed"
    };
    let policies = source.record.decision.policies.iter();
    let policies: Vec<_> = policies
        .map(|policy| json!({ "decision": decision, "policy": { "name": policy } }))
        .collect();
    json!({
        "user": { "name": text(source.user()).unwrap_or(UNKNOWN), "groups": groups },
        "session": { "uid": text(&caller.token_id), "issuer": text(&caller.issuer) },
        "authorizations": policies,
    })
}

fn severity_id(severity: EventSeverity) -> u32 {
    match severity {
        EventSeverity::Informational => 1,
        EventSeverity::Low => 2,
        EventSeverity::Medium => 3,
        EventSeverity::High => 4,
    }
}

fn milliseconds(time: Timestamp) -> i64 {
    time.as_micros().div_euclid(1_000)
}

fn text(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// Removes all empty members.
fn remove_empty(value: &mut Value) {
    if let Value::Object(members) = value {
        members.values_mut().for_each(remove_empty);
        members.retain(|_, member| match member {
            Value::Null => false,
            Value::Array(items) => !items.is_empty(),
            Value::Object(members) => !Map::is_empty(members),
            _ => true,
        });
    }
}
