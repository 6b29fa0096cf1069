//! What an operator sets.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::Error;

/// Settings of one export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportSettings {
    /// What it is called: how far it is, is kept under this name. At most 64 lower-case letters, digits and hyphens.
    pub name: String,
    /// What a record becomes.
    #[serde(default)]
    pub format: EventFormat,
    /// The kinds of records that are copied. None: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub records: Option<BTreeSet<RecordKind>>,
    /// Where a new export begins.
    #[serde(default)]
    pub start: StartPosition,
    /// A receiver of syslog over TLS. Exactly one of this and the two below is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub syslog: Option<SyslogSettings>,
    /// A server that takes batches of lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<HttpSettings>,
    /// A collector of OpenTelemetry logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub otlp: Option<HttpSettings>,
}

/// What a record becomes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EventFormat {
    /// One JSON object of the Open Cybersecurity Schema Framework.
    #[default]
    Ocsf,
    /// One line of the Common Event Format.
    Cef,
}

/// A kind of record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordKind {
    /// A call is about to run.
    Intent,
    /// A call ended.
    Outcome,
    /// A tool-runner of its own runs something.
    Execution,
    /// Requests that never became a call, counted.
    Refusals,
    /// An operator changes or reads something.
    AdminChange,
    /// A use of conversations.
    MemoryAccess,
    /// A caller behaves unusually.
    Anomaly,
}

impl RecordKind {
    /// Every kind.
    pub const ALL: [Self; 7] = [
        Self::Intent,
        Self::Outcome,
        Self::Execution,
        Self::Refusals,
        Self::AdminChange,
        Self::MemoryAccess,
        Self::Anomaly,
    ];

    /// As records spell it.
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

/// Where an export begins that was never begun.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StartPosition {
    /// With the first record that there is.
    #[default]
    First,
    /// With those that are yet to come.
    Now,
}

/// A receiver of syslog messages (RFC 5424) within TLS (RFC 5425).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SyslogSettings {
    /// `host:port`; the port that RFC 5425 gives is 6514. The host is what its certificate must name.
    pub address: String,
    /// The authorities of its certificate, PEM.
    pub ca_file: PathBuf,
    /// The certificate that is shown to it, PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_file: Option<PathBuf>,
    /// Its key, PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
    /// Whether a batch counts as taken when the connection ends without the `close_notify` of TLS.
    #[serde(default)]
    pub unclean_close: bool,
}

/// A server that is sent to over HTTP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpSettings {
    /// Where it is: https, or http on this machine.
    pub url: String,
    /// A file with the bearer token of each request; it is read for each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// A file with the secret that each request of a webhook is signed with: `whsec_` and Base64, as Standard Webhooks
    /// (standardwebhooks.com) have it. It is read for each request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signing_key_file: Option<PathBuf>,
    /// The authorities of its certificate, PEM. None: the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// The certificate that is shown to it, PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_file: Option<PathBuf>,
    /// Its key, PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
    /// The HTTP proxy on the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<String>,
    /// Whether it may have an address off the public internet.
    #[serde(default)]
    pub private_addresses: bool,
}

/// Where an export goes, of the three that it may name.
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

    /// Whether records of this kind are copied.
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
