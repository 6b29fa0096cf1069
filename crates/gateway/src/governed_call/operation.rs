//! The three things that the pipeline needs of what it governs: the operation, the resource it uses, and its output.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tracing::Span;
use wardgate_domain::{AgentRefusal, CallFacts, CallId, Caller, Digest, Outcome, ToolFacts};
use wardgate_mcp::Version;
use wardgate_mcp_server::{Answer, RecordStatus, RpcError};
use wardgate_rpc::client::{InputRequired, ResultFacts, Resumption};

use super::{GovernedCall, Rejection, RunError};
use crate::authority::Grant;
use crate::catalogue::CatalogueIndex;
use crate::catalogue::View;
use crate::client_interaction::ClientInteraction;
use crate::request_context::RequestContext;

/// One kind of request that is decided on, run and recorded: a tool call, the use of a prompt or resource, a step of a
/// task.
pub(crate) trait Operation: Send + Sync + Sized + 'static {
    /// The entry of the catalogue that the operation uses.
    type Resource: Resource;
    /// The result of a run that completes.
    type Output: Output;

    /// The reason on record where the catalogue has no such resource.
    const UNKNOWN: &'static str;

    /// The MCP method.
    fn method(&self) -> &'static str;

    /// The facts for the record, and the span for traces, before anything is decided.
    fn describe_arrival(&self, call_id: CallId, context: &RequestContext) -> (CallFacts, Span);

    /// The reason for which the agent itself refuses the call. Such a call is recorded and never run.
    fn agent_refusal(&self) -> Option<AgentRefusal> {
        None
    }

    /// The idempotency key under which that refusal is recorded once. None if the agent gives none.
    fn refusal_key(&self) -> Option<&str> {
        None
    }

    /// The resource in the catalogue. None if no source offers it in this view.
    fn find_resource(&self, catalogue: &CatalogueIndex, view: &View) -> Option<Self::Resource>;

    /// The arguments that the policy decides on, one JSON object.
    fn policy_arguments(&self, resource: &Self::Resource) -> Bytes;

    /// Whether the operation may write. If so, its intent is recorded before it runs.
    fn may_write(&self, facts: &ToolFacts) -> bool {
        !facts.read_only
    }

    /// Checks what else the request must say of `resource` and which capabilities its client needs. It runs after the
    /// decision, so that only permitted callers see these errors.
    fn check_request(
        &self,
        _resource: &Self::Resource,
        _client: &ClientInteraction,
    ) -> Result<(), Rejection> {
        Ok(())
    }

    /// The parts of the request that a `requestState` is bound to. None if the operation never asks its client for input.
    fn request_binding(&self) -> Option<RequestBinding<'_>>;

    /// Runs the operation under `grant`, or continues it from `resumption`.
    fn run(
        call: &mut GovernedCall<Self>,
        resource: &Self::Resource,
        grant: &Grant,
        resumption: Option<Resumption>,
    ) -> impl Future<Output = Result<RunOutcome<Self::Output>, RunError>> + Send;

    /// The operation in a form that any replica can read, so that it can resume the call or decide on it again. None for
    /// operations that have a single answer and send nothing before it.
    fn to_sealed(&self) -> Option<SealedOperation>;

    /// Counts and logs the outcome. Metrics do not show the name of a resource that is hidden from its caller.
    fn report_outcome(&self, outcome: &Outcome, is_hidden: bool);

    /// Writes the answer of a completed run. It takes `recorded`, since nothing is released that is not on record.
    fn release(call: &GovernedCall<Self>, recorded: RecordStatus, output: &Self::Output) -> Answer;

    /// Writes the answer for a rejection that this operation words itself. None for the common error.
    fn write_rejection(
        _call: &GovernedCall<Self>,
        _recorded: RecordStatus,
        _rejection: &Rejection,
    ) -> Option<Answer> {
        None
    }

    /// The error for a resource that does not exist, and for one that is hidden from the caller.
    fn not_found_error(&self, version: Version) -> RpcError;
}

/// The parts of a request that a `requestState` is bound to: it opens for the same request alone.
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
pub(crate) trait Resource: Send + Sync {
    /// The facts that the policy and the record need.
    fn facts(&self) -> &ToolFacts;
    /// Whether its switches are on for `caller`.
    fn is_enabled_for(&self, caller: &Caller) -> bool;
    /// The name of the server, as shown to a client that it asks for input.
    fn label(&self) -> &str;
}

/// The result of an operation, before it is released.
pub(crate) trait Output: Send {
    /// The counts and the status for the record.
    fn facts(&self) -> &ResultFacts;
    /// The digest of the bytes that are released. None if nothing is.
    fn digest(&self) -> Option<Digest>;
}

/// The end of one round of a run.
#[derive(Debug)]
pub(crate) enum RunOutcome<T> {
    /// The operation is complete.
    Output(T),
    /// The server needs input of the client before it goes on.
    InputRequired(Box<InputRequired>),
}

/// An operation in a form that any replica can read: the module of the operation writes and reads the content.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SealedOperation {
    /// A call of a tool.
    Call(Box<RawValue>),
    /// The use of a prompt or resource.
    Content(Box<RawValue>),
}
