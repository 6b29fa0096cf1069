//! What brings a client's answers back to where they belong. The gateway hides it from the client, and proves that it
//! is unchanged; that it is for what it comes back with is proven here.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use wardgate_domain::Digest;

/// What waits, and how it goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResumptionState {
    /// Digest of what waits: whose it is, and what was asked for.
    of: String,
    pub(super) next: NextStep,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum NextStep {
    /// The same request again, with the server's own state if it gave any.
    Retry(Option<String>),
    /// An exchange that is still open.
    #[serde(rename = "parked")]
    Suspended(SuspensionKey),
    /// The same request again: nothing was done yet.
    Again,
    /// What its server does as a task.
    Task(SuspensionKey),
}

/// Names a suspended exchange or a task.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SuspensionKey {
    /// That of a task is its server's.
    pub(super) id: String,
    /// Address of the replica that alone has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) at: Option<String>,
}

impl ResumptionState {
    pub(super) fn new(subject: Digest, next: NextStep) -> Self {
        Self {
            of: subject.to_string(),
            next,
        }
    }

    pub(super) fn is_of(&self, subject: Digest) -> bool {
        self.of == subject.to_string()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    /// Address of the replica that alone can go on with it.
    pub(crate) fn replica_address(&self) -> Option<&str> {
        match &self.next {
            NextStep::Suspended(key) | NextStep::Task(key) => key.at.as_deref(),
            NextStep::Retry(_) | NextStep::Again => None,
        }
    }

    pub(crate) fn encode(&self) -> Bytes {
        // Texts always have a JSON form.
        serde_json::to_vec(self).unwrap_or_default().into()
    }
}

impl std::fmt::Debug for NextStep {
    /// Without the server's own state.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Retry(_) => "Retry",
            Self::Suspended(_) => "Suspended",
            Self::Again => "Again",
            Self::Task(_) => "Task",
        })
    }
}
