//! `type: mcp`: calls a tool, reads a resource or gets a prompt of an MCP server.

mod errors;

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use wardgate_json::has_unique_members;

use self::errors::not_for_client;
use super::http::json;
use super::{Executor, Invocation, Output, Sources};
use crate::Error;
use crate::executor_error::ExecutorError;
use crate::interaction::{Elicitation, EndedElicitation};
use crate::resource_links::{in_content, in_content_text};
use crate::result::UnchangedResult;
use wardgate_catalogue::plan::{McpPlan, McpTarget, SentArguments};
use wardgate_mcp_client::{
    CallResult, ServerMessage, TaskStatus, Upstream, UpstreamError, UpstreamOperation,
    meta_for_client, other_members,
};

pub(super) fn open(plan: &McpPlan, sources: &Sources) -> Result<Arc<dyn Executor>, Error> {
    Ok(Arc::new(McpExecutor {
        upstream: sources.mcp(&plan.source.name)?,
        target: plan.target.clone(),
        links: plan.links.then(|| plan.source.name.clone()),
    }))
}

struct McpExecutor {
    upstream: Arc<Upstream>,
    target: McpTarget,
    /// The name of the source, if links to resources are rewritten to the URIs that clients know.
    links: Option<String>,
}

impl Executor for McpExecutor {
    fn run<'a>(
        &'a self,
        call: &'a Invocation<'a>,
        out: &'a mut Output<'_>,
    ) -> BoxFuture<'a, Result<(), ExecutorError>> {
        Box::pin(async move {
            match &self.target {
                McpTarget::Tool {
                    name,
                    pin,
                    arguments,
                    required,
                } => {
                    let is_shown = match call.elicitation {
                        Some(elicitation) => elicitation.satisfies(required),
                        None => required.is_empty(),
                    };
                    if !is_shown {
                        return Err(not_for_client(required));
                    }
                    let wanted = UpstreamOperation::Tool {
                        name: name.clone(),
                        arguments: raw_arguments(arguments, call)?,
                        pin: pin.clone(),
                        may_be_task: call.elicitation.is_some_and(Elicitation::offers_tasks),
                    };
                    self.call_tool(&wanted, call, out).await
                }
                McpTarget::Resource { uri } => {
                    let uri = uri.fill_plain(call.arguments)?;
                    self.read_resource(&uri, call, out).await
                }
                McpTarget::Prompt { name, arguments } => {
                    let arguments = raw_arguments(arguments, call)?;
                    self.get_prompt(name, arguments, call, out).await
                }
            }
        })
    }
}

impl McpExecutor {
    async fn call_tool(
        &self,
        wanted: &UpstreamOperation,
        call: &Invocation<'_>,
        out: &mut Output<'_>,
    ) -> Result<(), ExecutorError> {
        let upstream = self.upstream.for_caller(call.caller, call.caller_token)?;
        let result = if let Some(elicitation) = call.elicitation {
            match run_round(&upstream, elicitation, wanted, call, out).await? {
                Some(result) => result,
                None => return Ok(()),
            }
        } else {
            let mut listener = |message| forward_message(message, out);
            let called = upstream.call_tool(wanted, call.deadline, Some(&mut listener));
            called.await?
        };
        let called = CallResult::parse(&result)?;
        if out.takes_unchanged() {
            return self.forward_unchanged(&result, called, out);
        }
        let CallResult {
            content,
            structured,
            is_error,
            ..
        } = called;
        let mut content = content.map_or(Ok(json!([])), |content| value(&content))?;
        self.link(&mut content);
        let structured = structured
            .map(|structured| value(&structured))
            .transpose()?;
        out.content(content, structured, is_error).map(drop)
    }

    /// Passes a result on unchanged, except for links to resources, which are rewritten to the URIs that clients know.
    fn forward_unchanged(
        &self,
        result: &RawValue,
        called: CallResult,
        out: &mut Output<'_>,
    ) -> Result<(), ExecutorError> {
        if !has_unique_members(result.get()) {
            return Err(UpstreamError::BadResult("an object in it has a duplicate member").into());
        }
        let content = called.content.as_deref().map_or("[]", RawValue::get);
        let content = match &self.links {
            Some(source) => in_content_text(source, content),
            None => content.to_owned(),
        };
        let meta = called
            .meta
            .as_deref()
            .filter(|meta| meta.get().starts_with('{'));
        out.set_unchanged_result(UnchangedResult {
            content,
            structured: called.structured,
            is_error: called.is_error,
            others: other_members(result)?,
            meta: meta.map(meta_for_client).transpose()?.flatten(),
        })
    }

