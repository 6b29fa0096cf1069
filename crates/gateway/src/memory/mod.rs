//! Remembered conversations: the `memory/…` methods, which use the memory service and are recorded before they are answered.
//!
//! ```text
//!  method ──▶ fields ──▶ operation ─▶ memory service
//!             (strict)      │  ▲ messages, with what the caller may no longer read withheld
//!                           ▼
//!                        the record ──receipt──▶ answer
//! ```
//!
//! Each operation has its own file with its parameters, its request to the memory service and its result. All of them run
//! through [`ConversationMemory::answer`].

mod add_message;
mod clear;
mod delete;
mod get_context;
mod get_or_create;
mod get_turn;
mod list_resources;
mod message;
mod read_resource;
mod rejection;
mod search;
mod uri;

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use serde_json::value::RawValue;
use tokio_util::task::TaskTracker;
use tracing::Instrument;
use wardgate_domain::{
    Ambient, CallFacts, CallId, Caller, ColumnClass, ConversationKey, MemoryAccess, MemoryMethod,
    Message, ReadDecision, Reason, Status,
};
use wardgate_gateway_record::{CallRecorder, stage};
use wardgate_mcp::Version;
use wardgate_mcp_server::{
    JsonRpcRequest, McpResponse, ObjectMembers, RpcError, call_meta, inner, text_of,
};
use wardgate_resilience::LimitReport;
use wardgate_resilience::quota::QuotaUse;
use wardgate_rpc::client::{MemoryClient, OnBehalfOf};
use wardgate_telemetry::names;

use crate::discovery::Discovery;
use crate::post::Post;
use wardgate_limits::RequestAdmission;

pub(crate) use self::list_resources::{PrecedingResources, template};
pub(crate) use self::rejection::MemoryRejection;
pub(crate) use self::uri::{ConversationUri, TEMPLATE};

/// Time limit of a request to the memory service.
pub(crate) const LIMIT: Duration = Duration::from_secs(5);

/// A method of the memory.
trait MemoryOperation: Sized + Send + Sync + 'static {
    const METHOD: MemoryMethod;

    /// Parses the parameters. An error names the field.
    fn parse(params: &ObjectMembers<'_>) -> Result<Self, RpcError>;

    /// Returns further members for the `_meta` of the result.
    fn meta(&self) -> Option<&str> {
        None
    }

    /// Runs the operation with the memory service.
    fn run(
        &self,
        handler: &MemoryHandler<'_>,
    ) -> impl Future<Output = Result<MemoryOutput, MemoryRejection>> + Send;
}

/// The context of a memory operation.
struct MemoryHandler<'a> {
    discovery: &'a Discovery,
    memory: &'a MemoryClient,
    of: OnBehalfOf<'a>,
    version: Version,
}

/// The result of a memory operation, before it is released.
struct MemoryOutput {
    /// The result, a JSON object.
    result: String,
    conversation: Option<ConversationKey>,
    seen: MessageCounts,
    /// The decision that the caller may read the conversation, or `None` for the caller's own.
    recall: Option<ReadDecision>,
}

impl MemoryOutput {
    /// Creates an output about one conversation, without messages.
    fn about(conversation: ConversationKey, result: &Value) -> Self {
        Self {
            result: result.to_string(),
            conversation: Some(conversation),
            seen: MessageCounts::default(),
            recall: None,
        }
    }
}

/// The counts of messages for the record.
#[derive(Debug, Default)]
struct MessageCounts {
    messages: u64,
    withheld: u64,
    phi: bool,
}

impl MessageCounts {
    fn count<'a>(messages: impl IntoIterator<Item = &'a Message>) -> Self {
        let mut seen = Self::default();
        for message in messages {
            seen.messages += 1;
            seen.withheld += u64::from(message.withheld);
            let classes = message.call.iter().flat_map(|call| &call.tool.classes);
            seen.phi |= !message.withheld && classes.into_iter().any(ColumnClass::is_phi);
        }
        seen
    }
}

