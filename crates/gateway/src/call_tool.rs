//! The operation `tools/call`: which tool the call uses, how the tool runs, and how its result is written. The pipeline around
//! the operation is `governed_call`.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use bytes::Bytes;
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use wardgate_connect::ConnectPrompt;
use wardgate_domain::{
    AgentRefusal, ArgumentNames, Caller, Digest, Reason, RequiredCapabilities, Status, ToolFacts,
};
use wardgate_mcp::Version;
use wardgate_mcp_server::{
    McpResponse, RecordStatus, ResultFormat, RpcError, check_mirrored_headers,
};
use wardgate_proto::common::v1::ErrorReason;
use wardgate_rpc::client::{
    CallError, CallEvent, CallTool, DroppedColumns, InputRequired, Interaction, ResultFacts,
    Resumption, ToolResult,
};

use crate::catalogue::{CatalogueIndex, Tool, View};
use crate::client_interaction::ClientInteraction;
use crate::governed_call::{
    AnswerContent, CALL_TOOL, CatalogueEntry, Description, EntryUse, Operation, Output,
    PermittedRun, Rejection, Reply, RequestBinding, ResumableOperation, RoundOutcome, RunError,
    SealedOperation,
};
use crate::task_handle::{self, StartedTask};
use wardgate_limits::RequestAdmission;

/// A tool call, parsed but not yet authorized.
#[derive(Debug)]
pub(crate) struct ToolCall {
    /// The protocol version, or the name of the plain endpoint, for the record.
    pub(crate) protocol: &'static str,
    pub(crate) idempotency_key: Option<String>,
    /// The digest of the id of the conversation that the call is part of, or `None` if the client sent no id.
    pub(crate) conversation: Option<Digest>,
    /// The reason for which the agent itself refuses the call. Such a call is recorded and never run.
    pub(crate) agent_refusal: Option<AgentRefusal>,
    /// The headers that mirror arguments, or `None` if the transport has no such headers.
    pub(crate) mirrored_headers: Option<HeaderMap>,
    /// The requested name: the tool's own name, or an alias.
    pub(crate) name: String,
    /// The arguments, byte for byte as the client sent them.
    pub(crate) arguments: Bytes,
    /// The form of the result.
    pub(crate) result_format: ResultFormat,
}

/// A tool call in a form that any replica can read.
#[derive(Serialize, Deserialize)]
struct SealedToolCall {
    name: String,
    arguments: String,
    idempotency_key: Option<String>,
    #[serde(default)]
    conversation: Option<String>,
}

impl ToolCall {
    /// Returns the call that `sealed` holds, in the version of the client that resumes it, or `None` if it cannot be read.
    pub(crate) fn unseal(sealed: &RawValue, version: Version) -> Option<Self> {
        let sealed: SealedToolCall = serde_json::from_str(sealed.get()).ok()?;
        Some(Self {
            protocol: version.as_str(),
            idempotency_key: sealed.idempotency_key,
            conversation: (sealed.conversation.map(|digest| digest.parse()))
                .transpose()
                .ok()?,
            // A call that waits for its client was not refused by the agent.
            agent_refusal: None,
            mirrored_headers: None,
            name: sealed.name,
            arguments: sealed.arguments.into(),
            result_format: ResultFormat::Mcp,
        })
    }
}

impl ResumableOperation for ToolCall {
    fn seal(&self) -> Option<SealedOperation> {
        let sealed = to_raw_value(&SealedToolCall {
            name: self.name.clone(),
            arguments: String::from_utf8(self.arguments.to_vec()).ok()?,
            idempotency_key: self.idempotency_key.clone(),
            conversation: self.conversation.map(|digest| digest.to_string()),
        });
        sealed.ok().map(SealedOperation::Call)
    }
}

impl CatalogueEntry for Arc<Tool> {
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

    fn argument_names(&self) -> Option<&ArgumentNames> {
        Some(&self.argument_names)
    }

    fn check_request(
        &self,
        description: &Description<'_, Self>,
        client: &ClientInteraction,
    ) -> Result<(), Rejection> {
        if !self.is_for_client(client.capabilities().as_deref()) {
            return Err(if client.is_legacy() {
                Rejection::NotForClient
            } else {
                Rejection::MissingCapability(self.required_capabilities.to_json().into())
            });
        }
        let Some(headers) = description.mirrored_headers else {
            return Ok(());
        };
        check_mirrored_headers(&self.mirrored_headers, description.arguments, headers)
            .map_err(Rejection::HeaderMismatch)
    }
}

