//! What is written to the record of every call: ids, digests and counts, never a value.

use std::time::Duration;

use crate::{CallDetails, CallFacts, Digest, MemoryAccess, ReadDecision, Status, Timestamp};

/// One record.
#[derive(Debug, Clone)]
pub struct Record {
    /// When it happened.
    pub time: Timestamp,
    /// What happened.
    pub event: Event,
}

/// What happened.
#[derive(Debug, Clone)]
pub enum Event {
    /// A tool that may write is about to run.
    Intent(CallFacts),
    /// A call ended.
    Outcome(Outcome),
    /// Requests that never became a call, counted over one second.
    Refusals(Refusals),
    /// An operator changes what the platform does.
    AdminChange(AdminChange),
    /// A caller read or changed remembered conversations.
    MemoryAccess(MemoryAccess),
    /// The tool-runner was asked by another process to run something.
    Execution(CallFacts),
}

/// How one call ended.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The call.
    pub call: CallFacts,
    /// How it ended.
    pub status: Status,
    /// Short kind of refusal or failure; empty when it succeeded.
    pub reason: String,
    /// Rows released.
    pub rows: u64,
    /// Rows the row rule withheld.
    pub rows_withheld: u64,
    /// Fields changed or dropped.
    pub fields_redacted: u64,
    /// A released row held health information.
    pub phi: bool,
    /// SHA-256 of what is released.
    pub result_digest: Option<Digest>,
    /// From arrival to this record.
    pub duration: Duration,
    /// What else is known of the call; it is sealed beside the record. None of what is no call through the gateway.
    pub details: Option<Box<CallDetails>>,
}

/// Requests of one second that never became a call.
#[derive(Debug, Clone)]
pub struct Refusals {
    /// Start of the second.
    pub window_start: Timestamp,
    /// One entry for each reason, address and subject.
    pub counts: Vec<RefusalCount>,
}

/// How often one kind of request was refused.
#[derive(Debug, Clone)]
pub struct RefusalCount {
    /// For example `token_expired`.
    pub reason: String,
    /// Where it came from.
    pub client_ip: String,
    /// The verified caller; empty when the token itself was refused.
    pub subject: String,
    /// How many.
    pub count: u64,
}

/// A change by an operator. It is on record before it is made; one that then cannot be made is recorded a
/// second time, as failed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AdminChange {
    /// The operator, by name.
    pub actor: String,
    /// What is done to what kind of thing, for example `tool.disable`.
    pub action: String,
    /// The thing's name.
    pub target: String,
    /// Whom it concerns, for example `role:Nurse`; empty where that makes no sense.
    pub scope: String,
    /// SHA-256 of what else identifies the change, where there is more.
    pub detail_digest: Option<Digest>,
    /// It is not known to have been made.
    pub failed: bool,
    /// The operator, where a token said who that is.
    pub operator: Option<Box<OperatorFacts>>,
}

impl AdminChange {
    /// Whether the policy let the operator make it, where a token said who that is.
    pub fn is_allowed(&self) -> bool {
        let operator = self.operator.as_ref();
        operator.is_none_or(|operator| operator.decision.allowed)
    }
}

/// An operator whose token was verified, and whether the policy let them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorFacts {
    /// Who says so.
    pub issuer: String,
    /// Their tenant; empty where there are none.
    pub tenant: String,
    /// Their roles.
    pub roles: Vec<String>,
    /// Id of the token.
    pub token_id: String,
    /// What the policy decided. A change that it did not allow was not made.
    pub decision: ReadDecision,
}

/// Proof that a record is durable. Only an acknowledged append gives one, and an answer needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    sequence: u64,
    leaf_hash: Digest,
}

impl Receipt {
    /// The receipt of a record that a store has made durable. Call it nowhere else.
    pub fn for_durable(sequence: u64, leaf_hash: Digest) -> Self {
        Self {
            sequence,
            leaf_hash,
        }
    }

    /// Position in the one dense sequence, from 0.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// RFC 6962 leaf hash of the record's canonical bytes.
    pub fn leaf_hash(&self) -> Digest {
        self.leaf_hash
    }
}
