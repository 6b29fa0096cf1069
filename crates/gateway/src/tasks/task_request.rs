//! The operation on one task: `tasks/get`, `tasks/update` or `tasks/cancel`. The pipeline around it is `governed_call`.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use serde_json::Value;
use tracing::Span;
use wardgate_domain::{CallFacts, CallId, Digest, Outcome, Status, ToolFacts};
use wardgate_mcp::Version;
use wardgate_mcp_server::{
    Answer, RecordStatus, RpcError, call_meta, task_result_members, write_dropped,
};
use wardgate_rpc::client::{
    Besides, CallEvent, CallTool, Interaction, ResultFacts, Resumption, Task, TaskStep, ToolResult,
};
use wardgate_telemetry::names;

use super::{TaskMethod, unknown};
use crate::authority::Grant;
use crate::call_tool::{self, ToolCall};
use crate::catalogue::View;
use crate::catalogue::{CatalogueIndex, Tool};
use crate::client_interaction::{InputRecipient, InputRequests};
use crate::governed_call::{
    GovernedCall, Operation, Output, Rejection, RequestBinding, Resource, RunError, RunOutcome,
    SealedOperation,
};
use crate::measures;
use crate::request_context::RequestContext;
use crate::task_handle::TaskHandle;

/// The reason on record for an unknown task.
pub(super) const UNKNOWN: &str = "unknown_task";

/// The error kind of the tool-runner for a task that it does not know.
const NOT_WAITING: &str = "not_waiting";

/// One request about a task, parsed but not yet decided on.
#[derive(Clone)]
pub(super) struct TaskRequest {
    pub(super) method: TaskMethod,
    pub(super) handle: TaskHandle,
    /// The arguments of the call that became the task.
    pub(super) arguments: Bytes,
    /// The input responses of the client. Empty if it sent none.
    pub(super) responses: Bytes,
    pub(super) protocol: &'static str,
}

/// The members of the result, or the message of an error.
pub(super) struct TaskOutput {
    result: Result<String, String>,
    facts: ResultFacts,
}

impl Output for TaskOutput {
    fn facts(&self) -> &ResultFacts {
        &self.facts
    }

    fn digest(&self) -> Option<Digest> {
        let result = self.result.as_ref().ok()?;
        Some(Digest::of(result.as_bytes()))
    }
}

impl Operation for TaskRequest {
    type Resource = <ToolCall as Operation>::Resource;
    type Output = TaskOutput;

    const UNKNOWN: &'static str = UNKNOWN;