/// The output of a tool call.
pub(crate) enum ToolCallOutput {
    Result(Box<ToolResult>),
    /// The call became a task.
    Task(StartedTask),
}

impl Output for ToolCallOutput {
    fn facts(&self) -> &ResultFacts {
        match self {
            Self::Result(result) => &result.facts,
            Self::Task(task) => &task.facts,
        }
    }

    fn digest(&self) -> Option<Digest> {
        Some(match self {
            Self::Result(result) => {
                let parts = [&result.content, &result.structured_content, &result.error];
                Digest::of_parts(parts.map(AsRef::as_ref))
            }
            Self::Task(task) => task.digest(),
        })
    }
}

impl Operation for ToolCall {
    type Entry = Arc<Tool>;
    type Output = ToolCallOutput;

    fn describe(
        &self,
        catalogue: Option<&CatalogueIndex>,
        view: &View,
    ) -> Description<'_, Arc<Tool>> {
        let tool = catalogue.and_then(|catalogue| view.tool(catalogue, &self.name));
        Description {
            method: CALL_TOOL,
            protocol: self.protocol,
            recorded_name: Some(&self.name),
            arguments: &self.arguments,
            conversation: self.conversation,
            mirrored_headers: self.mirrored_headers.as_ref(),
            agent_refusal: self.agent_refusal,
            refusal_key: self.agent_refusal.and(self.idempotency_key.as_deref()),
            binding: (self.result_format == ResultFormat::Mcp).then_some(RequestBinding {
                method: CALL_TOOL,
                name: &self.name,
                arguments: &self.arguments,
            }),
            resumable: Some(self),
            unknown_reason: Reason::UNKNOWN_TOOL,
            entry_use: tool.map(|tool| EntryUse {
                policy_arguments: self.arguments.clone(),
                may_write: !tool.facts.read_only,
                entry: Arc::clone(tool),
            }),
        }
    }

    async fn run(
        &self,
        mut run: PermittedRun<'_, Arc<Tool>>,
    ) -> Result<RoundOutcome<ToolCallOutput>, RunError> {
        // If the call only waited for its user to connect the source, it starts again from the beginning.
        let resumption = match run.resumption.take() {
            Some(Resumption {
                state, responses, ..
            }) if state.is_empty() => {
                if let Some(message) = wardgate_connect::declined_message(&responses) {
                    return Ok(RoundOutcome::Output(not_connected(message)));
                }
                None
            }
            resumption => resumption,
        };
        let (services, tool, caller) = (run.services, run.entry, &run.context.caller);
        let capabilities = run.client.capabilities();
        // Requests about a task are authorized separately, and the approval of the call is used up by then. Therefore an
        // approved call must not become a task.
        let capabilities = if run.grant.approval.is_some() {
            capabilities.map(|it| task_handle::without_tasks(&it).into())
        } else {
            capabilities
        };
        run.client.begin_stream().await?;
        let output = services.runner.call_tool(CallTool {
            call_id: run.call_id,
            caller,
            tool: &tool.facts.name,
            arguments: self.arguments.clone(),
            permit: &run.grant.permit,
            idempotency_key: self.idempotency_key.as_deref(),
            interaction: Interaction {
                log_level: run.client.log_level(),
                ..(run.client).tool_runner_interaction(capabilities.as_deref(), resumption)
            },
            caller_token: caller.token_for_source(tool.needs_caller_token),
            // The tool-runner enforces the time limit itself; this limit catches a tool-runner that does not answer.
            limit: tool.time_limit + Duration::from_secs(1),
        });
        let to_run_error = |error: CallError| run_error(&services.admission, &error, tool);
        let events = run.client.unless_cancelled(output).await?;
        let mut events = pin!(events.map_err(to_run_error)?);
        while let Some(event) = run.client.unless_cancelled(events.next()).await? {
            let event = event.map_err(to_run_error)?;
            run.client.send_event(&event).await?;
            match event {
                CallEvent::Result(mut result) => {
                    result.content = run.context.view.content(result.content);
                    return Ok(RoundOutcome::Output(ToolCallOutput::Result(result)));
                }
                CallEvent::Task(task) => {
                    let (handles, arguments) = (&services.task_handles, &self.arguments);
                    let (context, call_id, name) = (run.context, run.call_id, &self.name);
                    let conversation = self.conversation;
                    let task =
                        handles.hand_out(context, call_id, name, arguments, conversation, *task);
                    let task = Box::pin(task).await;
                    let task = task.ok_or_else(|| task_not_handed_out(tool))?;
                    return Ok(RoundOutcome::Output(ToolCallOutput::Task(task)));
                }
                CallEvent::InputRequired(input_required) => {
                    return Ok(self.input_outcome(&run, input_required));
                }
                CallEvent::Progress(_)
                | CallEvent::Log(_)
                | CallEvent::Completed(_)
                | CallEvent::StreamClosed => {}
            }
        }
        Err(lost_call(tool).into())
    }

    fn render(&self, reply: &Reply<'_>, ending: AnswerContent<'_, ToolCallOutput>) -> McpResponse {
        match ending {
            AnswerContent::Completed(output, recorded) => {
                self.render_output(reply, recorded, output)
            }
            AnswerContent::Rejected(rejection, recorded) => recorded
                .and_then(|recorded| self.render_rejection_as_result(reply, recorded, rejection))
                .unwrap_or_else(|| reply.error(rejection, recorded, || self.not_found_error())),
        }
    }
}

