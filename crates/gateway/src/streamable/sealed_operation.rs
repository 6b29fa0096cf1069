//! The operation of a stored stream. It is authorized again for the client that resumes the stream, and continued if it is
//! suspended.

use std::sync::Arc;

use serde_json::value::RawValue;
use wardgate_mcp::Version;

use crate::call_tool::ToolCall;
use crate::content::ContentRequest;
use crate::discovery::Discovery;
use crate::governed_call::{
    self, CallPipeline, DecisionUnavailable, ReplayGrant, ResumingClient, SealedOperation,
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
            Some(call) => grant.allows_replay(discovery, client, &call).await,
            None => Ok(false),
        },
        SealedOperation::Content(sealed) => match ContentRequest::unseal(sealed, version) {
            Some(content) => grant.allows_replay(discovery, client, &content).await,
            None => Ok(false),
        },
    }
}

/// Resumes the call `stored`, which a replica that is gone left in the stream. Returns `false` if it cannot be resumed.
pub(super) fn resume_suspended(
    pipeline: &Arc<CallPipeline>,
    client: &ResumingClient,
    stream: (StreamWriter, Box<RawValue>),
    stored: &[u8],
) -> bool {
    let Ok(suspended) = serde_json::from_slice::<SuspendedCall>(stored) else {
        return false;
    };
    let version = stream.0.version();
    match suspended.operation.clone() {
        SealedOperation::Call(sealed) => ToolCall::unseal(&sealed, version)
            .is_some_and(|call| governed_call::resume(pipeline, client, stream, suspended, call)),
        SealedOperation::Content(sealed) => {
            ContentRequest::unseal(&sealed, version).is_some_and(|content| {
                governed_call::resume(pipeline, client, stream, suspended, content)
            })
        }
    }
}
