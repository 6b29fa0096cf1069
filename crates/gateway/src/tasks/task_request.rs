//! The operation `tasks/get`, `tasks/update` or `tasks/cancel` on one task. The pipeline around it is `governed_call`.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use serde_json::Value;
use wardgate_domain::{Caller, Digest, Reason, Status, ToolFacts};
use wardgate_mcp_server::{
    InputRecipient, InputRequests, McpResponse, RpcError, call_meta, task_result_members,
    write_dropped,
};
use wardgate_rpc::client::{
    CallError, CallEvent, CallTool, ResultFacts, Resumption, Task, TaskStep, ToolResult,
};

use super::{TaskMethod, unknown_task_error};
use crate::call_tool;
use crate::catalogue::{CatalogueIndex, Tool, View};
use crate::governed_call::{
    AnswerContent, CatalogueEntry, Description, EntryUse, Operation, Output, PermittedRun,
    Rejection, Reply, RoundOutcome, RunError,
};
use crate::request_context::RequestContext;
use crate::task_handle::TaskHandle;

/// The recorded reason for an unknown task.
pub(super) const UNKNOWN: Reason = Reason::UNKNOWN_TASK;

/// The tool-runner's error kind for a task that it does not know.
const NOT_WAITING: Reason = Reason::NOT_WAITING;

/// A request about a task, parsed but not yet authorized.
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

/// The output of a step: the members of the result, or the message of an error.
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
        Some(Digest::compute(result.as_bytes()))
    }
}

/// The tool whose call became the task. The requirements on the call's request and client were checked when the task began.
pub(super) struct TaskTool(Arc<Tool>);

impl CatalogueEntry for TaskTool {
    fn facts(&self) -> &ToolFacts {
        self.0.facts()
    }

    fn is_enabled_for(&self, caller: &Caller) -> bool {
        self.0.is_enabled_for(caller)
    }

    fn label(&self) -> &str {
        self.0.label()
    }
}

impl Operation for TaskRequest {
    type Entry = TaskTool;
    type Output = TaskOutput;

    fn describe(
        &self,
        catalogue: Option<&CatalogueIndex>,
        view: &View,
    ) -> Description<'_, TaskTool> {
        let tool = catalogue.and_then(|catalogue| view.tool(catalogue, &self.handle.tool));
        Description {
            method: self.method.as_str(),
            protocol: self.protocol,
            recorded_name: Some(&self.handle.tool),
            arguments: &self.arguments,
            conversation: self.handle.conversation(),
            mirrored_headers: None,
            agent_refusal: None,
            refusal_key: None,
            // A task requests input in its result, without a `requestState`.
            binding: None,
            resumable: None,
            unknown_reason: UNKNOWN,
            entry_use: tool.map(|tool| EntryUse {
                policy_arguments: self.arguments.clone(),
                may_write: self.method.0 != TaskStep::Get && !tool.facts.read_only,
                entry: TaskTool(Arc::clone(tool)),
            }),
        }
    }

    async fn run(
        &self,
        mut run: PermittedRun<'_, TaskTool>,
    ) -> Result<RoundOutcome<TaskOutput>, RunError> {
        let (services, caller) = (run.services, &run.context.caller);
        let TaskTool(tool) = run.entry;
        let capabilities = run.client.capabilities();
        let resumption = Resumption {
            state: self.handle.state(),
            responses: self.responses.clone(),
            task_step: Some(self.method.0),
        };
        let mut interaction =
            (run.client).tool_runner_interaction(capabilities.as_deref(), Some(resumption));
        // The client's responses answer the requests of the task. They are part of the resumption.
        interaction.passthrough.unsolicited_responses.clear();
        let stream = services.runner.call_tool(CallTool {
            call_id: run.call_id,
            caller,
            tool: &tool.facts.name,
            arguments: self.arguments.clone(),
            permit: &run.grant.permit,
            idempotency_key: None,
            interaction,
            caller_token: caller.token_for_source(tool.needs_caller_token),
            limit: tool.time_limit + Duration::from_secs(1),
        });
        let to_run_error =
            |error: CallError| call_tool::run_error(&services.admission, &error, tool);
        let events = run.client.unless_cancelled(Box::pin(stream)).await?;
        let mut events = pin!(events.map_err(to_run_error)?);
        while let Some(event) = run.client.unless_cancelled(events.next()).await? {
            match event.map_err(to_run_error)? {
                CallEvent::Task(task) => {
                    return Ok(RoundOutcome::Output(self.output_of_task(&run, *task)?));
                }
                CallEvent::Result(result) => {
                    return failed_output(&result).map(RoundOutcome::Output);
                }
                CallEvent::InputRequired(input_required) => {
                    let message = "The source acts in your name, and you have not authorized it. Call the tool again.";
                    let facts = ResultFacts {
                        status: Status::Error,
                        error_kind: Reason::NOT_CONNECTED.as_str().to_owned(),
                        ..input_required.facts
                    };
                    return Ok(RoundOutcome::Output(TaskOutput {
                        result: Err(message.to_owned()),
                        facts,
                    }));
                }
                // A task sends nothing but its state.
                CallEvent::Progress(_)
                | CallEvent::Log(_)
                | CallEvent::Completed(_)
                | CallEvent::StreamClosed => {}
            }
        }
        Err(call_tool::lost_call(tool).into())
    }

    fn render(&self, reply: &Reply<'_>, ending: AnswerContent<'_, TaskOutput>) -> McpResponse {
        let RequestContext { id, version, .. } = reply.context;
        let (output, recorded) = match ending {
            AnswerContent::Completed(output, recorded) => (output, recorded),
            AnswerContent::Rejected(rejection, recorded) => {
                return reply.error(rejection, recorded, unknown_task_error);
            }
        };
        match &output.result {
            Ok(members) => {
                let mut meta = call_meta(reply.call_id, recorded);
                write_dropped(&mut meta, output.facts.dropped_columns);
                McpResponse::result_with_meta(id, *version, members, &meta)
            }
            Err(message) => {
                let error = RpcError::internal(Reason::TASK_FAILED, message);
                McpResponse::error(Some(id), &error.of_call(reply.call_id, recorded.receipt()))
            }
        }
    }
}

impl TaskRequest {
    /// Returns the state of the task in the format for the client.
    fn output_of_task(
        &self,
        run: &PermittedRun<'_, TaskTool>,
        task: Task,
    ) -> Result<TaskOutput, Rejection> {
        let RequestContext { version, view, .. } = run.context;
        if task.about.is_empty() {
            return Ok(TaskOutput {
                result: Ok(String::new()),
                facts: task.facts,
            });
        }
        let mut members = self.handle.members(&task.about);
        if !task.requests.is_empty() {
            let capabilities = run.client.capabilities();
            let recipient = InputRecipient {
                version: *version,
                capabilities: capabilities.as_deref(),
                label: Some(run.entry.label()).filter(|_| !view.has_own_names()),
                ambient: &run.services.ambient,
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
}

/// Returns the output if the state of the task could not be read.
fn failed_output(result: &ToolResult) -> Result<TaskOutput, RunError> {
    if result.facts.error_kind == NOT_WAITING.as_str() {
        return Err(Rejection::Unknown.into());
    }
    let content: Vec<Value> = serde_json::from_slice(&result.content).unwrap_or_default();
    let message = content.first().and_then(|block| block["text"].as_str());
    Ok(TaskOutput {
        result: Err(message.unwrap_or("The task cannot be tracked.").to_owned()),
        facts: result.facts.clone(),
    })
}
