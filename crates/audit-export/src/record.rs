//! A record as an export reads it.

use std::borrow::Cow;

use serde::Deserialize;

use crate::settings::RecordKind;

/// What an export says of a record; the rest stands in its bytes, which go along.
#[derive(Debug, Deserialize)]
pub(crate) struct RecordFields<'a> {
    #[serde(rename = "event")]
    pub(crate) kind: RecordKind,
    #[serde(borrow)]
    pub(crate) time: Cow<'a, str>,
    /// What is unusual.
    #[serde(borrow, default)]
    pub(crate) anomaly: Cow<'a, str>,
    /// How often it was done.
    pub(crate) count: Option<u64>,
    /// The watched policy that was used.
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

/// Who asked.
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

/// What the policy said.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct RecordDecision<'a> {
    #[serde(borrow, default)]
    pub(crate) id: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(crate) policies: Vec<Cow<'a, str>>,
}

/// Requests that were refused alike.
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
    /// None of bytes that are no record.
    pub(crate) fn parse(canonical: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(canonical).ok()
    }

    /// What was used: a tool, a source, a conversation, or what an operator changed.
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

    /// What was done: the MCP method, or an operator's action.
    pub(crate) fn operation(&self) -> &str {
        match self.kind {
            RecordKind::AdminChange => &self.action,
            RecordKind::Anomaly => &self.anomaly,
            _ if self.method.is_empty() => "tools/call",
            _ => &self.method,
        }
    }

    /// Who did it.
    pub(crate) fn user(&self) -> &str {
        if self.caller.subject.is_empty() {
            &self.actor
        } else {
            &self.caller.subject
        }
    }
}
