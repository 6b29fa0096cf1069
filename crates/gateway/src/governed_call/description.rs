//! The description of a request in the terms of the pipeline, and the entry of the catalogue that it uses.

use axum::http::HeaderMap;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tracing::Span;
use wardgate_domain::{
    AgentRefusal, ArgumentNames, CallFacts, CallId, Caller, Digest, Reason, ToolFacts, UNKNOWN_NAME,
};
use wardgate_telemetry::names;

use super::rejection::Rejection;
use crate::client_interaction::ClientInteraction;
use crate::request_context::RequestContext;

/// A request in the terms of the pipeline.
pub(crate) struct Description<'a, R> {
    /// The MCP method.
    pub(crate) method: &'static str,
    /// The protocol version, or the name of the plain endpoint, for the record.
    pub(crate) protocol: &'static str,
    /// The requested name, for the record, or `None` for a URI, which may contain personal data that somebody typed.
    pub(crate) recorded_name: Option<&'a str>,
    /// The arguments, byte for byte as the client sent them. Their digest is recorded.
    pub(crate) arguments: &'a [u8],
    /// The digest of the id of the conversation that the request is part of, or `None` if the client sent no id.
    pub(crate) conversation: Option<Digest>,
    /// The headers that mirror arguments, or `None` if the request has no such headers.
    pub(crate) mirrored_headers: Option<&'a HeaderMap>,
    /// The reason for which the agent itself refuses the call. Such a call is recorded and never run.
    pub(crate) agent_refusal: Option<AgentRefusal>,
    /// The idempotency key under which the agent's refusal is recorded once, or `None` if the agent sent no key.
    pub(crate) refusal_key: Option<&'a str>,
    /// The parts of the request that a `requestState` is bound to, or `None` if the operation never asks its client for input.
    pub(crate) binding: Option<RequestBinding<'a>>,
    /// The operation for other replicas, or `None` if it has a single answer and sends nothing before it.
    pub(crate) resumable: Option<&'a dyn ResumableOperation>,
    /// The recorded reason if the catalogue has no such entry.
    pub(crate) unknown_reason: Reason,
    /// The use of the catalogue's entry, or `None` if no source offers the entry in this view.
    pub(crate) entry_use: Option<EntryUse<R>>,
}

/// The method of tool calls. Their records have no method, because they name the tool.
pub(crate) const CALL_TOOL: &str = "tools/call";

impl<R> Description<'_, R> {
    /// Returns the facts for the record before anything is decided.
    pub(super) fn to_facts(&self, call_id: CallId, context: &RequestContext) -> CallFacts {
        let (caller, ip) = (&context.caller, context.client_ip.clone());
        let (protocol, arguments) = (self.protocol, self.arguments);
        let is_known = self.entry_use.is_some();
        let known_name = |name| if is_known { name } else { UNKNOWN_NAME };
        let facts = match self.recorded_name.map(known_name) {
            Some(name) => CallFacts::for_tool(call_id, caller, ip, protocol, name, arguments),
            None => CallFacts::without_tool(call_id, caller, ip, protocol, arguments),
        };
        let facts = CallFacts {
            conversation: self.conversation,
            ..facts
        };
        if self.method == CALL_TOOL {
            return facts;
        }
        facts.by_method(self.method)
    }

    /// Opens the span of the call, as a child of the span of its request.
    pub(super) fn open_span(&self, call_id: CallId, caller: &Caller, request: &Span) -> Span {
        macro_rules! span {
            ($name:literal) => {
                tracing::info_span!(
                    parent: request,
                    $name,
                    method = self.method,
                    { names::CALL_ID } = %call_id,
                    { names::CALLER } = caller.subject(),
                    { names::TOOL } = tracing::field::Empty,
                )
            };
        }
        match self.method {
            CALL_TOOL => span!("tools/call"),
            method if method.starts_with("tasks/") => span!("tasks"),
            _ => span!("content"),
        }
    }
}

/// The use of an entry of the catalogue.
pub(crate) struct EntryUse<R> {
    pub(crate) entry: R,
    /// The arguments that the policy decides on, one JSON object.
    pub(crate) policy_arguments: Bytes,
    /// Whether the use may write. If so, its intent is recorded before it runs.
    pub(crate) may_write: bool,
}

/// The parts of a request that a `requestState` is bound to. The state is valid for the same request only.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestBinding<'a> {
    /// The MCP method.
    pub(crate) method: &'static str,
    /// The name of the tool or prompt, or the URI of the resource.
    pub(crate) name: &'a str,
    /// The arguments, byte for byte as the client sent them.
    pub(crate) arguments: &'a [u8],
}

/// The entry of the catalogue that an operation uses: a tool, or the source of a prompt or resource.
pub(crate) trait CatalogueEntry: Send + Sync {
    /// Returns the facts that the policy and the record need.
    fn facts(&self) -> &ToolFacts;
    /// Returns whether the entry is switched on for `caller`.
    fn is_enabled_for(&self, caller: &Caller) -> bool;
    /// Returns the name of the server, as shown to a client that is asked for input.
    fn label(&self) -> &str;
    /// Returns the arguments that the record may name, or `None` if it may name none of them.
    fn argument_names(&self) -> Option<&ArgumentNames> {
        None
    }

    /// Checks the further requirements on the request and the capabilities of its client. The check runs after the
    /// authorization, so that only permitted callers see these errors.
    fn check_request(
        &self,
        _description: &Description<'_, Self>,
        _client: &ClientInteraction,
    ) -> Result<(), Rejection>
    where
        Self: Sized,
    {
        Ok(())
    }
}

/// An operation that another replica can resume or authorize again.
pub(crate) trait ResumableOperation: Sync {
    /// Returns the operation in a form that any replica can read, or `None` if it cannot be serialized.
    fn seal(&self) -> Option<SealedOperation>;
}

/// An operation in a form that any replica can read. The content is written and read by the module of the operation.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SealedOperation {
    /// A tool call.
    Call(Box<RawValue>),
    /// The use of a prompt or resource.
    Content(Box<RawValue>),
}
