//! Tasks (MCP 2026-07-28, the extension `io.modelcontextprotocol/tasks`): calls of MCP servers' tools that continue after they
//! were answered.
//!
//! ```text
//!   tools/call ─▶ call_tool ─▶ the server makes a task of it ─▶ TaskHandle ─seal─▶ `taskId` for the client
//!   tasks/get, tasks/update, tasks/cancel ─▶ TaskHandle ◀─open─ `taskId`
//!                                             └▶ governed_call: authorize ─▶ step ─▶ outcome record ─▶ answer
//!   subscriptions/listen with `taskIds` ─▶ follow ┘   polled; each change is sent
//! ```
//!
//! The gateway stores no state of a task, so any replica can serve it. A task exists for callers who, by their current rights,
//! may make the call that began it. For all others it is unknown.

mod follow;
mod task_request;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::value::RawValue;
use wardgate_gateway_store::StoreUnavailable;
use wardgate_mcp::Version;
use wardgate_mcp_server::{JsonRpcRequest, McpResponse, RequestMeta, RpcError, object, text_of};
use wardgate_resilience::concurrency::Slot;
use wardgate_rpc::client::TaskStep;

use crate::governed_call::CallPipeline;
use crate::post::Post;
use crate::task_handle::{NEEDED, are_declared};

pub(crate) use self::follow::{FollowedTasks, TaskUpdate, follow};
use self::task_request::TaskRequest;

/// A method of tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TaskMethod(TaskStep);

impl TaskMethod {
    const ALL: [Self; 3] = [
        Self(TaskStep::Get),
        Self(TaskStep::Update),
        Self(TaskStep::Cancel),
    ];

    /// Returns the method of this name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        let mut methods = Self::ALL.into_iter();
        methods.find(|method| method.as_str() == name)
    }

    /// Returns the name of the method in JSON-RPC and in records.
    pub(crate) fn as_str(self) -> &'static str {
        match self.0 {
            TaskStep::Get => "tasks/get",
            TaskStep::Update => "tasks/update",
            TaskStep::Cancel => "tasks/cancel",
        }
    }
}

/// Returns the error for a task whose id cannot be opened, that no longer exists, or that is not for the caller: all alike.
fn unknown_task_error() -> RpcError {
    RpcError::invalid_params("unknown `taskId`").because(task_request::UNKNOWN)
}

/// Answers `request`, a request of a modern version.
pub(crate) async fn answer(
    pipeline: &Arc<CallPipeline>,
    post: &Post,
    request: &JsonRpcRequest<'_>,
    version: Version,
    method: TaskMethod,
    slot: &mut Option<Slot>,
) -> Result<McpResponse, RpcError> {
    let (services, meta) = (pipeline.services(), RequestMeta::from_request(request)?);
    let handle = request.params.task_id.and_then(text_of);
    let handle = handle.and_then(|id| services.task_handles.open(post, &id));
    // A task that was begun while the view offered tasks remains accessible.
    if handle.is_none() && !services.discovery.offers_tasks(&post.view) {
        return Err(RpcError::unknown_method(method.as_str(), version));
    }
    if !are_declared(meta.capabilities()) {
        return Err(RpcError::missing_capability(NEEDED));
    }
    let handle = handle.ok_or_else(unknown_task_error)?;
    let responses = match method.0 {
        TaskStep::Update => responses(post, request)?,
        TaskStep::Get | TaskStep::Cancel => Bytes::new(),
    };
    let arguments = match services.task_handles.arguments(&handle, &post.caller).await {
        Ok(arguments) => arguments.ok_or_else(unknown_task_error)?,
        Err(StoreUnavailable) => return Err(RpcError::store_unavailable()),
    };
    let task_request = TaskRequest {
        method,
        handle,
        arguments,
        responses,
        protocol: post.protocol(version),
    };
    let channels = pipeline.channels();
    let channel = channels.for_request(post, request, &meta, version)?;
    let context = post.request_context(request, version, slot.take());
    pipeline.run(request, context, channel, task_request).await
}

/// Returns the input responses of the client, as it wrote them.
fn responses(post: &Post, request: &JsonRpcRequest<'_>) -> Result<Bytes, RpcError> {
    let responses = request.params.input_responses;
    let are_objects = |raw: &&RawValue| {
        let by_key: Option<BTreeMap<String, &RawValue>> = object(raw.get());
        by_key.is_some_and(|by_key| by_key.values().all(|one| one.get().starts_with('{')))
    };
    let responses = responses.filter(are_objects).ok_or_else(|| {
        RpcError::invalid_params("`params.inputResponses` must be an object of objects")
    })?;
    Ok(post.body.slice_ref(responses.get().as_bytes()))
}
