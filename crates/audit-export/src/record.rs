//! The fields of a record that an export uses.

use std::borrow::Cow;

use serde::Deserialize;

use crate::settings::RecordKind;

/// The fields of a record that an export uses. The event also contains the complete bytes of the record.
#[derive(Debug, Deserialize)]
pub(crate) struct RecordFields<'a> {
    #[serde(rename = "event")]
    pub(crate) kind: RecordKind,
    #[serde(borrow)]
    pub(crate) time: Cow<'a, str>,
    /// The kind of an anomaly.
    #[serde(borrow, default)]
    pub(crate) anomaly: Cow<'a, str>,
    /// The number of occurrences.
    pub(crate) count: Option<u64>,
    /// The name of the watched policy that was used.
    #[serde(borrow, default)]
    pub(crate) policy: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(crate) call_id: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(crate) caller: RecordCaller<'a>,
    #[serde(borrow, default)]
    pub(crate) client_ip: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(crate) protocol: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(crate) method: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(crate) requested_tool: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(crate) tool: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(crate) status: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(crate) reason: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(crate) decision: RecordDecision<'a>,
    pub(crate) duration_us: Option<u64>,
    pub(crate) rows: Option<u64>,
    pub(crate) rows_withheld: Option<u64>,
    pub(crate) fields_redacted: Option<u64>,
    pub(crate) phi: Option<bool>,
    #[serde(default)]
    pub(crate) violation: bool,
    #[serde(borrow, default)]
    pub(crate) conversation: Cow<'a, str>,
    pub(crate) messages: Option<u64>,
    pub(crate) withheld: Option<u64>,
    #[serde(borrow, default)]
    pub(crate) action: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(crate) actor: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(crate) target: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(crate) scope: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(crate) counts: Vec<RefusalTally<'a>>,
    #[serde(borrow, default)]
    pub(crate) window_start: Cow<'a, str>,
}

/// The caller of a record.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct RecordCaller<'a> {
    #[serde(borrow, default)]
    pub(crate) issuer: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(crate) roles: Vec<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(crate) subject: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(crate) tenant: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(crate) token_id: Cow<'a, str>,
}

/// The policy decision of a record.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct RecordDecision<'a> {
    #[serde(borrow, default)]
    pub(crate) id: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(crate) policies: Vec<Cow<'a, str>>,
}

/// The number of refused requests with the same client address, reason and subject.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct RefusalTally<'a> {
    #[serde(borrow, default)]
    pub(crate) client_ip: Cow<'a, str>,
    #[serde(default)]
    pub(crate) count: u64,
    #[serde(borrow, default)]
    pub(crate) reason: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(crate) subject: Cow<'a, str>,
}

impl<'a> RecordFields<'a> {
    /// Parses a record, or returns `None` if the bytes are not a record.
    pub(crate) fn parse(canonical: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(canonical).ok()
    }

    /// Returns the object of the record: the tool, another requested name, the conversation, the target of an operator or the
    /// watched policy.
    pub(crate) fn object(&self) -> &str {
        let names = [
            &self.tool,
            &self.requested_tool,
            &self.conversation,
            &self.target,
            &self.policy,
        ];
        names
            .into_iter()
            .find(|name| !name.is_empty())
            .map_or("", |name| name)
    }

    /// Returns the operation: the MCP method, the operator's action, or the kind of an anomaly.
    pub(crate) fn operation(&self) -> &str {
        match self.kind {
            RecordKind::AdminChange => &self.action,
            RecordKind::Anomaly => &self.anomaly,
            _ if self.method.is_empty() => "tools/call",
            _ => &self.method,
        }
    }

    /// Returns the subject of the caller, or the actor if the record has no caller.
    pub(crate) fn user(&self) -> &str {
        if self.caller.subject.is_empty() {
            &self.actor
        } else {
            &self.caller.subject
        }
    }
}
