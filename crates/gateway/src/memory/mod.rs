//! Remembered conversations: a caller's method goes through the memory service and onto the record, then its answer out.
//!
//! ```text
//!  method ──▶ fields ──▶ operation ─▶ memory service
//!             (strict)      │  ▲ messages, with what the caller may no longer read withheld
//!                           ▼
//!                        the record ──receipt──▶ answer
//! ```
//!
//! Each operation is a file: its parameters, its request to the memory service, its result. All go through [`answer`].

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
use tracing::Instrument;
use wardgate_domain::{
    CallFacts, CallId, Caller, ColumnClass, ConversationKey, MemoryAccess, MemoryMethod, Message,
    Status,
};
use wardgate_mcp::Version;
use wardgate_mcp_server::{Answer, Fields, Request, RpcError, call_meta, inner, text_of};
use wardgate_rpc::client::{MemoryClient, OnBehalfOf};
use wardgate_telemetry::names;

use crate::Gateway;
use crate::post::Post;
use crate::stages::stage;

pub(crate) use self::list_resources::{PrecedingResources, template};
pub(crate) use self::rejection::MemoryRejection;
pub(crate) use self::uri::{ConversationUri, TEMPLATE};

/// No answer of the memory service takes longer.
pub(crate) const LIMIT: Duration = Duration::from_secs(5);

/// One method of the memory.
trait MemoryOperation: Sized + Send + Sync + 'static {
    const METHOD: MemoryMethod;

    /// What the client asks for; an error names the field.
    fn parse(params: &Fields<'_>) -> Result<Self, RpcError>;

    /// Further members of the `_meta` of its answer.
    fn meta(&self) -> Option<&str> {
        None
    }

    /// Asks the memory service.
    fn run(
        &self,
        handler: &MemoryHandler<'_>,
    ) -> impl Future<Output = Result<MemoryOutput, MemoryRejection>> + Send;
}

/// The context of a memory operation.
struct MemoryHandler<'a> {
    gateway: &'a Gateway,
    memory: &'a MemoryClient,
    of: OnBehalfOf<'a>,
    version: Version,
}

/// The result of a memory operation, before it is released.
struct MemoryOutput {
    /// A JSON object, as text.
    result: String,
    conversation: Option<ConversationKey>,
    seen: MessageCounts,
}

