//! An event on its way to a security tool, and what it is made of.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use wardgate_domain::{Digest, Reason, Timestamp};

use crate::feed::SourceRecord;
use crate::record::{RecordFields, RefusalTally};
use crate::settings::RecordKind;

/// An event on its way to a security tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExportEvent {
    /// The same each time that it is sent, and of no other event.
    pub(crate) uid: String,
    pub(crate) sequence: u64,
    pub(crate) kind: &'static str,
    pub(crate) time: Timestamp,
    pub(crate) severity: EventSeverity,
    /// In the format of the export, without a line break.
    pub(crate) text: String,
}

/// How much an event matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventSeverity {
    /// What is allowed and works.
    Informational,
    /// What fails.
    Low,
    /// What is refused by policy, or whose end is not known.
    Medium,
    /// What somebody should look at.
    High,
}

/// A record, or one of the counts in it, and what it is told apart by.
#[derive(Debug)]
pub(crate) struct EventSource<'a> {
    pub(crate) record: &'a RecordFields<'a>,
    pub(crate) uid: &'a str,
    /// The name of the log.
    pub(crate) origin: &'a str,
    pub(crate) sequence: u64,
    pub(crate) leaf_hash: Digest,
    pub(crate) time: Timestamp,
    pub(crate) severity: EventSeverity,
    /// Of counted refusals.
    pub(crate) tally: Option<&'a RefusalTally<'a>>,
    /// The bytes of the record; of further events of the same record none.
    pub(crate) canonical: Option<&'a str>,
}

/// A record that is not understood, and what its event is told apart by.
#[derive(Debug)]
pub(crate) struct UnreadableSource<'a> {
    pub(crate) uid: &'a str,
    /// The name of the log.
    pub(crate) origin: &'a str,
    pub(crate) source: &'a SourceRecord,
    pub(crate) time: Timestamp,
    pub(crate) severity: EventSeverity,
    pub(crate) kind: &'static str,
}

impl UnreadableSource<'_> {
    /// The bytes as text: those that are none, as Base64 behind `base64:`.
    pub(crate) fn raw(&self) -> Cow<'_, str> {
        let bytes = &self.source.canonical;
        str::from_utf8(bytes).map_or_else(
            |_| format!("base64:{}", STANDARD.encode(bytes)).into(),
            Cow::from,
        )
    }
}

impl EventSource<'_> {
    /// Why it was refused or failed.
    pub(crate) fn reason(&self) -> &str {
        self.tally
            .map_or(&self.record.reason, |tally| &tally.reason)
    }

    /// The client's address.
    pub(crate) fn client_ip(&self) -> &str {
        self.tally
            .map_or(&self.record.client_ip, |tally| &tally.client_ip)
    }

    /// Who asked; empty where nobody knows.
    pub(crate) fn user(&self) -> &str {
        self.tally
            .map_or_else(|| self.record.user(), |tally| &tally.subject)
    }

    /// How many requests or uses it tells of.
    pub(crate) fn count(&self) -> Option<u64> {
        self.tally
            .map_or(self.record.count, |tally| Some(tally.count))
    }

    /// Whether it tells that a token or key was not accepted.
    pub(crate) fn is_refused_authentication(&self) -> bool {
        let reason = self.tally.and_then(|tally| Reason::of_word(&tally.reason));
        reason.is_some_and(|reason| reason.http_statuses().any(|status| status == 401))
    }

    /// Whether what was asked for was done; none where that is not known.
    pub(crate) fn succeeded(&self) -> Option<bool> {
        match (self.record.kind, &*self.record.status) {
            (RecordKind::Refusals, _) => Some(false),
            (RecordKind::Intent | RecordKind::Execution | RecordKind::Anomaly, _)
            | (_, "unknown") => None,
            (_, "ok" | "") => Some(true),
            _ => Some(false),
        }
    }
}
