//! Events that are sent to a security tool, and their sources.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use wardgate_domain::{Digest, Reason, Timestamp};

use crate::feed::SourceRecord;
use crate::record::{RecordFields, RefusalTally};
use crate::settings::RecordKind;

/// An event that is sent to a security tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExportEvent {
    /// The unique id of the event, which is the same each time the event is sent.
    pub(crate) uid: String,
    pub(crate) sequence: u64,
    pub(crate) kind: &'static str,
    pub(crate) time: Timestamp,
    pub(crate) severity: EventSeverity,
    /// The event in the format of the export, without line breaks.
    pub(crate) text: String,
}

/// The severity of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventSeverity {
    /// A permitted operation that succeeded.
    Informational,
    /// A failure.
    Low,
    /// An operation that a policy refused, or whose outcome is unknown.
    Medium,
    /// Something that should be investigated.
    High,
}

/// The source of an event: a record, or one of the tallies of a record.
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
    /// The tally of refusals, or `None` if the event is about the whole record.
    pub(crate) tally: Option<&'a RefusalTally<'a>>,
    /// The bytes of the record, or `None` for all but the first event of a record.
    pub(crate) canonical: Option<&'a str>,
}

/// The source of an event about a record that cannot be parsed.
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
    /// Returns the bytes as text, or in Base64 after `base64:` if they are not UTF-8.
    pub(crate) fn raw(&self) -> Cow<'_, str> {
        let bytes = &self.source.canonical;
        str::from_utf8(bytes).map_or_else(
            |_| format!("base64:{}", STANDARD.encode(bytes)).into(),
            Cow::from,
        )
    }
}

impl EventSource<'_> {
    /// Returns the reason for a refusal or a failure.
    pub(crate) fn reason(&self) -> &str {
        self.tally
            .map_or(&self.record.reason, |tally| &tally.reason)
    }

    /// Returns the IP address of the client.
    pub(crate) fn client_ip(&self) -> &str {
        self.tally
            .map_or(&self.record.client_ip, |tally| &tally.client_ip)
    }

    /// Returns the user, or an empty string if the user is unknown.
    pub(crate) fn user(&self) -> &str {
        self.tally
            .map_or_else(|| self.record.user(), |tally| &tally.subject)
    }

    /// Returns the number of requests or occurrences that the event covers.
    pub(crate) fn count(&self) -> Option<u64> {
        self.tally
            .map_or(self.record.count, |tally| Some(tally.count))
    }

    /// Returns whether the event is about a token or key that was not accepted.
    pub(crate) fn is_refused_authentication(&self) -> bool {
        let reason = self.tally.and_then(|tally| Reason::of_word(&tally.reason));
        reason.is_some_and(|reason| reason.http_statuses().any(|status| status == 401))
    }

    /// Returns whether the operation succeeded, or `None` if that is unknown.
    pub(crate) fn success(&self) -> Option<bool> {
        match (self.record.kind, &*self.record.status) {
            (RecordKind::Refusals, _) => Some(false),
            (RecordKind::Intent | RecordKind::Execution | RecordKind::Anomaly, _)
            | (_, "unknown") => None,
            (_, "ok" | "") => Some(true),
            _ => Some(false),
        }
    }
}
