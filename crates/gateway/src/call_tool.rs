//! One `tools/call`: which tool it is of, how it runs, and what the client gets of it. How it is told, `story` says.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use bytes::Bytes;
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use tracing::Span;
use wardgate_domain::{
    AgentRefusal, CallFacts, CallId, Caller, Digest, Outcome, RequiredCapabilities, Status,
    ToolFacts,
};
use wardgate_proto::common::v1::ErrorReason;
use wardgate_rpc::client::{
    CallError, CallEvent, CallTool, DroppedColumns, InputRequired, Interaction, ResultFacts,
    Resumption, ToolResult,
};
use wardgate_telemetry::names;

use crate::Gateway;
use crate::audit_log::RecordStatus;
use crate::authority::Grant;
use crate::catalogue::{CatalogueIndex, Tool};
use crate::client_interaction::ClientInteraction;
use crate::connect::{self, ConnectPrompt};
use crate::governed_call::{
    GovernedCall, Operation, Output, Rejection, RequestBinding, RequestContext, Resource, RunError,
    RunOutcome, SealedOperation,
};
use crate::mcp::{Version, check_mirrored_headers};
use crate::measures;
use crate::reply::{Answer, Dialect, RpcError};
use crate::tasks::{self, StartedTask};
use crate::view::View;

/// One call, read but undecided.
#[derive(Debug)]
pub(crate) struct ToolCall {
    /// The version, or the name of the plain endpoint, for the record.
    pub(crate) protocol: &'static str,
    pub(crate) idempotency_key: Option<String>,
    /// Why the agent that sends it does not make it. Such a call is put on record and never runs.
    pub(crate) agent_refusal: Option<AgentRefusal>,
    /// The headers that repeat arguments; none where there are no such.
    pub(crate) mirrored_headers: Option<HeaderMap>,
    /// The name the client asked for.
    pub(crate) name: String,
    /// The arguments, byte for byte as they came.
    pub(crate) arguments: Bytes,
    /// How the client wants the result.
    pub(crate) dialect: Dialect,
}

/// A call, so written that any gateway can read it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SealedToolCall {
    name: String,
    arguments: String,
    idempotency_key: Option<String>,
}

impl SealedToolCall {
    /// The call.
    pub(crate) fn unseal(self, version: Version) -> ToolCall {
        ToolCall {
            protocol: version.as_str(),
            idempotency_key: self.idempotency_key,
            // A call that waits for its client was to run.
            agent_refusal: None,
            mirrored_headers: None,
            name: self.name,
            arguments: self.arguments.into(),
            dialect: Dialect::Mcp,
        }
    }
}

impl Resource for Arc<Tool> {
    fn facts(&self) -> &ToolFacts {
        &self.facts
    }

    fn is_enabled_for(&self, caller: &Caller) -> bool {
        self.switches.allow(caller)
    }

    fn label(&self) -> &str {
        let mut tags = self.facts.tags.iter();
        let upstream = tags.find_map(|tag| tag.strip_prefix("upstream:"));
        upstream.unwrap_or(self.facts.name.as_str())
    }
}

/// What a call comes to.
pub(crate) enum ToolCallOutput {
    Result(Box<ToolResult>),
    /// It goes on as a task.
    Task(StartedTask),
}

impl Output for ToolCallOutput {
    fn facts(&self) -> &ResultFacts {
        match self {
            Self::Result(result) => &result.facts,
            Self::Task(begun) => &begun.facts,
        }
    }

    fn digest(&self) -> Option<Digest> {
        Some(match self {
            Self::Result(result) => {
                let parts = [&result.content, &result.structured_content, &result.error];
                Digest::of_parts(parts.map(AsRef::as_ref))
            }
            Self::Task(begun) => begun.digest(),
        })
    }
}

impl Operation for ToolCall {
    type Resource = Arc<Tool>;
    type Output = ToolCallOutput;

    const UNKNOWN: &'static str = "unknown_tool";

