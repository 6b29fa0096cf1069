//! OpenTelemetry logs: OTLP over HTTP, Protobuf (OTLP 1.7; the messages are those of `opentelemetry/proto` 1.7).

use prost::Message;
use wardgate_domain::Ambient;

use super::{HttpTarget, SendError};
use crate::Error;
use crate::event::{EventSeverity, ExportEvent};
use crate::settings::HttpSettings;

/// Path for logs, which is used if the URL has no path.
const LOGS: &str = "/v1/logs";

pub(super) fn open(export: &str, settings: &HttpSettings) -> Result<HttpTarget, Error> {
    let mut target = HttpTarget::open(export, settings)?;
    if target.url.path() == "/" {
        target.url.set_path(LOGS);
    }
    Ok(target)
}

/// Sends a batch. Returns how many events the collector rejected permanently.
pub(super) async fn send(
    target: &HttpTarget,
    events: &[ExportEvent],
    ambient: &Ambient,
) -> Result<u64, SendError> {
    let body = request(events, ambient).encode_to_vec();
    let answer = target.post("application/x-protobuf", body, events, ambient);
    let answer = ExportLogsResponse::decode(answer.await?.bytes().await?)?;
    let partial = answer.partial_success.unwrap_or_default();
    Ok(u64::try_from(partial.rejected_log_records).unwrap_or(0))
}

fn request(events: &[ExportEvent], ambient: &Ambient) -> ExportLogsRequest {
    let observed = nanos(ambient.now().as_micros());
    let records = events.iter().map(|event| {
        let (severity_number, severity_text) = severity(event.severity);
        LogRecord {
            time_unix_nano: nanos(event.time.as_micros()),
            severity_number,
            severity_text: severity_text.to_owned(),
            body: Some(AnyValue::text(&event.text)),
            attributes: vec![
                KeyValue::text("log.record.uid", &event.uid),
                KeyValue::number("wardgate.record.sequence", event.sequence),
            ],
            observed_time_unix_nano: observed,
            event_name: format!("wardgate.record.{}", event.kind),
        }
    });
    let scope_logs = ScopeLogs {
        log_records: records.collect(),
    };
    ExportLogsRequest {
        resource_logs: vec![ResourceLogs {
            resource: Some(Resource {
                attributes: vec![
                    KeyValue::text("service.name", "wardgate-audit"),
                    KeyValue::text("service.version", env!("CARGO_PKG_VERSION")),
                ],
            }),
            scope_logs: vec![scope_logs],
        }],
    }
}

fn nanos(micros: i64) -> u64 {
    u64::try_from(micros).unwrap_or(0).saturating_mul(1_000)
}

/// Returns the severity number and text of the log data model.
fn severity(severity: EventSeverity) -> (i32, &'static str) {
    match severity {
        EventSeverity::Informational => (9, "INFO"),
        EventSeverity::Low => (10, "INFO2"),
        EventSeverity::Medium => (13, "WARN"),
        EventSeverity::High => (17, "ERROR"),
    }
}

#[derive(Clone, PartialEq, Message)]
struct ExportLogsRequest {
    #[prost(message, repeated, tag = "1")]
    resource_logs: Vec<ResourceLogs>,
}

#[derive(Clone, PartialEq, Message)]
struct ExportLogsResponse {
    #[prost(message, optional, tag = "1")]
    partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, Message)]
struct PartialSuccess {
    #[prost(int64, tag = "1")]
    rejected_log_records: i64,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceLogs {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_logs: Vec<ScopeLogs>,
}

#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeLogs {
    #[prost(message, repeated, tag = "2")]
    log_records: Vec<LogRecord>,
}

#[derive(Clone, PartialEq, Message)]
struct LogRecord {
    #[prost(fixed64, tag = "1")]
    time_unix_nano: u64,
    #[prost(int32, tag = "2")]
    severity_number: i32,
    #[prost(string, tag = "3")]
    severity_text: String,
    #[prost(message, optional, tag = "5")]
    body: Option<AnyValue>,
    #[prost(message, repeated, tag = "6")]
    attributes: Vec<KeyValue>,
    #[prost(fixed64, tag = "11")]
    observed_time_unix_nano: u64,
    #[prost(string, tag = "12")]
    event_name: String,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

impl KeyValue {
    fn text(key: &str, value: &str) -> Self {
        Self {
            key: key.to_owned(),
            value: Some(AnyValue::text(value)),
        }
    }

    fn number(key: &str, value: u64) -> Self {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        Self {
            key: key.to_owned(),
            value: Some(AnyValue {
                kind: Some(AnyValueKind::Number(value)),
            }),
        }
    }
}

#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(oneof = "AnyValueKind", tags = "1, 3")]
    kind: Option<AnyValueKind>,
}

impl AnyValue {
    fn text(text: &str) -> Self {
        Self {
            kind: Some(AnyValueKind::Text(text.to_owned())),
        }
    }
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum AnyValueKind {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(int64, tag = "3")]
    Number(i64),
}
