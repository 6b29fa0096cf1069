//! Dispatch of MCP messages: determines the protocol version of a message, and calls the handler of its method.
//!
//! The first of these rules that applies determines the version: on a stream of HTTP+SSE it is the version that was negotiated
//! there; a batch is 2025-03-26; `_meta` with a protocol version is modern, whatever the headers say; `initialize` negotiates
//! an older version; any other request has the older version that its session negotiated, or that its header names. A session
//! travels with its client, so any replica can answer any request.

mod discover;
mod initialize;
mod instructions;
mod list_tools;

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use metrics::{counter, histogram};
use serde_json::value::RawValue;
use wardgate_approvals::{ApprovalMethod, Approver};
use wardgate_domain::MemoryMethod;
use wardgate_json::scan;
use wardgate_limits::LIST_LIMITS;
use wardgate_mcp::Version;
use wardgate_mcp_server::{
    BATCH, ContentMethod, JsonRpcMessage, JsonRpcRequest, LISTEN, LogLevel, McpMethod, McpResponse,
    RequestMeta, ResultFormat, RpcError, cancelled_request_id, find_method, idempotency_key,
    negotiate, object, of_request, text_of,
};
use wardgate_resilience::concurrency::Slot;
use wardgate_revocations::RevocationMethod;
use wardgate_telemetry::names;

use crate::Gateway;
use crate::answer_pace;
use crate::call_tool::ToolCall;
use crate::client_interaction::ClientChannel;
use crate::content;
use crate::listen;
use crate::post::{Post, Transport, is_batch};
use crate::session::StreamableSessions;
use crate::subscribe::SubscriptionMethod;
use crate::tasks;

/// Answers one POST.
pub(crate) async fn answer_post(gateway: &Arc<Gateway>, post: &Post) -> McpResponse {
    let text = match scan_body(&post.body, gateway.limits.depth) {
        Ok(text) => text,
        Err(error) => return McpResponse::error(None, &error),
    };
    if is_batch(&post.body) {
        return batch(gateway, post, text).await;
    }
    answer_in_step(gateway, post, text).await
}

/// Returns the answer that refuses a POST with `error`. An error in the message itself takes precedence, as everywhere.
pub(crate) fn refuse_post(body: &[u8], depth: usize, error: &RpcError) -> McpResponse {
    let text = match scan_body(body, depth) {
        Ok(text) => text,
        Err(error) => return McpResponse::error(None, &error),
    };
    if is_batch(body) {
        return McpResponse::error(None, error);
    }
    match JsonRpcMessage::parse(text) {
        Ok(JsonRpcMessage::Request(request)) => McpResponse::error(Some(request.id), error),
        Ok(JsonRpcMessage::Notification | JsonRpcMessage::Response(_)) => {
            McpResponse::error(None, error)
        }
        Err((id, error)) => McpResponse::error(id, &error),
    }
}

fn scan_body(body: &[u8], depth: usize) -> Result<&str, RpcError> {
    scan(body, depth).map_err(|error| RpcError::parse(error.into(), error.to_string()))
}

/// Answers a batch. Only 2025-03-26 has batches; later versions removed them.
async fn batch(gateway: &Arc<Gateway>, post: &Post, text: &str) -> McpResponse {
    let has_batches = match post.version() {
        Ok(Some(version)) => version.has_batches(),
        Ok(None) => post.transport == Transport::Mcp,
        Err(_) => false,
    };
    if !has_batches {
        let error =
            RpcError::invalid_request("batches are supported only in protocol version 2025-03-26");
        return McpResponse::error(None, &error);
    }
    let messages: Vec<&RawValue> = match serde_json::from_str(text) {
        Ok(messages) => messages,
        Err(_) => return McpResponse::error(None, &RpcError::invalid_request("not a batch")),
    };
    if messages.is_empty() || messages.len() > BATCH {
        let error =
            RpcError::invalid_request(format!("a batch must contain 1 to {BATCH} messages"));
        return McpResponse::error(None, &error);
    }
    let mut answers = Vec::with_capacity(messages.len());
    for message in messages {
        answers.push(answer_in_step(gateway, post, message.get()).await);
    }
    McpResponse::batch(answers)
}

