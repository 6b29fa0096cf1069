//! The generated clients in the types of `wardgate-domain`.

mod audit;
mod connections;
mod content;
mod interaction;
mod memory;
mod operator;
mod policy;
mod tool_runner;

use std::time::{Duration, Instant};

use futures::{FutureExt, Stream, StreamExt};
use tonic::Request;
use wardgate_domain::{BearerToken, Caller, InvalidMessage};
use wardgate_telemetry::trace_context;

use crate::deadline;
use crate::methods::IdempotentRequest;

pub use crate::call_error::CallError;
pub use audit::{
    AuditClient, AuditFilter, CallCountQuery, CallSelection, ContentFilter, DataSubjectFilter,
    ExportedPart, ExportedRecords, HoldDescription, HoldScope, LONGEST_APPEND, LocalAudit,
    OperatorAuditClient, ProofSelector, QueriedRecord, RecordAppender, RecordDamage, RecordDetails,
    RetentionProgress, RetentionStatus, StoredRecord,
};
pub use connections::{
    ConnectTarget, ConnectionDescription, FinishConnection, Person, RemoveConnections,
    SourceConnection, StartConnection, StartedConnection,
};
pub use content::{
    Content, ContentEntry, ContentOutcome, ContentPart, ContentResult, ContentSource, GetContent,
    Skills, WatchResources,
};
pub use interaction::{
    CallProgress, InputRequired, Interaction, LogMessage, PassthroughMeta, Resumption, Task,
    TaskStep,
};
pub use memory::{
    AddedMessages, ContextWindow, ConversationPage, ConversationSelector, ConversationSubscriber,
    ConversationTurn, ListPage, MemoryClient, MessageBatch, OnBehalfOf, SearchHit,
};
pub use operator::{IdentifiedOperator, OperatorError, OperatorLog, OperatorRights};
pub use policy::{Authorizer, CallQuestion, LocalPolicy, PolicyClient, PolicyVersion};
pub use tool_runner::{
    CallEvent, CallEvents, CallTool, Catalogue, CatalogueSource, CatalogueTool, DroppedColumns,
    LocalToolRunner, ResultFacts, ServerCapabilities, ToolCaller, ToolResult, ToolRunnerClient,
};

/// The token of `caller`, for a service that verifies it itself.
fn bearer_of(caller: &Caller) -> Result<&BearerToken, InvalidMessage> {
    let token = caller.token();
    token.ok_or_else(|| InvalidMessage::field("caller_token", "is missing"))
}

/// Its text, for a message.
fn token_of(caller: &Caller) -> Result<String, InvalidMessage> {
    Ok(bearer_of(caller)?.expose().to_owned())
}

/// A request that carries the trace and the deadline to the other side.
fn request<M>(message: M, limit: Duration) -> Request<M> {
    let mut request = open_request(message);
    request.set_timeout(deadline::in_header(deadline::left(limit)));
    request
}

/// A request that may be made twice if it is not known what became of it.
fn repeatable<M>(mut request: Request<M>, is_repeatable: bool) -> Request<M> {
    if is_repeatable {
        request.extensions_mut().insert(IdempotentRequest);
    }
    request
}

/// A request for a stream that lasts as long as it lasts.
fn open_request<M>(message: M) -> Request<M> {
    let mut request = Request::new(message);
    let mut headers = std::mem::take(request.metadata_mut()).into_headers();
    trace_context::inject(&mut headers);
    *request.metadata_mut() = tonic::metadata::MetadataMap::from_headers(headers);
    request
}

/// How long the trailers of a stream may take after its last message.
const TRAILERS: Duration = Duration::from_millis(100);

/// Sees to it that a stream whose last message has come is read to its trailers, which nobody waits for.
///
/// HTTP/2 takes a stream that is dropped before them for one that was reset, and a connection that has seen a thousand
/// of those ends with all that is under way on it.
fn read_out<T: Send + 'static, E: Send + 'static>(
    mut rest: impl Stream<Item = Result<T, E>> + Unpin + Send + 'static,
) {
    // They are often there already.
    if let Some(None) = rest.next().now_or_never() {
        return;
    }
    let trailers = async move { while let Some(Ok(_)) = rest.next().await {} };
    tokio::spawn(tokio::time::timeout(TRAILERS, trailers));
}

/// Waits at most `limit`, whatever the other side does, and no longer than who waits for this.
async fn within<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, CallError>>,
) -> Result<T, CallError> {
    let limit = deadline::left(limit);
    let started = Instant::now();
    match tokio::time::timeout(limit, call).await {
        // Where the transport minds the time itself, that reads as a cancelled call.
        Ok(Err(_)) if started.elapsed() >= deadline::in_header(limit) => Err(CallError::late()),
        Ok(answer) => answer,
        Err(_) => Err(CallError::late()),
    }
}