    fn method(&self) -> &'static str {
        self.method.as_str()
    }

    fn describe_arrival(&self, call_id: CallId, context: &RequestContext) -> (CallFacts, Span) {
        let method = self.method.as_str();
        let span = tracing::info_span!(
            "tasks",
            method,
            { names::CALL_ID } = %call_id,
            { names::CALLER } = context.caller.subject(),
            { names::TOOL } = tracing::field::Empty,
        );
        let (caller, ip) = (&context.caller, context.client_ip.clone());
        let (tool, arguments) = (&self.handle.tool, &self.arguments);
        let facts = CallFacts::arriving(call_id, caller, ip, self.protocol, tool, arguments);
        (facts.by_method(method), span)
    }

    fn find_resource(&self, catalogue: &CatalogueIndex, view: &View) -> Option<Self::Resource> {
        view.tool(catalogue, &self.handle.tool).cloned()
    }

    fn policy_arguments(&self, _tool: &Self::Resource) -> Bytes {
        self.arguments.clone()
    }

    fn may_write(&self, facts: &ToolFacts) -> bool {
        self.method.0 != TaskStep::Get && !facts.read_only
    }

    /// None: a task requests input by its result.
    fn request_binding(&self) -> Option<RequestBinding<'_>> {
        None
    }

    async fn run(
        call: &mut GovernedCall<Self>,
        tool: &Self::Resource,
        grant: &Grant,
        _resumption: Option<Resumption>,
    ) -> Result<RunOutcome<TaskOutput>, RunError> {
        let (task_request, gateway) = (&call.operation, &call.gateway);
        let capabilities = call.client.capabilities();
        let stream = gateway.runner().call_tool(CallTool {
            call_id: call.facts.call_id,
            caller: &call.context.caller,
            tool: &tool.facts.name,
            arguments: task_request.arguments.clone(),
            permit: &grant.permit,
            idempotency_key: None,
            interaction: Interaction {
                capabilities: capabilities.as_deref(),
                log_level: None,
                resumption: Some(Resumption {
                    state: task_request.handle.state(),
                    responses: task_request.responses.clone(),
                    task_step: Some(task_request.method.0),
                }),
                besides: Besides {
                    unasked: Bytes::new(),
                    ..call.client.besides()
                },
                is_legacy: call.client.is_legacy(),
            },
            caller_token: call
                .context
                .caller
                .token_for_source(tool.needs_caller_token),
            limit: tool.time_limit + Duration::from_secs(1),
        });
        let events = call.client.unless_cancelled(Box::pin(stream)).await?;
        let refused = |error| call_tool::run_error(&call.gateway, &error, tool);
        let mut events = pin!(events.map_err(refused)?);
        while let Some(event) = call.client.unless_cancelled(events.next()).await? {
            match event.map_err(refused)? {
                CallEvent::Task(task) => {
                    return Ok(RunOutcome::Output(output_of_task(call, tool, *task)?));
                }
                CallEvent::Result(result) => return failed_output(&result).map(RunOutcome::Output),
                CallEvent::InputRequired(input_required) => {
                    let message = "The source acts in your name, and you have not allowed that. Call the tool again.";
                    let facts = ResultFacts {
                        status: Status::Error,
                        error_kind: "not_connected".to_owned(),
                        ..input_required.facts
                    };
                    return Ok(RunOutcome::Output(TaskOutput {
                        result: Err(message.to_owned()),
                        facts,
                    }));
                }
                // A task sends nothing but its state.
                CallEvent::Progress(_) | CallEvent::Log(_) | CallEvent::Completed(_) => {}
            }
        }
        Err(call_tool::lost_call(tool).into())
    }

    fn to_sealed(&self) -> Option<SealedOperation> {
        None
    }

    fn report_outcome(&self, outcome: &Outcome, is_hidden: bool) {
        measures::ended(outcome, is_hidden);
        tracing::info!(
            status = outcome.status.as_str(),
            reason = outcome.reason,
            "look after a task ended"
        );
    }

    fn release(call: &GovernedCall<Self>, recorded: RecordStatus, output: &TaskOutput) -> Answer {
        let RequestContext { id, version, .. } = &call.context;
        let call_id = call.facts.call_id;
        match &output.result {
            Ok(members) => {
                let mut meta = call_meta(call_id, recorded);
                write_dropped(&mut meta, output.facts.dropped_columns);
                Answer::result_with_meta(id, *version, members, &meta)
            }
            Err(message) => {
                let error = RpcError::internal("task_failed", message);
                Answer::error(Some(id), &error.of_call(call_id, recorded.receipt()))
            }
        }
    }

    fn not_found_error(&self, _version: Version) -> RpcError {
        unknown()
    }
}

/// The state of the task, in the form for the client.
fn output_of_task(
    call: &GovernedCall<TaskRequest>,
    tool: &Arc<Tool>,
    task: Task,
) -> Result<TaskOutput, Rejection> {
    let RequestContext { version, view, .. } = &call.context;
    if task.about.is_empty() {
        return Ok(TaskOutput {
            result: Ok(String::new()),
            facts: task.facts,
        });
    }
    let mut members = call.operation.handle.members(&task.about);
    if !task.requests.is_empty() {
        let capabilities = call.client.capabilities();
        let recipient = InputRecipient {
            version: *version,
            capabilities: capabilities.as_deref(),
            label: Some(tool.label()).filter(|_| !view.has_own_names()),
            ambient: call.gateway.ambient(),
        };
        let input_requests = InputRequests::parse(&task.requests, recipient)?;
        members += r#","inputRequests":"#;
        members += input_requests.as_json();
    }
    if let Some(mut result) = task.result {
        result.content = view.content(result.content);
        members += r#","result":{"#;
        members += &task_result_members(*version, &result);
        members.push('}');
    }
    if !task.error.is_empty() {
        members += r#","error":"#;
        members += &task.error;
    }
    Ok(TaskOutput {
        result: Ok(members),
        facts: task.facts,
    })
}

/// The output where the state of the task could not be read.
fn failed_output(result: &ToolResult) -> Result<TaskOutput, RunError> {
    if result.facts.error_kind == NOT_WAITING {
        return Err(Rejection::Unknown.into());
    }
    let content: Vec<Value> = serde_json::from_slice(&result.content).unwrap_or_default();
    let message = content.first().and_then(|block| block["text"].as_str());
    Ok(TaskOutput {
        result: Err(message
            .unwrap_or("The task cannot be looked after.")
            .to_owned()),
        facts: result.facts.clone(),
    })
}
