//! What waits for a modern client's answers, as the client holds it: `requestState` (MCP 2026-07-28, multi-round-trip
//! requests).
//!
//! It opens for the same caller and the same request alone, for ten minutes, and once over all replicas. Whatever is
//! wrong with one, the words are the same.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use wardgate_domain::Digest;
use wardgate_rpc::client::Resumption;

use super::{Asker, Stop};
use crate::Gateway;
use crate::dialogue::Asked;
use crate::mcp::{Request, object, text_of};
use crate::reply::RpcError;
use crate::session::Purpose;

/// Method, name and arguments.
type Matter<'a> = (&'static str, &'a str, &'a [u8]);

/// What the client holds, and cannot read.
#[derive(Serialize, Deserialize)]
pub(super) struct Pending {
    /// Is used up with it.
    #[serde(rename = "i")]
    id: [u8; 16],
    /// How often the client has been asked by now.
    #[serde(rename = "r")]
    rounds: usize,
    /// What it was asked this time.
    #[serde(rename = "k")]
    keys: Vec<String>,
    /// The tool-runner's own, in base64.
    #[serde(rename = "s")]
    state: String,
}

/// Where a request goes on.
#[derive(Debug, Default)]
pub(super) struct Resumed {
    /// Not used up yet.
    id: Option<[u8; 16]>,
    /// What it still waits for.
    pub(super) awaited: Option<Awaited>,
    /// None where it begins.
    pub(super) resumption: Option<Resumption>,
    pub(super) rounds: usize,
}

/// What an older client was asked, at a gateway that is gone.
#[derive(Debug)]
pub(super) struct Awaited {
    pub(super) asked: Asked,
    /// Of the tool-runner.
    pub(super) state: Bytes,
}

impl Pending {
    pub(super) fn new(gateway: &Gateway, keys: &[String], state: &[u8], rounds: usize) -> Self {
        Self {
            id: gateway.ambient().random(),
            rounds,
            keys: keys.to_vec(),
            state: URL_SAFE_NO_PAD.encode(state),
        }
    }

    /// None where it is too long to be handed out.
    pub(super) fn seal(
        &self,
        gateway: &Gateway,
        asker: &Asker,
        matter: Matter<'_>,
    ) -> Option<String> {
        let (within, sealer) = (belonging(asker, matter), gateway.sealer());
        sealer.seal(Purpose::PendingCall, &asker.caller, &within, self)
    }
}

impl Resumed {
    /// Goes on when the client answers.
    pub(super) fn awaiting(awaited: Awaited, rounds: usize) -> Self {
        Self {
            awaited: Some(awaited),
            rounds,
            ..Self::default()
        }
    }

    /// Where `request` goes on, if it says so.
    pub(super) fn of(
        gateway: &Gateway,
        asker: &Asker,
        matter: Matter<'_>,
        request: &Request<'_>,
    ) -> Result<Self, RpcError> {
        let responses = request.params.input_responses;
        // Without a state, answers are to nothing that was asked here: it begins, and whoever may have asked makes of
        // them what it can.
        let Some(state) = request.params.request_state else {
            return Ok(Self::default());
        };
        let within = belonging(asker, matter);
        let sealed = text_of(state).unwrap_or_default();
        let sealer = gateway.sealer();
        let pending = sealer.open(Purpose::PendingCall, &asker.caller, &within, &sealed);
        let pending: Pending = pending.ok_or_else(RpcError::unknown_state)?;
        let state = URL_SAFE_NO_PAD.decode(&pending.state);
        Ok(Self {
            id: Some(pending.id),
            awaited: None,
            resumption: Some(Resumption {
                state: state.map_err(|_| RpcError::unknown_state())?.into(),
                responses: answered(responses, &pending.keys)?,
                task_step: None,
            }),
            rounds: pending.rounds,
        })
    }

    /// Makes sure that it goes on here and now for the only time.
    pub(super) async fn use_up(&mut self, gateway: &Gateway) -> Result<(), Stop> {
        let Some(id) = self.id.take() else {
            return Ok(());
        };
        // It was sealed before now, so nobody opens it any more by then.
        let until = gateway.ambient().now().plus(Purpose::PendingCall.lasts());
        match gateway.store().once(id, until).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(Stop::UsedUp),
            Err(_) => Err(Stop::Failed {
                kind: "store_unavailable",
                message: "It cannot be made sure now that this goes on only once. Try again later.",
            }),
        }
    }
}

/// Of `responses` those to what was asked, each byte for byte.
fn answered(responses: Option<&RawValue>, keys: &[String]) -> Result<Bytes, RpcError> {
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

fn belonging(asker: &Asker, (method, name, arguments): Matter<'_>) -> String {
    let digest = Digest::of(arguments);
    // `Debug` keeps the path apart from what follows it.
    format!("{method} {digest} {:?} {name}", asker.view.path())
}
