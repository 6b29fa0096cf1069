//! The state with which a client's answers resume a request. The gateway hides the state from the client and verifies
//! that it is unchanged; this module verifies that it belongs to the request that it comes with.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use wardgate_domain::Digest;

/// The request that waits, and how it is resumed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResumptionState {
    /// The digest of the caller and the request that wait.
    of: String,
    pub(super) next: NextStep,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum NextStep {
    /// Send the same request again, with the server's own state if the server gave any.
    Retry(Option<String>),
    /// Resume an exchange that is still open.
    #[serde(rename = "parked")]
    Suspended(SuspensionKey),
    /// Send the same request again, because nothing was done yet.
    Again,
    /// Follow the task that the request became on its server.
    Task(SuspensionKey),
}

/// The key of a suspended exchange or a task.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SuspensionKey {
    /// The id. The id of a task is assigned by its server.
    pub(super) id: String,
    /// The address of the only replica that has the exchange or task, or `None` if every replica can resume it.
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

    /// Returns the address of the only replica that can resume the request.
    pub(crate) fn replica_address(&self) -> Option<&str> {
        match &self.next {
            NextStep::Suspended(key) | NextStep::Task(key) => key.at.as_deref(),
            NextStep::Retry(_) | NextStep::Again => None,
        }
    }

    pub(crate) fn encode(&self) -> Bytes {
        // Serialization cannot fail because the state consists of strings.
        serde_json::to_vec(self).unwrap_or_default().into()
    }
}

impl std::fmt::Debug for NextStep {
    /// Leaves out the server's own state.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Retry(_) => "Retry",
            Self::Suspended(_) => "Suspended",
            Self::Again => "Again",
            Self::Task(_) => "Task",
        })
    }
}
