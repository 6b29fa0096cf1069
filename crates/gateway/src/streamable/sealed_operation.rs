//! The operation of a stored stream. It is authorized again for the client that resumes the stream, and continued if it is
//! suspended.

use std::sync::Arc;

use serde_json::value::RawValue;
use wardgate_mcp::Version;

use crate::call_tool::ToolCall;
use crate::content::ContentRequest;
use crate::discovery::Discovery;
use crate::governed_call::{
    CallPipeline, DecisionUnavailable, Operation, ReplayGrant, ResumingClient, SealedOperation,
    SuspendedCall,
};
use crate::stored_stream::StreamWriter;

/// Returns whether `client` may still receive the answer that was stored under `grant`.
pub(super) async fn allows_replay(
    discovery: &Discovery,
    grant: &ReplayGrant,
    client: &ResumingClient,
    version: Version,
) -> Result<bool, DecisionUnavailable> {
    match grant.operation() {
        SealedOperation::Call(sealed) => match ToolCall::unseal(sealed, version) {
            Some(call) => allows_replay_of(discovery, grant, client, &call).await,
            None => Ok(false),
        },
        SealedOperation::Content(sealed) => match ContentRequest::unseal(sealed, version) {
            Some(content) => allows_replay_of(discovery, grant, client, &content).await,
            None => Ok(false),
        },
    }
}

/// Returns whether `client` may still receive the answer of `operation`, which is the operation of `grant`.
async fn allows_replay_of<O: Operation>(
    discovery: &Discovery,
    grant: &ReplayGrant,
    client: &ResumingClient,
    operation: &O,
) -> Result<bool, DecisionUnavailable> {
    let catalogue = discovery.catalogue().current().ok_or(DecisionUnavailable)?;
    let description = operation.describe(Some(&catalogue), &client.view);
    let authority = discovery.authority();
    grant.allows_replay(authority, client, description).await
}

/// Resumes the call `stored`, which a replica that is gone left in the stream. Returns `false` if it cannot be resumed.
pub(super) fn resume_suspended(
    pipeline: &Arc<CallPipeline>,
    client: &ResumingClient,
    writer: StreamWriter,
    request: Box<RawValue>,
    stored: &[u8],
) -> bool {
    let Ok(suspended) = serde_json::from_slice::<SuspendedCall>(stored) else {
        return false;
    };
    let version = writer.version();
    match suspended.operation.clone() {
        SealedOperation::Call(sealed) => ToolCall::unseal(&sealed, version)
            .is_some_and(|call| pipeline.resume(client, writer, request, suspended, call)),
        SealedOperation::Content(sealed) => ContentRequest::unseal(&sealed, version)
            .is_some_and(|content| pipeline.resume(client, writer, request, suspended, content)),
    }
}