impl ToolCall {
    fn render_output(
        &self,
        reply: &Reply<'_>,
        recorded: RecordStatus,
        output: &ToolCallOutput,
    ) -> McpResponse {
        let (id, version, call_id) = (&reply.context.id, reply.context.version, reply.call_id);
        let result = match output {
            ToolCallOutput::Result(result) => result,
            ToolCallOutput::Task(task) => return task.release(id, call_id, recorded),
        };
        if result.facts.error_kind == Reason::RATE_LIMITED.as_str() {
            let wait = result.facts.retry_after.unwrap_or_default();
            let error = RpcError::rate_limited(wait).of_call(call_id, recorded.receipt());
            return McpResponse::error(Some(id), &error);
        }
        let is_declared = |required: &str| {
            let required = RequiredCapabilities::from_wire(required.as_bytes(), []);
            required.is_some_and(|required| required.are_declared(reply.capabilities))
        };
        if version.is_modern()
            && let Some(required) = required_capability(&result.facts.error_kind)
            // If the client declared the capability, the gateway withheld it for another reason.
            && !is_declared(required)
        {
            let error = RpcError::missing_capability(required);
            return McpResponse::error(Some(id), &error.of_call(call_id, recorded.receipt()));
        }
        match self.result_format {
            ResultFormat::Mcp if !result.error.is_empty() => {
                McpResponse::protocol_error(id, version, call_id, recorded, &result.error)
            }
            ResultFormat::Direct => McpResponse::direct(id, call_id, recorded, result),
            ResultFormat::Mcp => McpResponse::call_result(id, version, call_id, recorded, result),
        }
    }

    /// Returns the result with `isError` for a rejection that the model should read, or `None` for a JSON-RPC error.
    fn render_rejection_as_result(
        &self,
        reply: &Reply<'_>,
        recorded: RecordStatus,
        rejection: &Rejection,
    ) -> Option<McpResponse> {
        let (id, version, call_id) = (&reply.context.id, reply.context.version, reply.call_id);
        match rejection {
            _ if self.result_format == ResultFormat::Direct => None,
            Rejection::Denied {
                reason,
                decision,
                visible: true,
                ..
            } => {
                let reason = reason.as_str();
                Some(McpResponse::denial_result(
                    id, version, call_id, recorded, reason, *decision,
                ))
            }
            // Older versions have no error code for this case, and the model may find another way.
            Rejection::MissingCapability(_) | Rejection::InputError(_) if !version.is_modern() => {
                let message = "The tool requests input, which is not supported here.";
                Some(McpResponse::failure_result(
                    id, version, call_id, recorded, message,
                ))
            }
            _ => None,
        }
    }

