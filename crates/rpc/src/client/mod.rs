//! Clients of all services, which wrap the generated clients in the types of `wardgate-domain`.

mod audit;
mod connections;
mod content;
mod interaction;
mod memory;
mod operator;
mod policy;
mod tool_result;
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
    ConnectionDescription, FinishConnection, Person, RemoveConnections, SourceConnection,
    StartConnection, StartedConnection,
};
pub use content::{
    Content, ContentEntry, ContentOutcome, ContentPart, ContentResult, ContentSource, GetContent,
    Skills, WatchResources,
};
pub use interaction::{
    CallProgress, ConnectTarget, InputRequired, Interaction, LogMessage, PassthroughMeta,
    Resumption, Task, TaskStep,
};
pub use memory::{
    AddedMessages, ContextWindow, ConversationPage, ConversationSelector, ConversationSubscriber,
    ConversationTurn, ListPage, MemoryClient, MessageBatch, OnBehalfOf, SearchHit,
};
pub use operator::{IdentifiedOperator, OperatorError, OperatorLog, OperatorRights};
pub use policy::{Authorizer, CallQuestion, LocalPolicy, PolicyClient, PolicyVersion};
pub use tool_result::{DroppedColumns, ResultFacts, ToolResult};
pub use tool_runner::{
    CallEvent, CallEvents, CallTool, Catalogue, CatalogueSource, CatalogueTool, LocalToolRunner,
    ServerCapabilities, ToolCaller, ToolRunnerClient,
};

/// Returns the token of `caller`, for a service that verifies it itself.
fn bearer_of(caller: &Caller) -> Result<&BearerToken, InvalidMessage> {
    let token = caller.token();
    token.ok_or_else(|| InvalidMessage::field("caller_token", "is missing"))
}

/// Returns the text of the token of `caller`, for a message.
fn token_of(caller: &Caller) -> Result<String, InvalidMessage> {
    Ok(bearer_of(caller)?.expose().to_owned())
}

/// Creates a request with the trace context and the deadline.
fn request<M>(message: M, limit: Duration) -> Request<M> {
    let mut request = open_request(message);
    request.set_timeout(deadline::in_header(deadline::time_left(limit)));
    request
}

/// Marks a request as idempotent if `is_repeatable`, so that it may be retried when the outcome of the first attempt is unknown.
fn repeatable<M>(mut request: Request<M>, is_repeatable: bool) -> Request<M> {
    if is_repeatable {
        request.extensions_mut().insert(IdempotentRequest);
    }
    request
}

/// Creates a request without a deadline, for a stream of any duration.
fn open_request<M>(message: M) -> Request<M> {
    let mut request = Request::new(message);
    let mut headers = std::mem::take(request.metadata_mut()).into_headers();
    trace_context::inject(&mut headers);
    *request.metadata_mut() = tonic::metadata::MetadataMap::from_headers(headers);
    request
}

/// Maximum time between the last message of a stream and its trailers.
const TRAILERS: Duration = Duration::from_millis(100);

/// Reads the trailers of a stream in the background after its last message.
///
/// A stream that is dropped before its trailers counts as reset in HTTP/2, and a connection that has seen a thousand resets is
/// closed with all its open calls.
fn read_out<T: Send + 'static, E: Send + 'static>(
    mut rest: impl Stream<Item = Result<T, E>> + Unpin + Send + 'static,
) {
    // Often the trailers have arrived already.
    if let Some(None) = rest.next().now_or_never() {
        return;
    }
    let trailers = async move { while let Some(Ok(_)) = rest.next().await {} };
    tokio::spawn(tokio::time::timeout(TRAILERS, trailers));
}

/// Awaits `call` for at most `limit`, or the time left of the call that is being served, if that is less.
async fn within<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, CallError>>,
) -> Result<T, CallError> {
    let limit = deadline::time_left(limit);
    let started = Instant::now();
    match tokio::time::timeout(limit, call).await {
        // If the transport enforces the deadline, the error looks like a cancelled call.
        Ok(Err(_)) if started.elapsed() >= deadline::in_header(limit) => Err(CallError::late()),
        Ok(answer) => answer,
        Err(_) => Err(CallError::late()),
    }
}