    /// Reads a resource. Each part of the resource becomes a block of content.
    async fn read_resource(
        &self,
        uri: &str,
        call: &Invocation<'_>,
        out: &mut Output<'_>,
    ) -> Result<(), ExecutorError> {
        let upstream = self.upstream.for_caller(call.caller, call.caller_token)?;
        let result = match call.elicitation {
            Some(elicitation) => {
                let wanted = UpstreamOperation::Resource {
                    uri: uri.to_owned(),
                };
                run_round(&upstream, elicitation, &wanted, call, out).await?
            }
            None => Some(upstream.read_resource(uri, call.deadline).await?),
        };
        let Some(result) = result else {
            return Ok(());
        };
        let mut blocks = items(value(&result)?, "contents")?
            .into_iter()
            .map(|part| json!({ "type": "resource", "resource": part }))
            .collect();
        self.link(&mut blocks);
        out.content(blocks, None, false).map(drop)
    }

    /// Gets a prompt. The content of each message becomes a block, and the structured part contains the role of each
    /// message.
    async fn get_prompt(
        &self,
        name: &str,
        arguments: Box<RawValue>,
        call: &Invocation<'_>,
        out: &mut Output<'_>,
    ) -> Result<(), ExecutorError> {
        let deadline = call.deadline;
        let upstream = self.upstream.for_caller(call.caller, call.caller_token)?;
        let result = match call.elicitation {
            Some(elicitation) => {
                let name = name.to_owned();
                let wanted = UpstreamOperation::Prompt { name, arguments };
                run_round(&upstream, elicitation, &wanted, call, out).await?
            }
            None => Some(upstream.get_prompt(name, &arguments, deadline).await?),
        };
        let Some(result) = result else {
            return Ok(());
        };
        let messages = items(value(&result)?, "messages")?;
        let mut blocks = messages
            .iter()
            .map(|message| message["content"].clone())
            .collect();
        self.link(&mut blocks);
        let structured = json!({ "messages": messages });
        out.content(blocks, Some(structured), false).map(drop)
    }
}

impl McpExecutor {
    /// Rewrites the links to resources in `blocks` to the URIs that clients know.
    fn link(&self, blocks: &mut Value) {
        if let Some(source) = &self.links {
            in_content(source, blocks);
        }
    }
}

/// Returns the arguments as one JSON object. The caller's bytes are passed on unchanged unless a default was added.
fn raw_arguments(
    arguments: &SentArguments,
    call: &Invocation<'_>,
) -> Result<Box<RawValue>, ExecutorError> {
    let filled = arguments.fill(call.arguments)?;
    let written = serde_json::from_slice::<&RawValue>(call.raw_arguments);
    if matches!(arguments, SentArguments::OfCall { .. })
        && let Ok(written) = written
        && serde_json::from_str::<Value>(written.get()).is_ok_and(|written| written == filled)
    {
        return Ok(written.to_owned());
    }
    to_raw_value(&filled).map_err(|_| ExecutorError::BadArgument {
        text: "the arguments cannot be written as JSON".to_owned(),
    })
}

/// Runs one round of an exchange in which the client can take part. Returns `None` if the server now waits for the
/// client, or continues as a task that is not completed.
async fn run_round(
    upstream: &Arc<Upstream>,
    elicitation: &Elicitation<'_>,
    wanted: &UpstreamOperation,
    call: &Invocation<'_>,
    out: &mut Output<'_>,
) -> Result<Option<Box<RawValue>>, ExecutorError> {
    let mut listener = |message| forward_message(message, out);
    let round = elicitation.round(upstream, wanted, call.deadline, &mut listener);
    match Box::pin(round).await? {
        EndedElicitation::Done(result) => Ok(Some(result)),
        EndedElicitation::Suspended(suspended) => {
            out.suspend_run(suspended);
            Ok(None)
        }
        EndedElicitation::Task(task) => {
            // The result of a completed task is the result of the call.
            let result = match &task.status {
                Some(TaskStatus::Completed(result)) => Some(result.clone()),
                _ => None,
            };
            out.task(task);
            Ok(result)
        }
    }
}

/// Forwards a message that the server sent besides its result. Returns whether the message was handled.
fn forward_message(message: ServerMessage, out: &mut Output<'_>) -> bool {
    match message {
        ServerMessage::Progress(report) => {
            let message = report.message.as_deref().unwrap_or_default();
            out.progress(report.done, report.total, message);
        }
        ServerMessage::Log(message) => out.log(message),
        ServerMessage::Completed(elicitation) => out.forward_completion(elicitation),
        ServerMessage::StreamClosed => out.stream_closed(),
        // A caller that can pass questions on to its client uses an exchange instead.
        ServerMessage::Question(_) => return false,
    }
    true
}

/// Parses a result as strictly as any other response.
fn value(raw: &RawValue) -> Result<Value, ExecutorError> {
    json(&Bytes::copy_from_slice(raw.get().as_bytes()))
}

/// Takes the list `member` out of a result.
fn items(mut result: Value, member: &str) -> Result<Vec<Value>, ExecutorError> {
    match result[member].take() {
        Value::Array(items) => Ok(items),
        _ => Err(ExecutorError::BadResult(format!(
            "the result has no list `{member}`"
        ))),
    }
}

#[cfg(test)]
mod tests;