/// Handles the requests about remembered conversations.
pub(crate) struct ConversationMemory {
    client: MemoryClient,
    discovery: Arc<Discovery>,
    recorder: Arc<CallRecorder>,
    admission: Arc<RequestAdmission>,
    /// The calls in progress, including those whose client no longer waits.
    calls: TaskTracker,
    ambient: Ambient,
}

impl ConversationMemory {
    pub(crate) fn new(
        client: MemoryClient,
        discovery: &Arc<Discovery>,
        recorder: &Arc<CallRecorder>,
        admission: &Arc<RequestAdmission>,
        calls: &TaskTracker,
        ambient: &Ambient,
    ) -> Arc<Self> {
        Arc::new(Self {
            client,
            discovery: Arc::clone(discovery),
            recorder: Arc::clone(recorder),
            admission: Arc::clone(admission),
            calls: calls.clone(),
            ambient: ambient.clone(),
        })
    }

    /// Answers `request`, whose method is `method`.
    pub(crate) async fn answer(
        self: &Arc<Self>,
        post: &Post,
        request: &JsonRpcRequest<'_>,
        version: Version,
        method: MemoryMethod,
    ) -> Result<McpResponse, RpcError> {
        use MemoryMethod as Method;
        let own = MemoryRequest::new(self, post, request, version);
        match method {
            Method::GetOrCreate => own.answer::<get_or_create::GetOrCreate>(request).await,
            Method::GetContext => own.answer::<get_context::GetContext>(request).await,
            Method::AddMessage => own.answer::<add_message::AddMessage>(request).await,
            Method::GetTurn => own.answer::<get_turn::GetTurn>(request).await,
            Method::Clear => own.answer::<clear::ClearConversation>(request).await,
            Method::Delete => own.answer::<delete::DeleteConversation>(request).await,
            Method::Search => own.answer::<search::SearchMessages>(request).await,
            Method::List => own.answer::<list_resources::ListResources>(request).await,
            Method::Read => own.answer::<read_resource::ReadResource>(request).await,
        }
    }

    /// Answers a `resources/list` with the resources in `before`, followed by the first conversations.
    pub(crate) async fn list_behind(
        self: &Arc<Self>,
        post: &Post,
        request: &JsonRpcRequest<'_>,
        version: Version,
        before: PrecedingResources,
    ) -> McpResponse {
        let own = MemoryRequest::new(self, post, request, version);
        let operation = list_resources::ListResources::behind(before);
        own.run_recorded(operation).await
    }
}

/// Returns whether `uri` is a JSON string with the scheme of conversations.
pub(crate) fn is_about(uri: Option<&RawValue>) -> bool {
    let uri = uri.and_then(text_of);
    uri.is_some_and(|uri| is_uri(&uri))
}

/// Returns whether `uri` has the scheme of conversations.
pub(crate) fn is_uri(uri: &str) -> bool {
    uri.starts_with(uri::SCHEME)
}

/// A request to the memory, before its parameters are parsed.
struct MemoryRequest {
    memory: Arc<ConversationMemory>,
    id: Box<RawValue>,
    version: Version,
    call_id: CallId,
    facts: CallFacts,
    caller: Arc<Caller>,
    client_ip: String,
    limit_report: Option<Arc<LimitReport>>,
}

impl MemoryRequest {
    fn new(
        memory: &Arc<ConversationMemory>,
        post: &Post,
        request: &JsonRpcRequest<'_>,
        version: Version,
    ) -> Self {
        let call_id = CallId::new(&memory.ambient);
        let params = request.raw_params().map_or("{}", RawValue::get);
        Self {
            memory: Arc::clone(memory),
            id: request.id.to_owned(),
            version,
            call_id,
            facts: CallFacts::without_tool(
                call_id,
                &post.caller,
                post.client_ip.clone(),
                post.protocol(version),
                params.as_bytes(),
            ),
            caller: Arc::clone(&post.caller),
            client_ip: post.client_ip.clone(),
            limit_report: post.limit_report.clone(),
        }
    }

    async fn answer<E: MemoryOperation>(
        self,
        request: &JsonRpcRequest<'_>,
    ) -> Result<McpResponse, RpcError> {
        let operation = E::parse(&ObjectMembers::of_params(request.raw_params())?)?;
        Ok(self.run_recorded(operation).await)
    }