async fn answer_in_step(gateway: &Arc<Gateway>, post: &Post, text: &str) -> McpResponse {
    let arrived = Instant::now();
    let answer = answer_message(gateway, post, text).await;
    if answer.is_of_unknown() {
        answer_pace::wait_for_step(arrived).await;
    }
    answer
}

async fn answer_message(gateway: &Arc<Gateway>, post: &Post, text: &str) -> McpResponse {
    let request = match JsonRpcMessage::parse(text) {
        Ok(JsonRpcMessage::Request(request)) => request,
        Ok(message @ (JsonRpcMessage::Notification | JsonRpcMessage::Response(_))) => {
            if let (Some(session), Some(id)) = (&post.streamable, cancelled_request_id(text)) {
                gateway
                    .pipeline
                    .channels()
                    .router()
                    .cancel(session, id)
                    .await;
            }
            if let (Some(session), JsonRpcMessage::Response(response)) =
                (post.session_name(), message)
            {
                gateway
                    .pipeline
                    .channels()
                    .router()
                    .deliver(&post.caller, &session, &response)
                    .await;
            }
            return match post.version() {
                Ok(_) => McpResponse::accepted_without_body(),
                Err(error) => McpResponse::error(None, &error),
            };
        }
        Err((id, error)) => return McpResponse::error(id, &error),
    };
    let version = match determine_version(post, &request) {
        Ok(version) => version,
        Err(error) => return McpResponse::error(Some(request.id), &error),
    };
    let answer = measure_request(gateway, post, &request, version).await;
    answer.unwrap_or_else(|error| McpResponse::error(Some(request.id), &error))
}

/// Determines the protocol version of a request by the first rule that applies (see the module documentation).
fn determine_version(post: &Post, request: &JsonRpcRequest<'_>) -> Result<Version, RpcError> {
    if let Some(session) = &post.session {
        return session.speaks(request);
    }
    // The plain endpoint requires no transport headers, so none are compared with the message.
    let headers = (post.transport == Transport::Mcp).then_some(&post.headers);
    if let Some(meta) = RequestMeta::from_modern_request(request)? {
        return meta.version(request, headers);
    }
    if request.method == "initialize" {
        return negotiate(request);
    }
    match (post.version()?, post.transport) {
        (Some(version), _) if version.is_modern() => Err(RpcError::without_meta(version)),
        (Some(version), _) => Ok(version),
        // "If the server does not receive the header … it SHOULD assume 2025-03-26."
        (None, Transport::Mcp) => Ok(Version::V2025_03_26),
        (None, Transport::Message | Transport::Sse) => Ok(Version::NEWEST_LEGACY),
    }
}

/// Dispatches a request, and counts and times it.
async fn measure_request(
    gateway: &Arc<Gateway>,
    post: &Post,
    request: &JsonRpcRequest<'_>,
    version: Version,
) -> Result<McpResponse, RpcError> {
    let known = find_method(&request.method);
    let method = known.map_or("other", |method| method.name);
    counter!(names::MCP_REQUESTS, "method" => method).increment(1);
    let started = Instant::now();
    let answer = dispatch_within_limits(gateway, post, request, known, version).await;
    let outcome = if answer.is_ok() {
        "answered"
    } else {
        "refused"
    };
    histogram!(names::MCP_SECONDS, "method" => method, "outcome" => outcome)
        .record(started.elapsed());
    answer
}

/// Checks the scope of the method, waits for a slot if the method needs one, and dispatches the request.
async fn dispatch_within_limits(
    gateway: &Arc<Gateway>,
    post: &Post,
    request: &JsonRpcRequest<'_>,
    known: Option<&'static McpMethod>,
    version: Version,
) -> Result<McpResponse, RpcError> {
    post.access.check_method(&request.method)?;
    let mut slot = if known.is_some_and(|method| method.needs_slot) {
        Some(
            gateway
                .admission
                .admit(&post.caller, post.limit_report.as_deref())
                .await?,
        )
    } else {
        None
    };
    // Boxed, because otherwise each function on the way here would copy this future within its own.
    let answering = Box::pin(dispatch(gateway, post, request, known, version, &mut slot));
    let answer = answering.await;
    if let (Some(slot), Some(method), Ok(_)) = (slot, known, &answer) {
        slot.end_call(method.name);
    }
    answer
}

