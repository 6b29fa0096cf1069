//! Lines of the Common Event Format, version 0 (`ArcSight`, revision 26).

use std::net::IpAddr;

use crate::event::{EventSeverity, EventSource, UnreadableSource};
use crate::settings::RecordKind;

/// Returns an event as a line `CEF:0|Wardgate|Wardgate|VERSION|SIGNATURE|NAME|SEVERITY|EXTENSION`.
pub(crate) fn event(source: &EventSource<'_>) -> String {
    let record = source.record;
    let kind = record.kind.as_str();
    let signature = match (record.kind, &*record.status) {
        (RecordKind::Refusals, _) => format!("{kind}.{}", source.reason()),
        (RecordKind::AdminChange, _) => format!("{kind}.{}", record.action),
        (RecordKind::Anomaly, _) => format!("{kind}.{}", record.anomaly),
        (_, "") => kind.to_owned(),
        (_, status) => format!("{kind}.{status}"),
    };
    let mut line = format!(
        "CEF:0|Wardgate|Wardgate|{}|{}|{}|{}|",
        env!("CARGO_PKG_VERSION"),
        header(&signature),
        header(name(record.kind)),
        severity(source.severity),
    );
    let outcome = match source.success() {
        Some(true) => "success",
        Some(false) => "failure",
        None => "",
    };
    let time = source.time.as_micros().div_euclid(1_000).to_string();
    let sequence = source.sequence.to_string();
    let leaf_hash = source.leaf_hash.to_string();
    let number = |number: Option<u64>| number.map(|number| number.to_string()).unwrap_or_default();
    let count = number(source.count());
    let (rows, withheld) = (
        number(record.rows.or(record.messages)),
        number(record.rows_withheld.or(record.withheld)),
    );
    let roles = record.caller.roles.join(" ");
    let operation = if record.kind == RecordKind::Refusals {
        ""
    } else {
        record.operation()
    };
    // IPv6 addresses have a separate key.
    let address = source.client_ip();
    let is_v6 = matches!(address.parse(), Ok(IpAddr::V6(_)));
    let (v4, v6) = if is_v6 { ("", address) } else { (address, "") };
    let phi = record.phi.map(|phi| phi.to_string()).unwrap_or_default();
    let fields = [
        ("rt", None, time.as_str()),
        ("externalId", None, source.uid),
        ("cat", None, kind),
        ("act", None, operation),
        ("outcome", None, outcome),
        ("reason", None, source.reason()),
        ("suser", None, source.user()),
        ("spriv", None, roles.as_str()),
        ("src", None, v4),
        ("c6a2", Some("Source IPv6 Address"), v6),
        ("app", None, &*record.protocol),
        ("cnt", None, count.as_str()),
        ("cs1", Some("Resource"), record.object()),
        ("cs2", Some("Call id"), &*record.call_id),
        ("cs3", Some("Tenant"), &*record.caller.tenant),
        ("cs4", Some("Decision id"), &*record.decision.id),
        ("cs5", Some("Health information"), phi.as_str()),
        ("cs6", Some("Leaf hash"), leaf_hash.as_str()),
        ("cn1", Some("Sequence"), sequence.as_str()),
        ("cn2", Some("Rows released"), rows.as_str()),
        ("cn3", Some("Rows withheld"), withheld.as_str()),
    ];
    let mut space = "";
    for (key, label, value) in fields.into_iter().filter(|(.., value)| !value.is_empty()) {
        line.push_str(&format!("{space}{key}={}", extension(value)));
        if let Some(label) = label {
            line.push_str(&format!(" {key}Label={label}"));
        }
        space = " ";
    }
    line
}

/// Returns the event of a record that cannot be parsed, as a line.
pub(crate) fn unreadable(event: &UnreadableSource<'_>) -> String {
    format!(
        "CEF:0|Wardgate|Wardgate|{version}|{kind}|Record not understood|{severity}|rt={time} externalId={uid} cat={kind} \
         cs6={leaf_hash} cs6Label=Leaf hash cn1={sequence} cn1Label=Sequence rawEvent={raw}",
        version = env!("CARGO_PKG_VERSION"),
        kind = event.kind,
        severity = severity(event.severity),
        time = event.time.as_micros().div_euclid(1_000),
        uid = extension(event.uid),
        leaf_hash = event.source.leaf_hash,
        sequence = event.source.sequence,
        raw = extension(&event.raw()),
    )
}

fn name(kind: RecordKind) -> &'static str {
    match kind {
        RecordKind::Intent => "Call begins",
        RecordKind::Outcome => "Call ended",
        RecordKind::Execution => "Tool runs",
        RecordKind::Refusals => "Requests refused",
        RecordKind::AdminChange => "Operator's change or reading",
        RecordKind::MemoryAccess => "Use of conversations",
        RecordKind::Anomaly => "Unusual behaviour",
    }
}

/// Returns the severity on the scale from 0 to 10.
fn severity(severity: EventSeverity) -> u32 {
    match severity {
        EventSeverity::Informational => 1,
        EventSeverity::Low => 4,
        EventSeverity::Medium => 6,
        EventSeverity::High => 8,
    }
}

fn header(text: &str) -> String {
    escape(text, '|')
}

fn extension(text: &str) -> String {
    escape(text, '=')
}

/// Escapes each backslash and each `special` with a backslash, and replaces line breaks by `\n` and `\r`.
fn escape(text: &str, special: char) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => escaped.push_str("\\n"),
            '\r' => escaped.push_str("\\r"),
            c if c == '\\' || c == special => escaped.extend(['\\', c]),
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}