    fn method(&self) -> &'static str {
        "tools/call"
    }

    fn describe_arrival(&self, call_id: CallId, context: &RequestContext) -> (CallFacts, Span) {
        let span = tracing::info_span!(
            "tools/call",
            { names::CALL_ID } = %call_id,
            { names::CALLER } = context.caller.subject(),
            { names::TOOL } = tracing::field::Empty,
        );
        let (ip, name, arguments) = (context.client_ip.clone(), &self.name, &self.arguments);
        let facts =
            CallFacts::arriving(call_id, &context.caller, ip, self.protocol, name, arguments);
        (facts, span)
    }

    fn agent_refusal(&self) -> Option<AgentRefusal> {
        self.agent_refusal
    }

    fn find_resource(&self, catalogue: &CatalogueIndex, view: &View) -> Option<Arc<Tool>> {
        view.tool(catalogue, &self.name).cloned()
    }

    fn check_request(&self, tool: &Arc<Tool>, client: &ClientInteraction) -> Result<(), Rejection> {
        if !tool.is_for_client(client.capabilities().as_deref()) {
            return Err(if client.is_legacy() {
                Rejection::NotForClient
            } else {
                Rejection::MissingCapability(tool.required_capabilities.to_json().into())
            });
        }
        let Some(headers) = &self.mirrored_headers else {
            return Ok(());
        };
        check_mirrored_headers(&tool.mirrored_headers, &self.arguments, headers)
            .map_err(Rejection::HeaderMismatch)
    }

    fn policy_arguments(&self, _target: &Arc<Tool>) -> Bytes {
        self.arguments.clone()
    }

    fn request_binding(&self) -> Option<RequestBinding<'_>> {
        (self.dialect == Dialect::Mcp).then_some(RequestBinding {
            method: self.method(),
            name: &self.name,
            arguments: &self.arguments,
        })
    }

    async fn run(
        call: &mut GovernedCall<Self>,
        tool: &Arc<Tool>,
        grant: &Grant,
        resumption: Option<Resumption>,
    ) -> Result<RunOutcome<ToolCallOutput>, RunError> {
        // Where it waited for its user alone, it begins anew.
        let resumption = match resumption {
            Some(Resumption {
                state, responses, ..
            }) if state.is_empty() => {
                if let Some(words) = connect::declined(&responses) {
                    return Ok(RunOutcome::Output(not_connected(words)));
                }
                None
            }
            resumption => resumption,
        };
        let (tool_call, gateway) = (&call.operation, &call.gateway);
        let capabilities = call.client.capabilities();
        let called = gateway.runner().call_tool(CallTool {
            call_id: call.facts.call_id,
            caller: &call.context.caller,
            tool: &tool.facts.name,
            arguments: tool_call.arguments.clone(),
            permit: &grant.permit,
            idempotency_key: tool_call.idempotency_key.as_deref(),
            interaction: Interaction {
                capabilities: capabilities.as_deref(),
                log_level: call.client.log_level(),
                resumption,
                besides: call.client.besides(),
                is_legacy: call.client.is_legacy(),
            },
            caller_token: call
                .context
                .caller
                .token_for_source(tool.needs_caller_token),
            // The tool-runner ends the work at the limit itself; this catches one that does not answer.
            limit: tool.time_limit + Duration::from_secs(1),
        });
        let events = call.client.unless_cancelled(Box::pin(called)).await?;
        let mut events = pin!(events.map_err(|error| refused(&call.gateway, &error, tool))?);
        while let Some(event) = call.client.unless_cancelled(events.next()).await? {
            let event = event.map_err(|error| refused(&call.gateway, &error, tool))?;
            if let Some(notice) = call.client.notice(&event) {
                call.send_notification(&notice).await?;
            }
            match event {
                CallEvent::Result(mut result) => {
                    result.content = call.context.view.content(result.content);
                    return Ok(RunOutcome::Output(ToolCallOutput::Result(result)));
                }
                CallEvent::Task(task) => {
                    let begun = StartedTask::of(call, *task).await;
                    let begun = begun.ok_or_else(|| not_handed_out(tool))?;
                    return Ok(RunOutcome::Output(ToolCallOutput::Task(begun)));
                }
                CallEvent::InputRequired(waits) => return Ok(asked(call, waits)),
                CallEvent::Progress(_) | CallEvent::Log(_) | CallEvent::Completed(_) => {}
            }
        }
        Err(lost(tool).into())
    }

    fn to_sealed(&self) -> Option<SealedOperation> {
        Some(SealedOperation::Call(SealedToolCall {
            name: self.name.clone(),
            arguments: String::from_utf8(self.arguments.to_vec()).ok()?,
            idempotency_key: self.idempotency_key.clone(),
        }))
    }

    fn report_outcome(&self, outcome: &Outcome, is_hidden: bool) {
        measures::ended(outcome, is_hidden);
        tracing::info!(
            status = outcome.status.as_str(),
            reason = outcome.reason,
            rows = outcome.rows,
            rows_withheld = outcome.rows_withheld,
            "tool call ended"
        );
    }

    fn release(
        call: &GovernedCall<Self>,
        recorded: RecordStatus,
        called: &ToolCallOutput,
    ) -> Answer {
        let (id, call_id) = (&call.context.id, call.facts.call_id);
        let result = match called {
            ToolCallOutput::Result(result) => result,
            ToolCallOutput::Task(begun) => return begun.release(call, recorded),
        };
        if result.facts.error_kind == RATE_LIMITED {
            let wait = result.facts.retry_after.unwrap_or_default();
            let error = RpcError::rate_limited(wait).of_call(call_id, recorded.receipt());
            return Answer::error(Some(id), &error);
        }
        let capabilities = call.client.capabilities();
        let is_declared = |required: &str| {
            let required = RequiredCapabilities::read(required.as_bytes());
            required.is_some_and(|required| required.are_declared(capabilities.as_deref()))
        };
        if call.context.version.is_modern()
            && let Some(required) = undeclared(&result.facts.error_kind)
            // For another reason they were not offered.
            && !is_declared(required)
        {
            let error = RpcError::missing_capability(required);
            return Answer::error(Some(id), &error.of_call(call_id, recorded.receipt()));
        }
        let version = call.context.version;
        match call.operation.dialect {
            Dialect::Mcp if !result.error.is_empty() => {
                Answer::protocol_error(id, version, call_id, recorded, &result.error)
            }
            Dialect::Direct => Answer::direct(id, call_id, recorded, result),
            Dialect::Mcp => Answer::released(id, version, call_id, recorded, result),
        }
    }

    fn write_rejection(
        call: &GovernedCall<Self>,
        recorded: RecordStatus,
        rejection: &Rejection,
    ) -> Option<Answer> {
        let RequestContext { id, version, .. } = &call.context;
        let (version, call_id) = (*version, call.facts.call_id);
        match rejection {
            _ if call.operation.dialect == Dialect::Direct => None,
            Rejection::Denied {
                reason,
                decision,
                visible: true,
            } => {
                let denial = (reason.as_str(), *decision);
                Some(Answer::denied(id, version, call_id, recorded, denial))
            }
            // Older versions have no error for it, and the model may know another way.
            Rejection::MissingCapability(_) | Rejection::InputError(_) if !version.is_modern() => {
                let words = "The tool asks for input that it cannot get here.";
                Some(Answer::failed(id, version, call_id, recorded, words))
            }
            _ => None,
        }
    }

    fn not_found_error(&self, _version: Version) -> RpcError {
        match self.dialect {
            Dialect::Direct => RpcError::forbidden(&self.name),
            Dialect::Mcp => RpcError::unknown_tool(&self.name),
        }
    }
}