/// Calls the handler of the method. A tool call takes `slot` with it, because it may run longer than its client waits.
async fn dispatch(
    gateway: &Arc<Gateway>,
    post: &Post,
    request: &JsonRpcRequest<'_>,
    known: Option<&'static McpMethod>,
    version: Version,
    slot: &mut Option<Slot>,
) -> Result<McpResponse, RpcError> {
    // A method that this version does not have is unknown.
    let known = known.filter(|method| method.versions.include(version));
    match known.map_or("", |method| method.name) {
        "tools/call" => call_tool(gateway, post, request, version, slot).await,
        "tools/list" => list_tools::list_tools(&gateway.discovery, post, request, version).await,
        "server/discover" => {
            Ok(discover::discover(&gateway.discovery, post, request, version).await)
        }
        // The plain endpoint has a single response to a POST, and no streams.
        LISTEN if post.transport == Transport::Mcp => {
            let (listeners, watcher) = (&gateway.listeners, &gateway.resource_watcher);
            let pipeline = &gateway.pipeline;
            Box::pin(listen::listen(listeners, watcher, pipeline, post, request)).await
        }
        "initialize" => {
            let answer = initialize::initialize(&gateway.discovery, post, request, version).await;
            if post.transport != Transport::Mcp || is_batch(&post.body) {
                return Ok(answer);
            }
            let sessions = &gateway.sessions;
            let begun = sessions.begin(&post.view, &post.caller, request, version);
            Ok(answer.in_session(begun.await))
        }
        "ping" => Ok(McpResponse::empty(request.id)),
        SET_LEVEL if post.transport != Transport::Message => {
            set_level(&gateway.sessions, post, request).await
        }
        method if let Some(of_content) = ContentMethod::from_name(method) => {
            let (pipeline, memory) = (&gateway.pipeline, gateway.memory.as_ref());
            content::answer(pipeline, memory, post, request, version, of_content, slot).await
        }
        // The notifications are sent on a stream, which the plain endpoint does not have.
        method
            if let Some(subscribe) = SubscriptionMethod::from_name(method)
                && post.transport != Transport::Message =>
        {
            let (watcher, memory) = (&gateway.resource_watcher, gateway.listeners.memory());
            Box::pin(subscribe.answer(watcher, memory, post, request, version)).await
        }
        LIST_LIMITS => {
            let answer = (gateway.limits_view).answer(request, version, &post.caller);
            Box::pin(answer).await
        }
        method
            if let Some(of_memory) = of_memory(method)
                && post.view.has_conversations() =>
        {
            let memory = gateway.memory.as_ref();
            let memory = memory.ok_or_else(|| RpcError::unknown_method(method, version))?;
            memory.answer(post, request, version, of_memory).await
        }
        method if let Some(of_tasks) = tasks::TaskMethod::from_name(method) => {
            tasks::answer(&gateway.pipeline, post, request, version, of_tasks, slot).await
        }
        method if let Some(of_approvals) = ApprovalMethod::from_name(method) => {
            let approver = Approver {
                caller: Arc::clone(&post.caller),
                client_ip: post.client_ip.clone(),
                protocol: post.protocol(version).to_owned(),
            };
            let approvals = gateway.pipeline.approvals();
            Box::pin(approvals.answer(request, version, of_approvals, approver)).await
        }
        method if let Some(of_revocations) = RevocationMethod::from_name(method) => {
            let operator = &post.caller;
            let answer = (gateway.revocations).answer(request, version, of_revocations, operator);
            Box::pin(answer).await
        }
        "" if post.transport == Transport::Message && gateway.takes_direct_methods => {
            let meta = RequestMeta::from_request(request)?;
            let call = parse_tool_call(post, request, &meta, version, request.method.to_string())?;
            let call = ToolCall {
                result_format: ResultFormat::Direct,
                ..call
            };
            let slot = gateway
                .admission
                .admit(&post.caller, post.limit_report.as_deref())
                .await?;
            let context = post.request_context(request, version, Some(slot));
            let channel = ClientChannel::response_only(version);
            gateway.pipeline.run(request, context, channel, call).await
        }
        _ => Err(RpcError::unknown_method(&request.method, version)),
    }
}

