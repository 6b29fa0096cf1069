//! A call that waits for input of an older client, stored so that another replica can resume it if this one is gone.
//!
//! While the call waits, nothing runs at the server, so a resumed call continues as if it had not moved. It is authorized again
//! with the token of the client that resumes the stream, and gets a separate record.

use std::sync::Arc;

use axum::http::HeaderMap;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use wardgate_domain::{Caller, SignedApproval};

use super::CallPipeline;
use super::approval::{decode_approval, encode_approval};
use super::operation::{Operation, SealedOperation};
use super::request_state::{AwaitedInput, ResumePoint};
use crate::catalogue::View;
use crate::client_interaction::{self, PendingInput};
use crate::request_context::RequestContext;
use crate::scopes::TokenAccess;
use crate::stored_stream::StreamWriter;

/// The state of a call that another replica needs to resume it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SuspendedCall {
    #[serde(rename = "work")]
    pub(crate) operation: SealedOperation,
    #[serde(rename = "asked")]
    pending: PendingInput,
    /// The state of the tool-runner, in base64.
    state: String,
    rounds: usize,
    /// The approval with which the call continues, in base64.
    #[serde(default)]
    approval: Option<String>,
}

impl SuspendedCall {
    pub(super) fn new(
        operation: SealedOperation,
        pending: &PendingInput,
        state: &[u8],
        rounds: usize,
        approval: Option<&SignedApproval>,
    ) -> Self {
        Self {
            operation,
            pending: pending.clone(),
            state: URL_SAFE_NO_PAD.encode(state),
            rounds,
            approval: approval.map(encode_approval),
        }
    }
}

/// The client that resumes a stream.
#[derive(Clone)]
pub(crate) struct ResumingClient {
    pub(crate) caller: Arc<Caller>,
    pub(crate) access: TokenAccess,
    pub(crate) client_ip: String,
    pub(crate) view: View,
}

/// Resumes `suspended`, a call of `operation` that a replica that is gone left in the stream of `writer`. The rest of the call
/// runs in a separate task. Returns `false` if its state cannot be read.
pub(crate) fn resume<O: Operation>(
    pipeline: &Arc<CallPipeline>,
    client: &ResumingClient,
    (writer, request): (StreamWriter, Box<RawValue>),
    suspended: SuspendedCall,
    operation: O,
) -> bool {
    let Ok(state) = URL_SAFE_NO_PAD.decode(&suspended.state) else {
        return false;
    };
    let awaited = AwaitedInput {
        pending: suspended.pending,
        state: state.into(),
    };
    let approval = suspended.approval.as_deref().and_then(decode_approval);
    let resume_point = ResumePoint::awaiting(awaited, suspended.rounds, approval);
    let ResumingClient {
        caller,
        access,
        client_ip,
        view,
        ..
    } = client.clone();
    let version = writer.version();
    let channel = pipeline
        .channels()
        .for_resumed_stream(&caller, writer, &request);
    let context = RequestContext {
        slot: Some(pipeline.services.admission.admit_resumed(&caller)),
        id: request,
        version,
        caller,
        client_ip,
        view,
        access,
        limit_report: None,
    };
    let client = client_interaction::resume(channel);
    // The request with the trace context went to the replica that began the call.
    let (_, call) =
        pipeline.begin_call(context, (client, HeaderMap::new()), operation, resume_point);
    tokio::spawn(call);
    true
}