/// What waits for the client; what waits for its user has the question put here.
fn asked(
    call: &GovernedCall<ToolCall>,
    mut waits: Box<InputRequired>,
) -> RunOutcome<ToolCallOutput> {
    let Some(connect) = &waits.connect else {
        return RunOutcome::InputRequired(waits);
    };
    let capabilities = call.client.capabilities();
    let caller = &call.context.caller;
    match connect::prompt_to_connect(&call.gateway, caller, connect, capabilities.as_deref()) {
        ConnectPrompt::InputRequests(requests) if call.operation.request_binding().is_some() => {
            waits.requests = requests;
            RunOutcome::InputRequired(waits)
        }
        ConnectPrompt::InputRequests(_) => RunOutcome::Output(not_connected(
            "The source acts in your name, and you have not allowed that yet.",
        )),
        ConnectPrompt::Message(words) => RunOutcome::Output(not_connected(&words)),
    }
}

/// Nothing ran for want of the user's word.
fn not_connected(words: &str) -> ToolCallOutput {
    let content = serde_json::json!([{ "type": "text", "text": words }]);
    ToolCallOutput::Result(Box::new(ToolResult {
        content: content.to_string().into(),
        structured_content: Bytes::new(),
        is_error: true,
        other_members: Bytes::new(),
        meta: Bytes::new(),
        error: Bytes::new(),
        facts: ResultFacts {
            status: Status::Error,
            error_kind: "not_connected".to_owned(),
            rows: 0,
            rows_withheld: 0,
            fields_redacted: 0,
            dropped_columns: DroppedColumns::default(),
            phi: false,
            retry_after: None,
            stages: Vec::new(),
        },
    }))
}

/// It became a task that its client cannot be given.
fn not_handed_out(tool: &Tool) -> Rejection {
    if !tool.facts.read_only {
        return Rejection::OutcomeUnknown;
    }
    Rejection::Failed {
        kind: "store_unavailable",
        message: "The task that it became cannot be handed out now. Try again later.",
    }
}

pub(crate) fn refused(gateway: &Gateway, error: &CallError, tool: &Tool) -> RunError {
    match error.reason() {
        ErrorReason::PermitRefused => RunError::PermitRefused,
        ErrorReason::Overloaded => {
            Rejection::NotAttempted(gateway.neighbour_is_overloaded()).into()
        }
        ErrorReason::DeadlineExceeded => Rejection::TimedOut(tool.time_limit).into(),
        ErrorReason::NotDurable => Rejection::NotRecorded.into(),
        // Removed or switched off since the catalogue was listed.
        ErrorReason::UnknownTool => Rejection::Unknown.into(),
        _ => {
            tracing::warn!(%error, "the tool-runner did not say how the call ended");
            lost(tool).into()
        }
    }
}

/// Of a call whose end is not known.
pub(crate) fn lost(tool: &Tool) -> Rejection {
    // It may have been asked before it failed, and a write must not be repeated on a guess.
    if !tool.facts.read_only {
        return Rejection::OutcomeUnknown;
    }
    Rejection::Failed {
        kind: "tool_runner_unavailable",
        message: "The tool could not be run. Try again later.",
    }
}

/// What a server needs its client to declare, a JSON object, where the tool-runner says that this is why it refused.
fn undeclared(error_kind: &str) -> Option<&'static str> {
    match error_kind {
        "needs_sampling" => Some(r#"{"sampling":{}}"#),
        "needs_elicitation" => Some(r#"{"elicitation":{}}"#),
        "needs_roots" => Some(r#"{"roots":{}}"#),
        "needs_tasks" => Some(tasks::NEEDED),
        _ => None,
    }
}

/// How the tool-runner says that a caller used a tool too often.
pub(crate) const RATE_LIMITED: &str = "rate_limited";