/// Runs a tool call. The call takes `slot` with it, because it may run longer than its client waits.
async fn call_tool(
    gateway: &Arc<Gateway>,
    post: &Post,
    request: &JsonRpcRequest<'_>,
    version: Version,
    slot: &mut Option<Slot>,
) -> Result<McpResponse, RpcError> {
    let name = request
        .params
        .name
        .and_then(text_of)
        .ok_or_else(|| RpcError::invalid_params("`params.name` must be a string"))?;
    let meta = RequestMeta::from_request(request)?;
    let mut channel = gateway
        .pipeline
        .channels()
        .for_request(post, request, &meta, version)?;
    let call = parse_tool_call(post, request, &meta, version, name.into_owned())?;
    let context = post.request_context(request, version, slot.take());
    let Some(session) = &post.session else {
        return gateway.pipeline.run(request, context, channel, call).await;
    };
    let under_way = session.begin(request.id);
    channel.cancel = under_way.cancel.clone();
    let answer = gateway
        .pipeline
        .run(request, context, channel, call)
        .await?;
    // A client that cancelled the call expects no answer.
    Ok(if under_way.cancel.is_cancelled() {
        McpResponse::accepted_without_body()
    } else {
        answer
    })
}

/// The method that sets the lowest level of the log messages for a session, before 2026-07-28.
const SET_LEVEL: &str = "logging/setLevel";

async fn set_level(
    sessions: &StreamableSessions,
    post: &Post,
    request: &JsonRpcRequest<'_>,
) -> Result<McpResponse, RpcError> {
    #[derive(serde::Deserialize)]
    struct SetLevelParams<'a> {
        #[serde(borrow)]
        level: std::borrow::Cow<'a, str>,
    }
    let params = request.raw_params();
    let params = params.and_then(|params| object::<SetLevelParams<'_>>(params.get()));
    let level = params.and_then(|params| LogLevel::from_name(&params.level));
    let level = level.ok_or_else(|| {
        RpcError::invalid_params(
            "`params.level` must be debug, info, notice, warning, error, critical, alert or emergency",
        )
    })?;
    match (&post.session, &post.streamable) {
        (Some(session), _) => session.set_log_level(level),
        (None, Some(session)) => sessions.set_log_level(session, level).await?,
        (None, None) => {
            return Err(RpcError::invalid_request(
                "a log level belongs to a session; initialize, and send Mcp-Session-Id",
            ));
        }
    }
    Ok(McpResponse::empty(request.id))
}

/// Returns the memory method of this name.
fn of_memory(method: &str) -> Option<MemoryMethod> {
    method.parse().ok()
}

fn parse_tool_call(
    post: &Post,
    request: &JsonRpcRequest<'_>,
    meta: &RequestMeta<'_>,
    version: Version,
    name: String,
) -> Result<ToolCall, RpcError> {
    let arguments = match request.params.arguments {
        None => Bytes::from_static(b"{}"),
        Some(raw) if raw.get().starts_with('{') => post.body.slice_ref(raw.get().as_bytes()),
        Some(_) => {
            return Err(RpcError::invalid_params(
                "`params.arguments` must be an object",
            ));
        }
    };
    Ok(ToolCall {
        protocol: post.protocol(version),
        idempotency_key: idempotency_key(meta, &post.headers)?,
        conversation: meta.conversation()?,
        agent_refusal: meta.agent_refusal()?,
        // Only this transport has mirrored headers.
        mirrored_headers: (version.is_modern() && post.transport == Transport::Mcp)
            .then(|| of_request(&post.headers)),
        name,
        arguments,
        result_format: ResultFormat::Mcp,
    })
}
