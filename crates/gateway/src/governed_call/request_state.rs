//! The `requestState` of a call that waits for its client's input (MCP 2026-07-28, multi-round-trip requests).
//!
//! A state is valid for the same caller and the same request only, for ten minutes, and once across all replicas. Every invalid
//! state gets the same error.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use wardgate_approvals::ApprovalAnswer;
use wardgate_domain::{Ambient, Digest, Reason, SignedApproval};
use wardgate_gateway_store::{Purpose, Sealer, Store};
use wardgate_mcp_server::{JsonRpcRequest, RpcError, object, text_of};
use wardgate_rpc::client::Resumption;

use super::description::RequestBinding;
use super::rejection::Rejection;
use crate::client_interaction::PendingInput;
use crate::request_context::RequestContext;

/// The content of a `requestState`, which the client holds sealed.
#[derive(Serialize, Deserialize)]
pub(super) struct RequestState {
    /// The id by which the state is used only once.
    #[serde(rename = "i")]
    id: [u8; 16],
    /// The number of rounds so far.
    #[serde(rename = "r")]
    rounds: usize,
    /// The keys of the input requests of this round.
    #[serde(rename = "k")]
    keys: Vec<String>,
    /// The state of the tool-runner, in base64.
    #[serde(rename = "s")]
    state: String,
    /// The digest of the call, if its caller is asked to approve it.
    #[serde(rename = "q", default)]
    call_to_approve: Option<String>,
    /// The approval with which the call continues, in base64.
    #[serde(rename = "a", default)]
    approval: Option<String>,
}

/// The point at which a request continues an earlier call. The default begins a new call.
#[derive(Debug, Default)]
pub(super) struct ResumePoint {
    /// The id of a state that is not used up yet.
    id: Option<[u8; 16]>,
    /// The input that the call still waits for.
    pub(super) awaited: Option<AwaitedInput>,
    /// The state and the responses to continue with, or `None` for a new call.
    pub(super) resumption: Option<Resumption>,
    pub(super) rounds: usize,
    /// The answer of a caller who was asked to approve the call, with which the call begins, and the digest of what was shown.
    pub(super) answer: Option<(ApprovalAnswer, String)>,
    /// The approval with which the call continues.
    pub(super) approval: Option<SignedApproval>,
}

/// Input that a replica that is gone requested from an older client.
#[derive(Debug)]
pub(super) struct AwaitedInput {
    pub(super) pending: PendingInput,
    /// The state of the tool-runner.
    pub(super) state: Bytes,
}

impl RequestState {
    pub(super) fn new(
        ambient: &Ambient,
        keys: &[String],
        state: &[u8],
        rounds: usize,
        approval: Option<&SignedApproval>,
    ) -> Self {
        Self {
            id: ambient.random(),
            rounds,
            keys: keys.to_vec(),
            state: URL_SAFE_NO_PAD.encode(state),
            call_to_approve: None,
            approval: approval.map(SignedApproval::to_base64),
        }
    }

    /// Creates the state of a call whose caller is asked to approve it.
    pub(super) fn asking_approval(ambient: &Ambient, keys: &[String], call: String) -> Self {
        Self {
            call_to_approve: Some(call),
            ..Self::new(ambient, keys, &[], 0, None)
        }
    }

    /// Seals the state for the client. Returns `None` if the state is too long.
    pub(super) fn seal(
        &self,
        sealer: &Sealer,
        context: &RequestContext,
        binding: RequestBinding<'_>,
    ) -> Option<String> {
        let within = seal_context(context, binding);
        sealer.seal(Purpose::PendingCall, &context.caller, &within, self)
    }
}

impl ResumePoint {
    /// Returns whether a new call begins.
    pub(super) fn is_beginning(&self) -> bool {
        self.resumption.is_none() && self.awaited.is_none()
    }

    /// Creates a point that continues once the client answers `awaited`.
    pub(super) fn for_input(
        awaited: AwaitedInput,
        rounds: usize,
        approval: Option<SignedApproval>,
    ) -> Self {
        Self {
            awaited: Some(awaited),
            rounds,
            approval,
            ..Self::default()
        }
    }

    /// Returns the point that the `requestState` of `request` names.
    pub(super) fn from_request(
        sealer: &Sealer,
        context: &RequestContext,
        binding: RequestBinding<'_>,
        request: &JsonRpcRequest<'_>,
    ) -> Result<Self, RpcError> {
        let responses = request.params.input_responses;
        // Without a state, the responses do not answer requests of this gateway. A new call begins, and the responses are
        // passed on to a server that may know their keys.
        let Some(state) = request.params.request_state else {
            return Ok(Self::default());
        };
        let within = seal_context(context, binding);
        let sealed = text_of(state).unwrap_or_default();
        let pending = sealer.open(Purpose::PendingCall, &context.caller, &within, &sealed);
        let pending: RequestState = pending.ok_or_else(RpcError::unknown_state)?;
        let responses = select_responses(responses, &pending.keys)?;
        if let Some(call) = pending.call_to_approve {
            return Ok(Self {
                id: Some(pending.id),
                answer: Some((ApprovalAnswer::from_responses(&responses), call)),
                ..Self::default()
            });
        }
        let state = URL_SAFE_NO_PAD.decode(&pending.state);
        Ok(Self {
            id: Some(pending.id),
            awaited: None,
            resumption: Some(Resumption {
                state: state.map_err(|_| RpcError::unknown_state())?.into(),
                responses,
                task_step: None,
            }),
            rounds: pending.rounds,
            answer: None,
            approval: (pending.approval.as_deref()).and_then(SignedApproval::from_base64),
        })
    }

    /// Uses up the state, so that no other request continues from it.
    pub(super) async fn use_up(
        &mut self,
        ambient: &Ambient,
        store: &Store,
    ) -> Result<(), Rejection> {
        let Some(id) = self.id.take() else {
            return Ok(());
        };
        // The state was sealed before now, so it has expired by then.
        let until = ambient.now().plus(Purpose::PendingCall.lasts());
        match store.use_id_once(id, until).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(Rejection::StateAlreadyUsed),
            Err(_) => Err(Rejection::Failed {
                kind: Reason::STORE_UNAVAILABLE,
                message: "The gateway cannot currently ensure that this request continues only once. Try again later.",
            }),
        }
    }
}

/// Returns those of `responses` whose key was requested, each byte for byte.
fn select_responses(responses: Option<&RawValue>, keys: &[String]) -> Result<Bytes, RpcError> {
    let Some(responses) = responses else {
        return Ok(Bytes::from_static(b"{}"));
    };
    let wrong = || RpcError::invalid_params("`params.inputResponses` must be an object");
    let mut responses: BTreeMap<Cow<'_, str>, &RawValue> =
        object(responses.get()).ok_or_else(wrong)?;
    responses.retain(|key, _| keys.iter().any(|asked| asked == key));
    let responses = serde_json::to_vec(&responses).map_err(|_| wrong())?;
    Ok(responses.into())
}

/// Returns the context that a state is sealed in: the view and the request.
fn seal_context(context: &RequestContext, binding: RequestBinding<'_>) -> String {
    let RequestBinding {
        method,
        name,
        arguments,
    } = binding;
    let digest = Digest::compute(arguments);
    // `Debug` quotes the path, which separates it from the name.
    format!("{method} {digest} {:?} {name}", context.view.path())
}
