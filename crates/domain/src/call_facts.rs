//! Facts that the record holds about a call before it ends: the caller, the request and the decision of the policy.

use std::sync::Arc;

use crate::{
    ApprovalId, BundleReference, CallId, Caller, Decision, DecisionId, Digest, PermitId, ToolName,
};

/// Placeholder for a requested name that is not in the catalogue. The record contains only configured names, because a model
/// or a person may write anything as a name, even personal data.
pub const UNKNOWN_NAME: &str = "(unknown name)";

/// The caller and the request of a call, and the decision of the policy about it.
#[derive(Debug, Clone)]
pub struct CallFacts {
    /// The id of the call.
    pub call_id: CallId,
    /// The token issuer of the caller.
    pub issuer: String,
    /// The token subject of the caller.
    pub subject: String,
    /// The tenant of the caller.
    pub tenant: String,
    /// The roles of the caller.
    pub roles: Vec<String>,
    /// The id of the caller's token.
    pub token_id: String,
    /// The address of the client; empty if unknown.
    pub client_ip: String,
    /// The MCP protocol version, `jsonrpc` for the plain JSON-RPC endpoint, or `console` for the pages of the console.
    pub protocol: String,
    /// The name that the client requested; [`UNKNOWN_NAME`] if the catalogue does not contain it; empty if the request asks
    /// for no tool.
    pub requested_tool: String,
    /// The tool, or `None` if no tool has the requested name.
    pub tool: Option<ToolName>,
    /// The digest of the tool's definition.
    pub definition_digest: Option<Digest>,
    /// The tags of the tool when the call arrived: empty if the tool has none, `None` if there is no tool or the writer of the
    /// record does not know the tags. If there is a tool whose tags are not known, the caller's calls cannot be counted by tag.
    pub tags: Option<Arc<[String]>>,
    /// The SHA-256 digest of the arguments.
    pub arguments_digest: Digest,
    /// The id of the decision, or `None` until there is one.
    pub decision_id: Option<DecisionId>,
    /// The digest of the schema and policies in force at the decision.
    pub policy_hash: Option<Digest>,
    /// The bundle that these policies come from, or `None` if they come from a directory.
    pub bundle: Option<BundleReference>,
    /// The ids of the policies that determined the decision.
    pub policies: Vec<String>,
    /// The permit under which the call ran.
    pub permit_id: Option<PermitId>,
    /// The MCP method, for example `resources/read`, or `record/read` for a read of the record; empty for `tools/call`.
    /// With any other method, `tool` is the source, and `requested_tool` is the prompt that was asked for.
    pub method: String,
    /// The approval that the call waits for, or by which it was allowed or decided; `None` if the call needs no
    /// approval.
    pub approval_id: Option<ApprovalId>,
    /// The SHA-256 digest of the conversation id that the client sent with the call; `None` if it sent no such id.
    pub conversation: Option<Digest>,
}

impl CallFacts {
    /// Creates the facts of a call that has just arrived and is not decided yet. `requested_tool` is a name of the catalogue
    /// or [`UNKNOWN_NAME`].
    pub fn for_tool(
        call_id: CallId,
        caller: &Caller,
        client_ip: String,
        protocol: &str,
        requested_tool: &str,
        arguments: &[u8],
    ) -> Self {
        Self {
            requested_tool: requested_tool.to_owned(),
            ..Self::without_tool(call_id, caller, client_ip, protocol, arguments)
        }
    }

    /// Creates the facts of a request that asks for no tool. `arguments` are the parameters of the request.
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
            tags: None,
            arguments_digest: Digest::compute(arguments),
            decision_id: None,
            policy_hash: None,
            bundle: None,
            policies: Vec::new(),
            permit_id: None,
            method: String::new(),
            approval_id: None,
            conversation: None,
        }
    }

    /// Returns the same facts for a method other than `tools/call`.
    #[must_use]
    pub fn by_method(self, method: &str) -> Self {
        Self {
            method: method.to_owned(),
            ..self
        }
    }

    /// Adds the outcome of `decision`.
    pub fn record_decision(&mut self, decision: &Decision) {
        self.decision_id = Some(decision.id);
        self.policy_hash = Some(decision.policy_hash);
        self.bundle = decision.bundle;
        self.policies.clone_from(&decision.policies);
        self.approval_id = decision.approval;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ambient, CallerClaims, Timestamp};

    #[test]
    fn the_tags_of_a_tool_are_unknown_until_they_are_set() {
        let caller = Caller::from_verified(CallerClaims {
            issuer: "https://issuer.example".to_owned(),
            subject: "anna".to_owned(),
            tenant: String::new(),
            roles: Vec::new(),
            attributes: [].into(),
            token_id: "t".to_owned(),
            expires_at: Timestamp::from_seconds(1),
        });
        let (id, address) = (CallId::new(&Ambient::system()), String::new);
        let arriving = CallFacts::for_tool(id, &caller, address(), "jsonrpc", "pay", b"{}");
        let without_tool = CallFacts::without_tool(id, &caller, address(), "jsonrpc", b"{}");
        for facts in [arriving, without_tool] {
            assert_eq!(facts.tags, None);
        }
    }
}
