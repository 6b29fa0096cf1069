//! Converts records to events: one event per record, or one per tally of a record of refusals.

use wardgate_domain::Timestamp;

use crate::event::{EventSeverity, EventSource, ExportEvent, UnreadableSource};
use crate::feed::SourceRecord;
use crate::record::{RecordFields, RefusalTally};
use crate::settings::{EventFormat, ExportSettings, RecordKind};
use crate::{cef, ocsf};

/// The kind of an event about a record that cannot be parsed.
const UNREADABLE: &str = "unreadable";

/// The result of converting a record.
#[derive(Debug)]
pub(crate) struct ConvertedRecord {
    /// The events, in order. Empty if the export does not include the record.
    pub(crate) events: Vec<ExportEvent>,
    /// Whether the record cannot be parsed. Its event then contains only its bytes.
    pub(crate) is_unreadable: bool,
}

/// Converts a record to events. A record that cannot be parsed is always exported, whatever kinds the export includes; the time
/// of its event is `now`.
pub(crate) fn convert(
    export: &ExportSettings,
    origin: &str,
    source: &SourceRecord,
    now: Timestamp,
) -> ConvertedRecord {
    let canonical = str::from_utf8(&source.canonical).ok();
    let record = canonical.and_then(|canonical| {
        let record = RecordFields::parse(canonical.as_bytes())?;
        let time = record.time.parse().ok()?;
        Some((canonical, record, time))
    });
    match record {
        Some((canonical, record, time)) => ConvertedRecord {
            events: events(export, origin, source, canonical, &record, time),
            is_unreadable: false,
        },
        None => ConvertedRecord {
            events: vec![unreadable(export, origin, source, now)],
            is_unreadable: true,
        },
    }
}

fn unreadable(
    export: &ExportSettings,
    origin: &str,
    source: &SourceRecord,
    time: Timestamp,
) -> ExportEvent {
    let uid = format!("{origin}#{}", source.sequence);
    let severity = EventSeverity::Medium;
    let event = UnreadableSource {
        uid: &uid,
        origin,
        source,
        time,
        severity,
        kind: UNREADABLE,
    };
    let text = match export.format {
        EventFormat::Ocsf => ocsf::unreadable(&event),
        EventFormat::Cef => cef::unreadable(&event),
    };
    ExportEvent {
        uid,
        sequence: source.sequence,
        kind: UNREADABLE,
        time,
        severity,
        text,
    }
}

fn events(
    export: &ExportSettings,
    origin: &str,
    source: &SourceRecord,
    canonical: &str,
    record: &RecordFields<'_>,
    time: Timestamp,
) -> Vec<ExportEvent> {
    if !export.includes(record.kind) {
        return Vec::new();
    }
    let uid = format!("{origin}#{}", source.sequence);
    let whole = (uid.clone(), None);
    let parts: Vec<(String, Option<&RefusalTally<'_>>)> = match record.kind {
        RecordKind::Refusals if !record.counts.is_empty() => record
            .counts
            .iter()
            .enumerate()
            .map(|(n, tally)| (format!("{uid}.{n}"), Some(tally)))
            .collect(),
        _ => vec![whole],
    };
    let events = parts.iter().enumerate().map(|(n, (uid, tally))| {
        let severity = severity(record);
        let event = EventSource {
            record,
            uid,
            origin,
            sequence: source.sequence,
            leaf_hash: source.leaf_hash,
            time,
            severity,
            tally: *tally,
            canonical: (n == 0).then_some(canonical),
        };
        ExportEvent {
            uid: uid.clone(),
            sequence: source.sequence,
            kind: record.kind.as_str(),
            time,
            severity,
            text: match export.format {
                EventFormat::Ocsf => ocsf::event(&event),
                EventFormat::Cef => cef::event(&event),
            },
        }
    });
    events.collect()
}

