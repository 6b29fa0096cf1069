//! Audit records of calls: they consist of ids, digests and counts, never of values.

use std::time::Duration;

use crate::{CallDetails, CallFacts, Digest, MemoryAccess, ReadDecision, Status, Timestamp};

/// One audit record.
#[derive(Debug, Clone)]
pub struct Record {
    /// The time of the event.
    pub time: Timestamp,
    /// The event.
    pub event: Event,
}

/// An event that is recorded.
#[derive(Debug, Clone)]
pub enum Event {
    /// A tool that may write is about to run.
    Intent(CallFacts),
    /// A call ended.
    Outcome(Outcome),
    /// Requests that were refused before they became a call, counted over one second.
    Refusals(Refusals),
    /// An operator changes the configuration or data of the platform.
    AdminChange(AdminChange),
    /// A caller read or changed stored conversations.
    MemoryAccess(MemoryAccess),
    /// Another process asked the tool-runner to run a call.
    Execution(CallFacts),
}

/// The outcome of one call.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The facts of the call.
    pub call: CallFacts,
    /// The status with which the call ended.
    pub status: Status,
    /// The kind of refusal or failure in short; empty if the call succeeded.
    pub reason: String,
    /// The number of released rows.
    pub rows: u64,
    /// The number of rows that the row rule withheld.
    pub rows_withheld: u64,
    /// The number of fields that were changed or dropped.
    pub fields_redacted: u64,
    /// Whether a released row contained health information.
    pub phi: bool,
    /// The SHA-256 digest of the released result.
    pub result_digest: Option<Digest>,
    /// The time from the arrival of the call to this record.
    pub duration: Duration,
    /// Further details of the call, sealed beside the record; `None` if this was not a call through the gateway.
    pub details: Option<Box<CallDetails>>,
}

/// The requests of one second that were refused before they became a call.
#[derive(Debug, Clone)]
pub struct Refusals {
    /// The start of the second.
    pub window_start: Timestamp,
    /// The counts, one for each combination of reason, address and subject.
    pub counts: Vec<RefusalCount>,
}

/// The number of refused requests with the same reason, address and subject.
#[derive(Debug, Clone)]
pub struct RefusalCount {
    /// The reason, for example `token_expired`.
    pub reason: String,
    /// The address of the client.
    pub client_ip: String,
    /// The subject of the verified caller; empty if the token itself was refused.
    pub subject: String,
    /// The number of requests.
    pub count: u64,
}

/// A change by an operator. The change is recorded before it is made. If it then cannot be made, it is recorded a
/// second time as failed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AdminChange {
    /// The name of the operator.
    pub actor: String,
    /// The kind of target and the action, for example `tool.disable`.
    pub action: String,
    /// The name of the target.
    pub target: String,
    /// The callers that the change concerns, for example `role:Nurse`; empty if the change has no such scope.
    pub scope: String,
    /// The SHA-256 digest of further data that identifies the change, or `None` if there is none.
    pub detail_digest: Option<Digest>,
    /// Whether the change failed, or is not known to have been made.
    pub failed: bool,
    /// The operator's verified identity, or `None` if the change was made without a token.
    pub operator: Option<Box<OperatorFacts>>,
}

impl AdminChange {
    /// Returns whether the policy allowed the change. A change that was made without a token is always allowed.
    pub fn is_allowed(&self) -> bool {
        let operator = self.operator.as_ref();
        operator.is_none_or(|operator| operator.decision.allowed)
    }
}

/// An operator whose token was verified, with the decision of the policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorFacts {
    /// The token issuer.
    pub issuer: String,
    /// The tenant of the operator; empty if the deployment has no tenants.
    pub tenant: String,
    /// The roles of the operator.
    pub roles: Vec<String>,
    /// The id of the token.
    pub token_id: String,
    /// The decision of the policy. A change that it does not allow is not made.
    pub decision: ReadDecision,
}

/// Proof that a record is durable. Only an acknowledged append returns a receipt, and no result is released without
/// one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    sequence: u64,
    leaf_hash: Digest,
}

impl Receipt {
    /// Creates the receipt of a record that a store has made durable. Only the code that stored the record may call
    /// this.
    pub fn for_durable(sequence: u64, leaf_hash: Digest) -> Self {
        Self {
            sequence,
            leaf_hash,
        }
    }

    /// Returns the position of the record in the gapless sequence of all records, counted from 0.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Returns the RFC 6962 leaf hash of the record's canonical bytes.
    pub fn leaf_hash(&self) -> Digest {
        self.leaf_hash
    }
}
