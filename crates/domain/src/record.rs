//! What is written to the record of every call: ids, digests and counts, never a value.

use std::time::Duration;

use crate::{
    ApprovalId, CallDetails, CallId, Caller, Decision, DecisionId, Digest, MemoryAccess, PermitId,
    Timestamp, ToolName,
};

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

/// Stands for a requested name that is none: the record holds nothing that a person may have typed.
pub const NOT_A_NAME: &str = "(not a tool name)";

/// No configured tool has a longer name.
const MAX_REQUESTED: usize = 64;

/// Who asked for what, and what the policy said of it.
#[derive(Debug, Clone)]
pub struct CallFacts {
    /// The call.
    pub call_id: CallId,
    /// Token issuer.
    pub issuer: String,
    /// Token subject.
    pub subject: String,
    /// Tenant.
    pub tenant: String,
    /// Roles.
    pub roles: Vec<String>,
    /// Which token.
    pub token_id: String,
    /// Address the client called from; empty when unknown.
    pub client_ip: String,
    /// MCP protocol version, `jsonrpc` for the plain endpoint, or `console` for its pages.
    pub protocol: String,
    /// The name the client asked for; [`NOT_A_NAME`] where that is no tool name, since people type anything;
    /// empty where no tool is asked for.
    pub requested_tool: String,
    /// The tool, when there is one of that name.
    pub tool: Option<ToolName>,
    /// Its definition.
    pub definition_digest: Option<Digest>,
    /// SHA-256 of the arguments.
    pub arguments_digest: Digest,
    /// The decision, once there is one.
    pub decision_id: Option<DecisionId>,
    /// Schema and policies in force at the decision.
    pub policy_hash: Option<Digest>,
    /// The policies that decided.
    pub policies: Vec<String>,
    /// The permit it ran under.
    pub permit_id: Option<PermitId>,
    /// The MCP method, for example `resources/read`, or `record/read` of a look at the record; empty: `tools/call`. With any other `tool` is the source, and
    /// `requested_tool` the prompt asked for.
    pub method: String,
    /// The approval that it waits for, or that it is allowed or decided by; none where it needs none.
    pub approval_id: Option<ApprovalId>,
    /// SHA-256 of the id of the conversation that the client says it is part of; none where it says none.
    pub conversation: Option<Digest>,
}

impl CallFacts {
    /// A call as it arrives, before anything was decided.
    pub fn arriving(
        call_id: CallId,
        caller: &Caller,
        client_ip: String,
        protocol: &str,
        requested_tool: &str,
        arguments: &[u8],
    ) -> Self {
        Self {
            requested_tool: match requested_tool.parse::<ToolName>() {
                Ok(name) if name.as_str().len() <= MAX_REQUESTED => name.to_string(),
                _ => NOT_A_NAME.to_owned(),
            },
            ..Self::without_tool(call_id, caller, client_ip, protocol, arguments)
        }
    }

    /// A request that asks for no tool; `arguments` are its parameters.
    pub fn without_tool(
        call_id: CallId,
        caller: &Caller,
        client_ip: String,
        protocol: &str,
        arguments: &[u8],
    ) -> Self {
        Self {
            call_id,
            issuer: caller.issuer().to_owned(),
            subject: caller.subject().to_owned(),
            tenant: caller.tenant().to_owned(),
            roles: caller.roles().to_vec(),
            token_id: caller.token_id().to_owned(),
            client_ip,
            protocol: protocol.to_owned(),
            requested_tool: String::new(),
            tool: None,
            definition_digest: None,
            arguments_digest: Digest::of(arguments),
            decision_id: None,
            policy_hash: None,
            policies: Vec::new(),
            permit_id: None,
            method: String::new(),
            approval_id: None,
            conversation: None,
        }
    }

    /// The same of another method than `tools/call`.
    #[must_use]
    pub fn by_method(self, method: &str) -> Self {
        Self {
            method: method.to_owned(),
            ..self
        }
    }

    /// Adds what was decided.
    pub fn decided(&mut self, decision: &Decision) {
        self.decision_id = Some(decision.id);
        self.policy_hash = Some(decision.policy_hash);
        self.policies.clone_from(&decision.policies);
        self.approval_id = decision.approval;
    }
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The result was released.
    Ok,
    /// Refused by policy, or a tool the caller may not see: a violation.
    Denied,
    /// No such tool.
    UnknownTool,
    /// The arguments do not fit the input schema.
    InvalidArguments,
    /// The tool ran and failed, or a part of the platform did.
    Error,
    /// The time limit passed.
    Timeout,
    /// The client went away.
    Cancelled,
    /// The process ended between intent and outcome.
    Unknown,
}

impl Status {
    /// Every status, for help texts and filters.
    pub const ALL: [Self; 8] = [
        Self::Ok,
        Self::Denied,
        Self::UnknownTool,
        Self::InvalidArguments,
        Self::Error,
        Self::Timeout,
        Self::Cancelled,
        Self::Unknown,
    ];

    /// The status as records spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Denied => "denied",
            Self::UnknownTool => "unknown_tool",
            Self::InvalidArguments => "invalid_arguments",
            Self::Error => "error",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::Unknown => "unknown",
        }
    }

    /// What the reference says of it, in Markdown.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Ok => {
                "the result was released; the reason is empty, or `input_required`, `task`, `task_working`, …"
            }
            Self::Denied => "refused by policy, switch, scope or agent",
            Self::UnknownTool => "there is no such tool, prompt, resource or task",
            Self::InvalidArguments => "the arguments do not fit",
            Self::Error => "the tool ran and failed, or a part of the platform did",
            Self::Timeout => "the time limit passed",
            Self::Cancelled => "the client went away or cancelled",
            Self::Unknown => "how it ended is not known: it may have run",
        }
    }
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
#[derive(Debug, Clone, PartialEq, Eq)]
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