fn severity(record: &RecordFields<'_>) -> EventSeverity {
    if record.violation || matches!(&*record.status, "denied" | "unknown") {
        return EventSeverity::Medium;
    }
    match (record.kind, &*record.status) {
        (RecordKind::Anomaly, _) => EventSeverity::High,
        (RecordKind::Refusals, _) => EventSeverity::Low,
        (_, "" | "ok") => EventSeverity::Informational,
        _ => EventSeverity::Low,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use wardgate_domain::Digest;

    use super::*;
    use crate::settings::StartPosition;

    const OUTCOME: &str = r#"{"arguments_hmac":"a1","call_id":"019a","caller":{"issuer":"https://issuer.example","roles":["Doctor"],"subject":"dr.yenji","tenant":"north","token_id":"t-1"},"client_ip":"192.0.2.7","decision":{"id":"d-1","policies":["doctors"]},"duration_us":1250,"event":"outcome","phi":true,"protocol":"2026-07-28","requested_tool":"get_patient_records","rows":12,"rows_withheld":3,"status":"ok","time":"2025-11-11T13:50:00.000042Z","tool":"get_medical_records","version":1,"violation":false}"#;
    const DENIED: &str = r#"{"call_id":"019b","caller":{"issuer":"i","subject":"b=c|d"},"client_ip":"2001:db8::7","event":"outcome","reason":"not_permitted","requested_tool":"drop\\all","status":"denied","time":"2025-11-11T13:50:00.000042Z","version":1,"violation":true}"#;
    const REFUSALS: &str = r#"{"counts":[{"client_ip":"192.0.2.9","count":7,"reason":"token_expired"},{"count":2,"reason":"rate_limited","subject":"ada"}],"event":"refusals","time":"2025-11-11T13:50:00.000042Z","version":1,"window_start":"2025-11-11T13:49:59.000000Z"}"#;
    const CHANGE: &str = r#"{"action":"tool.disable","actor":"ada","event":"admin_change","scope":"role:Nurse","target":"get_shifts","time":"2025-11-11T13:50:00.000042Z","version":1}"#;
    const MEMORY: &str = r#"{"call_id":"019c","caller":{"issuer":"i","subject":"anna"},"client_ip":"192.0.2.7","conversation":"019d","event":"memory_access","messages":3,"method":"memory/get_context","status":"ok","time":"2025-11-11T13:50:00.000042Z","version":1,"withheld":1}"#;
    const EXECUTION: &str = r#"{"call_id":"019e","caller":{"issuer":"i","subject":"anna"},"event":"execution","time":"2025-11-11T13:50:00.000042Z","tool":"get_shifts","version":1}"#;

    const ANOMALY: &str = r#"{"anomaly":"watched_policy","caller":{"issuer":"i","subject":"anna","tenant":"north"},"client_ip":"192.0.2.7","count":1,"event":"anomaly","last_sequence":6,"policy":"break-glass-reads","threshold":1,"time":"2025-11-11T13:50:00.000042Z","version":1,"within_seconds":900}"#;

    fn convert_text(format: EventFormat, record: &str) -> Vec<ExportEvent> {
        let conversion = convert_bytes(format, record.as_bytes());
        assert!(!conversion.is_unreadable);
        conversion.events
    }

    fn convert_bytes(format: EventFormat, record: &[u8]) -> ConvertedRecord {
        let export = ExportSettings {
            name: "soc".to_owned(),
            format,
            records: None,
            start: StartPosition::First,
            syslog: None,
            webhook: None,
            otlp: None,
        };
        let source = SourceRecord {
            sequence: 7,
            leaf_hash: Digest::compute(b"leaf"),
            canonical: record.to_vec(),
        };
        let now = Timestamp::from_micros(1_762_869_000_000_000);
        convert(&export, "example.com/audit", &source, now)
    }

    fn ocsf(record: &str) -> Vec<Value> {
        let events = convert_text(EventFormat::Ocsf, record);
        events
            .iter()
            .map(|event| serde_json::from_str(&event.text).unwrap())
            .collect()
    }

    fn cef(record: &str) -> Vec<String> {
        convert_text(EventFormat::Cef, record)
            .into_iter()
            .map(|event| event.text)
            .collect()
    }

    #[test]
    fn a_call_is_an_api_activity() {
        let [event] = &ocsf(OUTCOME)[..] else {
            panic!("one event")
        };
        assert_eq!(event["class_uid"], 6_003);
        assert_eq!(event["type_uid"], 600_399);
        assert_eq!(event["time"], 1_762_869_000_000_u64);
        assert_eq!(event["status_id"], 1);
        assert_eq!(event["severity_id"], 1);
        assert_eq!(event["metadata"]["uid"], "example.com/audit#7");
        assert_eq!(
            event["metadata"]["original_event_uid"],
            Digest::compute(b"leaf").to_string()
        );
        assert_eq!(event["actor"]["user"]["name"], "dr.yenji");
        assert_eq!(
            event["actor"]["authorizations"][0]["policy"]["name"],
            "doctors"
        );
        assert_eq!(event["api"]["operation"], "tools/call");
        assert_eq!(event["resources"][0]["name"], "get_medical_records");
        assert_eq!(event["src_endpoint"]["ip"], "192.0.2.7");
        assert_eq!(event["raw_data"], OUTCOME);
        assert_eq!(event.get("status_detail"), None);
    }

    #[test]
    fn unusual_behaviour_is_a_finding_that_matters_most() {
        let [event] = &ocsf(ANOMALY)[..] else {
            panic!("one event")
        };
        assert_eq!(event["type_uid"], 200_401);
        assert_eq!(event["severity_id"], 4);
        assert_eq!(event["finding_info"]["title"], "watched_policy");
        let evidence = &event["evidences"][0];
        assert_eq!(evidence["actor"]["user"]["name"], "anna");
        assert_eq!(evidence["src_endpoint"]["ip"], "192.0.2.7");
        assert_eq!(event["unmapped"]["policy"], "break-glass-reads");
        let line = &cef(ANOMALY)[0];
        let head = "|anomaly.watched_policy|Unusual behaviour|8|";
        assert!(line.contains(head), "{line}");
        assert!(line.contains(" cs1=break-glass-reads "), "{line}");
    }

    #[test]
    fn a_refused_call_matters_more_than_one_that_was_allowed() {
        let denied = &ocsf(DENIED)[0];
        assert_eq!(denied["severity_id"], 3);
        assert_eq!(denied["status_id"], 2);
        assert_eq!(denied["status_detail"], "not_permitted");
    }

    #[test]
    fn each_count_of_refusals_is_an_event_of_its_own() {
        let [expired, limited] = &ocsf(REFUSALS)[..] else {
            panic!("two events")
        };
        assert_eq!(expired["class_uid"], 3_002);
        assert_eq!(expired["count"], 7);
        assert_eq!(expired["metadata"]["uid"], "example.com/audit#7.0");
        assert_eq!(expired["src_endpoint"]["ip"], "192.0.2.9");
        assert_eq!(expired["start_time"], 1_762_868_999_000_u64);
        assert_eq!(limited["class_uid"], 6_003);
        assert_eq!(limited["metadata"]["uid"], "example.com/audit#7.1");
        assert_eq!(limited["actor"]["user"]["name"], "ada");
        assert_eq!(limited.get("raw_data"), None);
    }

    #[test]
    fn the_others_have_their_classes() {
        let change = &ocsf(CHANGE)[0];
        assert_eq!(change["class_uid"], 3_004);
        assert_eq!(change["activity_id"], 9);
        assert_eq!(change["entity"]["name"], "get_shifts");
        assert_eq!(change["actor"]["user"]["name"], "ada");
        let memory = &ocsf(MEMORY)[0];
        assert_eq!(memory["class_uid"], 6_003);
        assert_eq!(memory["api"]["operation"], "memory/get_context");
        let execution = &ocsf(EXECUTION)[0];
        assert_eq!(execution["src_endpoint"]["svc_name"], "wardgate");
        assert_eq!(execution["status_id"], 0);
    }

    #[test]
    fn what_a_client_typed_ends_no_field_of_a_line() {
        let [line] = &cef(DENIED)[..] else {
            panic!("one event")
        };
        assert!(line.starts_with("CEF:0|Wardgate|Wardgate|"), "{line}");
        assert!(
            line.contains("|outcome.denied|Call ended|6|rt=1762869000000 "),
            "{line}"
        );
        assert!(line.contains(" suser=b\\=c|d "), "{line}");
        assert!(
            line.contains(" cs1=drop\\\\all cs1Label=Resource "),
            "{line}"
        );
        assert!(
            line.contains(" c6a2=2001:db8::7 c6a2Label=Source IPv6 Address "),
            "{line}"
        );
        assert!(line.contains("externalId=example.com/audit#7 "), "{line}");
        assert!(!line.contains(" src="), "{line}");
        let counts = cef(REFUSALS);
        assert!(
            counts[0].contains("|refusals.token_expired|Requests refused|4|"),
            "{}",
            counts[0]
        );
        assert!(counts[0].contains(" src=192.0.2.9 ") && counts[0].contains(" cnt=7 "));
    }

    #[test]
    fn a_record_that_is_not_understood_is_an_event_with_its_bytes() {
        let other = r#"{"event":"a=b","time":"2025-11-11T13:50:00.000042Z"}"#;
        let timeless = r#"{"event":"outcome","time":"t"}"#;
        for record in ["{", other, timeless] {
            let ConvertedRecord {
                events,
                is_unreadable: true,
            } = convert_bytes(EventFormat::Ocsf, record.as_bytes())
            else {
                panic!("{record} is understood")
            };
            let [event] = &events[..] else {
                panic!("one event")
            };
            assert_eq!((event.kind, event.sequence), ("unreadable", 7));
            let event: Value = serde_json::from_str(&event.text).unwrap();
            assert_eq!(event["class_uid"], 0);
            assert_eq!(event["time"], 1_762_869_000_000_u64);
            assert_eq!(event["metadata"]["uid"], "example.com/audit#7");
            assert_eq!(event["metadata"]["event_code"], "unreadable");
            assert_eq!(event["raw_data"], record);
        }
        let events = convert_bytes(EventFormat::Ocsf, b"\xff\x00").events;
        let event: Value = serde_json::from_str(&events[0].text).unwrap();
        assert_eq!(event["raw_data"], "base64:/wA=");
        let line = &convert_bytes(EventFormat::Cef, other.as_bytes()).events[0].text;
        assert!(
            line.contains("|unreadable|Record not understood|6|rt=1762869000000 "),
            "{line}"
        );
        assert!(line.contains(r#" rawEvent={"event":"a\=b","#), "{line}");
    }
}
