//! The configuration of exports.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::Error;

/// The configuration of one export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportSettings {
    /// The name of the export, under which its position is stored: at most 64 lower-case letters, digits and hyphens.
    pub name: String,
    /// The format of events.
    #[serde(default)]
    pub format: EventFormat,
    /// The kinds of records to export. `None` means all kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub records: Option<BTreeSet<RecordKind>>,
    /// The position at which a new export starts.
    #[serde(default)]
    pub start: StartPosition,
    /// A receiver of syslog over TLS. Exactly one of `syslog`, `webhook` and `otlp` must be set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub syslog: Option<SyslogSettings>,
    /// A server that accepts batches of lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<HttpSettings>,
    /// A collector of OpenTelemetry logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub otlp: Option<HttpSettings>,
}

/// The format of events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EventFormat {
    /// One JSON object of the Open Cybersecurity Schema Framework.
    #[default]
    Ocsf,
    /// One line of the Common Event Format.
    Cef,
}

/// The kind of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordKind {
    /// A call is about to run.
    Intent,
    /// A call has ended.
    Outcome,
    /// A separate tool-runner runs a tool.
    Execution,
    /// Counts of requests that were refused before they became a call.
    Refusals,
    /// An operator changes or reads something.
    AdminChange,
    /// An access to conversations.
    MemoryAccess,
    /// A caller behaves unusually.
    Anomaly,
}

impl RecordKind {
    /// All kinds.
    pub const ALL: [Self; 7] = [
        Self::Intent,
        Self::Outcome,
        Self::Execution,
        Self::Refusals,
        Self::AdminChange,
        Self::MemoryAccess,
        Self::Anomaly,
    ];

    /// Returns the kind as written in records.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Intent => "intent",
            Self::Outcome => "outcome",
            Self::Execution => "execution",
            Self::Refusals => "refusals",
            Self::AdminChange => "admin_change",
            Self::MemoryAccess => "memory_access",
            Self::Anomaly => "anomaly",
        }
    }
}

/// The position at which an export starts that was never started before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StartPosition {
    /// The first existing record.
    #[default]
    First,
    /// The next record that is added.
    Now,
}

/// A receiver of syslog messages (RFC 5424) over TLS (RFC 5425).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SyslogSettings {
    /// The address as `host:port`. RFC 5425 assigns port 6514. The receiver's certificate must be valid for the host.
    pub address: String,
    /// The trusted authorities of the receiver's certificate, in PEM format.
    pub ca_file: PathBuf,
    /// The client certificate, in PEM format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_file: Option<PathBuf>,
    /// The key of the client certificate, in PEM format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
    /// Whether a batch counts as received if the connection ends without the `close_notify` of TLS.
    #[serde(default)]
    pub unclean_close: bool,
}

/// A server that receives events over HTTP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpSettings {
    /// The URL: https, or http for this machine.
    pub url: String,
    /// A file with the bearer token. It is read for each request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// A file with the secret that signs the requests of a webhook: `whsec_` and Base64, as defined by Standard Webhooks
    /// (standardwebhooks.com). It is read for each request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signing_key_file: Option<PathBuf>,
    /// The trusted authorities of the server's certificate, in PEM format. `None` means the system's authorities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// The client certificate, in PEM format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_file: Option<PathBuf>,
    /// The key of the client certificate, in PEM format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
    /// The URL of an HTTP proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<String>,
    /// Whether the server may have an address that is not on the public internet.
    #[serde(default)]
    pub private_addresses: bool,
}

/// The destination of an export.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TransportSettings<'a> {
    Syslog(&'a SyslogSettings),
    Webhook(&'a HttpSettings),
    Otlp(&'a HttpSettings),
}

impl ExportSettings {
    pub(crate) fn transport(&self) -> Result<TransportSettings<'_>, Error> {
        match (&self.syslog, &self.webhook, &self.otlp) {
            (Some(syslog), None, None) => Ok(TransportSettings::Syslog(syslog)),
            (None, Some(webhook), None) => Ok(TransportSettings::Webhook(webhook)),
            (None, None, Some(otlp)) => Ok(TransportSettings::Otlp(otlp)),
            _ => Err(Error::Transport(self.name.clone())),
        }
    }

    /// Returns whether records of this kind are exported.
    pub(crate) fn includes(&self, kind: RecordKind) -> bool {
        let wanted = self.records.as_ref();
        wanted.is_none_or(|wanted| wanted.contains(&kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_copies_all_kinds_unless_it_names_some() {
        let read = |records: &str| -> ExportSettings {
            serde_json::from_str(&format!(r#"{{"name":"a"{records}}}"#)).unwrap()
        };
        assert!(RecordKind::ALL.iter().all(|kind| read("").includes(*kind)));
        let some = read(r#","records":["refusals","outcome"]"#);
        assert!(some.includes(RecordKind::Outcome) && !some.includes(RecordKind::Intent));
    }
}
