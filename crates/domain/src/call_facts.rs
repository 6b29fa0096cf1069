//! What the record says of a call before it ends: who asked for what, and what the policy said of it.

use crate::{ApprovalId, CallId, Caller, Decision, DecisionId, Digest, PermitId, ToolName};

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