    fn not_found_error(&self) -> RpcError {
        match self.result_format {
            ResultFormat::Direct => RpcError::forbidden_tool(&self.name),
            ResultFormat::Mcp => RpcError::unknown_tool(&self.name),
        }
    }

    /// Returns the outcome of a call that needs input: from the client, or from its user, who has to connect the source first.
    fn input_outcome(
        &self,
        run: &PermittedRun<'_, Arc<Tool>>,
        mut input_required: Box<InputRequired>,
    ) -> RoundOutcome<ToolCallOutput> {
        let Some(connect) = &input_required.connect else {
            return RoundOutcome::InputRequired(input_required);
        };
        let capabilities = run.client.capabilities();
        let prompt = wardgate_connect::prompt_to_connect(
            &run.services.connect_pages,
            &run.context.caller,
            connect,
            capabilities.as_deref(),
        );
        match prompt {
            ConnectPrompt::InputRequests(requests) if self.result_format == ResultFormat::Mcp => {
                input_required.requests = requests;
                RoundOutcome::InputRequired(input_required)
            }
            ConnectPrompt::InputRequests(_) => RoundOutcome::Output(not_connected(
                "The source acts in your name, and you have not authorized it yet.",
            )),
            ConnectPrompt::Message(message) => RoundOutcome::Output(not_connected(&message)),
        }
    }
}

/// Returns the output of a call whose user has not connected the source. The tool did not run.
fn not_connected(message: &str) -> ToolCallOutput {
    let content = serde_json::json!([{ "type": "text", "text": message }]);
    ToolCallOutput::Result(Box::new(ToolResult {
        content: content.to_string().into(),
        structured_content: Bytes::new(),
        is_error: true,
        other_members: Bytes::new(),
        meta: Bytes::new(),
        error: Bytes::new(),
        facts: ResultFacts {
            status: Status::Error,
            error_kind: Reason::NOT_CONNECTED.as_str().to_owned(),
            rows: 0,
            rows_withheld: 0,
            fields_redacted: 0,
            dropped_columns: DroppedColumns::default(),
            phi: false,
            retry_after: None,
            stages: Vec::new(),
            outline: None,
        },
    }))
}

/// Returns the rejection of a call that became a task whose id cannot be handed out.
fn task_not_handed_out(tool: &Tool) -> Rejection {
    if !tool.facts.read_only {
        return Rejection::OutcomeUnknown;
    }
    Rejection::Failed {
        kind: Reason::STORE_UNAVAILABLE,
        message: "The call became a task that cannot be returned now. Try again later.",
    }
}

/// Converts an error of the tool-runner.
pub(crate) fn run_error(admission: &RequestAdmission, error: &CallError, tool: &Tool) -> RunError {
    match error.reason() {
        ErrorReason::PermitRefused => RunError::PermitRefused,
        ErrorReason::Overloaded => Rejection::NotAttempted(admission.neighbour_overloaded()).into(),
        ErrorReason::DeadlineExceeded => Rejection::TimedOut(tool.time_limit).into(),
        ErrorReason::NotDurable => Rejection::NotRecorded.into(),
        // The tool was removed or switched off since the catalogue was listed.
        ErrorReason::UnknownTool => Rejection::Unknown.into(),
        _ => {
            tracing::warn!(%error, "the tool-runner did not report the outcome of the call");
            lost_call(tool).into()
        }
    }
}

/// Returns the rejection of a call whose outcome is unknown.
pub(crate) fn lost_call(tool: &Tool) -> Rejection {
    // The tool may have run, and a write must not be repeated on a guess.
    if !tool.facts.read_only {
        return Rejection::OutcomeUnknown;
    }
    Rejection::Failed {
        kind: Reason::TOOL_RUNNER_UNAVAILABLE,
        message: "The tool could not be run. Try again later.",
    }
}

/// Returns the capabilities, a JSON object, that a server requires of its client, if that is what `error_kind` stands for.
fn required_capability(error_kind: &str) -> Option<&'static str> {
    match error_kind {
        "needs_sampling" => Some(r#"{"sampling":{}}"#),
        "needs_elicitation" => Some(r#"{"elicitation":{}}"#),
        "needs_roots" => Some(r#"{"roots":{}}"#),
        "needs_tasks" => Some(task_handle::NEEDED),
        _ => None,
    }
}