    /// Runs `operation` in a separate task, so that it is recorded even if the client disconnects.
    async fn run_recorded<E: MemoryOperation>(self, operation: E) -> McpResponse {
        let (id, call_id) = (self.id.clone(), self.call_id);
        let span = tracing::info_span!(
            "memory",
            method = E::METHOD.as_str(),
            { names::CALL_ID } = %call_id,
            { names::CALLER } = self.caller.subject(),
        );
        let calls = self.memory.calls.clone();
        // If the client disconnects, this future is dropped, but the task continues.
        let running = calls.spawn(self.run(operation).instrument(span));
        running.await.unwrap_or_else(|_| {
            let error = RpcError::internal(Reason::PANIC, "Internal error.").of_call(call_id, None);
            McpResponse::error(Some(&id), &error)
        })
    }

    /// Runs `operation`, records the access, and writes the answer.
    async fn run<E: MemoryOperation>(self, operation: E) -> McpResponse {
        let started = Instant::now();
        // An operation that cannot be recorded must not begin.
        if !self.memory.recorder.audit_log().is_ready() {
            return self.not_recorded();
        }
        let handler = MemoryHandler {
            discovery: &self.memory.discovery,
            memory: &self.memory.client,
            of: OnBehalfOf {
                caller: &self.caller,
                client_ip: &self.client_ip,
            },
            version: self.version,
        };
        let request = QuotaUse {
            caller: &self.caller,
            method: E::METHOD.as_str(),
            tool: "",
        };
        let charged = (self.memory.admission).charge(request, self.limit_report.as_deref());
        let ending = match charged.await {
            Ok(()) => operation.run(&handler).await,
            Err(error) => Err(MemoryRejection::neighbour(error)),
        };
        stage("memory", started.elapsed());
        let access = access(E::METHOD, self.facts.clone(), &ending, started.elapsed());
        tracing::info!(
            status = access.status.as_str(),
            reason = access.reason,
            messages = access.messages,
            withheld = access.withheld,
            "a memory operation completed"
        );
        let Ok(recorded) = self.memory.recorder.record_access(access).await else {
            return self.not_recorded();
        };
        match ending {
            Ok(done) => {
                let mut meta = call_meta(self.call_id, recorded);
                if let Some(more) = operation.meta() {
                    meta = format!("{meta},{more}");
                }
                let members = inner(&done.result);
                McpResponse::result_with_meta(&self.id, self.version, members, &meta)
            }
            Err(rejection) => {
                let error = rejection.error.of_call(self.call_id, recorded.receipt());
                McpResponse::error(Some(&self.id), &error)
            }
        }
    }

    fn not_recorded(&self) -> McpResponse {
        let error =
            RpcError::internal(Reason::NOT_DURABLE, NOT_RELEASED).of_call(self.call_id, None);
        McpResponse::error(Some(&self.id), &error)
    }
}

/// Message for a request that could not be recorded. A change may have been made, but all changes can be repeated without harm.
const NOT_RELEASED: &str = "The memory operation cannot be recorded durably, so its result is not released. Try again later.";

/// Builds the record of an access.
fn access(
    method: MemoryMethod,
    mut call: CallFacts,
    ending: &Result<MemoryOutput, MemoryRejection>,
    duration: Duration,
) -> MemoryAccess {
    let none = MessageCounts::default();
    let (conversation, seen, status, reason) = match ending {
        Ok(done) => (done.conversation, &done.seen, Status::Ok, ""),
        Err(rejection) => (None, &none, rejection.status, rejection.reason.as_str()),
    };
    let recall = ending.as_ref().ok().and_then(|done| done.recall.as_ref());
    if let Some(decision) = recall {
        call.decision_id = Some(decision.id);
        call.policy_hash = Some(decision.policy_hash);
        call.bundle = decision.bundle;
    }
    MemoryAccess {
        call,
        method,
        conversation,
        messages: seen.messages,
        withheld: seen.withheld,
        phi: seen.phi,
        status,
        reason: reason.to_owned(),
        duration,
    }
}