impl MemoryOutput {
    /// An answer about one conversation, without messages.
    fn about(conversation: ConversationKey, result: &Value) -> Self {
        Self {
            result: result.to_string(),
            conversation: Some(conversation),
            seen: MessageCounts::default(),
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

/// Answers `request`, if its method is one of the memory's.
pub(crate) async fn answer(
    gateway: &Arc<Gateway>,
    post: &Post,
    request: &Request<'_>,
    version: Version,
    method: MemoryMethod,
) -> Result<Answer, RpcError> {
    let memory_request = MemoryRequest::new(gateway, post, request, version);
    match method {
        MemoryMethod::GetOrCreate => {
            memory_request
                .answer::<get_or_create::GetOrCreate>(request)
                .await
        }
        MemoryMethod::GetContext => {
            memory_request
                .answer::<get_context::GetContext>(request)
                .await
        }
        MemoryMethod::AddMessage => {
            memory_request
                .answer::<add_message::AddMessage>(request)
                .await
        }
        MemoryMethod::GetTurn => memory_request.answer::<get_turn::GetTurn>(request).await,
        MemoryMethod::Clear => {
            memory_request
                .answer::<clear::ClearConversation>(request)
                .await
        }
        MemoryMethod::Delete => {
            memory_request
                .answer::<delete::DeleteConversation>(request)
                .await
        }
        MemoryMethod::Search => {
            memory_request
                .answer::<search::SearchMessages>(request)
                .await
        }
        MemoryMethod::List => {
            memory_request
                .answer::<list_resources::ListResources>(request)
                .await
        }
        MemoryMethod::Read => {
            memory_request
                .answer::<read_resource::ReadResource>(request)
                .await
        }
    }
}

/// The first conversations, as resources behind others on one page.
pub(crate) async fn list_behind(
    gateway: &Arc<Gateway>,
    post: &Post,
    request: &Request<'_>,
    version: Version,
    before: PrecedingResources,
) -> Result<Answer, RpcError> {
    let Some(memory) = gateway.memory().cloned() else {
        return Err(RpcError::unknown_method(&request.method, version));
    };
    let memory_request = MemoryRequest::new(gateway, post, request, version);
    let operation = list_resources::ListResources::behind(before);
    Ok(memory_request.run_recorded(operation, memory).await)
}

/// Whether a URI is in the scheme of conversations.
pub(crate) fn is_about(uri: Option<&RawValue>) -> bool {
    let uri = uri.and_then(text_of);
    uri.is_some_and(|uri| is_uri(&uri))
}

/// The same of one that was read.
pub(crate) fn is_uri(uri: &str) -> bool {
    uri.starts_with(uri::SCHEME)
}

/// One request to the memory, before its parameters are parsed.
struct MemoryRequest {
    gateway: Arc<Gateway>,
    id: Box<RawValue>,
    version: Version,
    call_id: CallId,
    facts: CallFacts,
    caller: Arc<Caller>,
    client_ip: String,
}

impl MemoryRequest {
    fn new(gateway: &Arc<Gateway>, post: &Post, request: &Request<'_>, version: Version) -> Self {
        let call_id = CallId::new(gateway.ambient());
        let params = request.raw_params().map_or("{}", RawValue::get);
        Self {
            gateway: Arc::clone(gateway),
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
        }
    }

    async fn answer<E: MemoryOperation>(self, request: &Request<'_>) -> Result<Answer, RpcError> {
        let Some(memory) = self.gateway.memory().cloned() else {
            return Err(RpcError::unknown_method(E::METHOD.as_str(), self.version));
        };
        let operation = E::parse(&Fields::of_params(request.raw_params())?)?;
        Ok(self.run_recorded(operation, memory).await)
    }

    /// Runs `operation` in a task of its own, so that it is recorded even if the client hangs up.
    async fn run_recorded<E: MemoryOperation>(self, operation: E, memory: MemoryClient) -> Answer {
        let (id, call_id) = (self.id.clone(), self.call_id);
        let span = tracing::info_span!(
            "memory",
            method = E::METHOD.as_str(),
            { names::CALL_ID } = %call_id,
            { names::CALLER } = self.caller.subject(),
        );
        let calls = self.gateway.calls.clone();
        // Its own task: whoever hangs up, the record is written.
        let running = calls.spawn(self.run(operation, memory).instrument(span));
        running.await.unwrap_or_else(|_| {
            let error = RpcError::internal("panic", "Internal error.").of_call(call_id, None);
            Answer::error(Some(&id), &error)
        })
    }

    /// Runs `operation`, records the access, and writes the answer.
    async fn run<E: MemoryOperation>(self, operation: E, memory: MemoryClient) -> Answer {
        let started = Instant::now();
        // What cannot be recorded is not even begun.
        if !self.gateway.audit_log().is_ready() {
            return self.not_recorded();
        }
        let handler = MemoryHandler {
            gateway: &self.gateway,
            memory: &memory,
            of: OnBehalfOf {
                caller: &self.caller,
                client_ip: &self.client_ip,
            },
            version: self.version,
        };
        let ending = operation.run(&handler).await;
        stage("memory", started.elapsed());
        let access = access(E::METHOD, self.facts.clone(), &ending, started.elapsed());
        tracing::info!(
            status = access.status.as_str(),
            reason = access.reason,
            messages = access.messages,
            withheld = access.withheld,
            "use of the memory ended"
        );
        let Ok(recorded) = self.gateway.record_access(access).await else {
            return self.not_recorded();
        };
        match ending {
            Ok(done) => {
                let mut meta = call_meta(self.call_id, recorded);
                if let Some(more) = operation.meta() {
                    meta = format!("{meta},{more}");
                }
                let members = inner(&done.result);
                Answer::result_with_meta(&self.id, self.version, members, &meta)
            }
            Err(rejection) => {
                let error = rejection.error.of_call(self.call_id, recorded.receipt());
                Answer::error(Some(&self.id), &error)
            }
        }
    }

    fn not_recorded(&self) -> Answer {
        let error = RpcError::internal("not_durable", NOT_RELEASED).of_call(self.call_id, None);
        Answer::error(Some(&self.id), &error)
    }
}

/// A change may have been made: all of them can be repeated without harm.
const NOT_RELEASED: &str =
    "The use of the memory cannot be recorded durably, so nothing is released. Try again later.";

/// What the record says of an ending.
fn access(
    method: MemoryMethod,
    call: CallFacts,
    ending: &Result<MemoryOutput, MemoryRejection>,
    duration: Duration,
) -> MemoryAccess {
    let none = MessageCounts::default();
    let (conversation, seen, status, reason) = match ending {
        Ok(done) => (done.conversation, &done.seen, Status::Ok, ""),
        Err(rejection) => (None, &none, rejection.status, rejection.reason),
    };
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
