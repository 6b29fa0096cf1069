//! Requests for input to an older client, and the delivery of its responses to the call that waits for them.
//!
//! ```text
//!  call ─▶ request, with an id sealed for the session ─▶ client
//!    ▲                                                     │ response, to any replica
//!    └── replica inbox ◀── ResponseRouter ◀────────────────┘
//! ```
//!
//! A response whose id belongs to another session or caller is ignored, as is a second response to the same request.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::try_join_all;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use wardgate_domain::{About, Ambient, Caller};
use wardgate_gateway_store::{Purpose, ReplicaMessageId, Sealer};
use wardgate_mcp_server::{ClientResponse, object, text_of};

use super::InputError;
use crate::replica_inbox::ReplicaInbox;
use crate::session::StreamableSession;

/// Maximum time that a client may take to respond to the requests of one round.
const INPUT_LIMIT: Duration = Duration::from_mins(10);

/// Routes the responses of clients to the calls that wait for them.
pub(crate) struct ResponseRouter {
    sealer: Arc<Sealer>,
    ambient: Ambient,
    pub(super) replica_inbox: ReplicaInbox,
    /// Cancelled when this replica shuts down.
    draining: CancellationToken,
}

/// The client of a session, which can be asked for input.
pub(super) struct InputResponder {
    router: Arc<ResponseRouter>,
    caller: Arc<Caller>,
    /// The name of the session.
    session: String,
}

impl fmt::Debug for InputResponder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InputResponder")
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}

/// The requests of one round: their keys, and the nonces in their ids.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PendingInput(Vec<(String, Nonce)>);

type Nonce = [u8; 16];

#[derive(Deserialize)]
struct InputRequest<'a> {
    method: String,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
}

/// The response of a client, as it is stored.
#[derive(Serialize, Deserialize)]
struct StoredResponse {
    /// The result, or `None` for an error.
    result: Option<Box<RawValue>>,
}

impl InputResponder {
    pub(super) fn new(router: &Arc<ResponseRouter>, caller: &Arc<Caller>, session: String) -> Self {
        Self {
            router: Arc::clone(router),
            caller: Arc::clone(caller),
            session,
        }
    }

    /// Returns the JSON-RPC requests for `input_requests`, an MCP object of that name, and what identifies their responses.
    pub(super) fn build_requests(
        &self,
        input_requests: &str,
    ) -> Option<(PendingInput, Vec<String>)> {
        let requests: BTreeMap<String, InputRequest<'_>> = object(input_requests)?;
        let (router, caller) = (&self.router, &self.caller);
        let (mut pending, mut messages) = (Vec::new(), Vec::new());
        for (key, InputRequest { method, params }) in requests {
            let nonce: Nonce = router.ambient.random();
            let id = router
                .sealer
                .seal(Purpose::Question, caller, &self.session, &nonce)?;
            let (id, method) = (Value::from(id), Value::from(method));
            let params = params.map(|params| format!(r#","params":{params}"#));
            let params = params.unwrap_or_default();
            messages.push(format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":{method}{params}}}"#
            ));
            pending.push((key, nonce));
        }
        Some((PendingInput(pending), messages))
    }

    /// Waits until this replica shuts down.
    pub(super) async fn shutting_down(&self) {
        self.router.draining.cancelled().await;
    }

    /// Waits for all responses, and returns them as MCP `inputResponses`.
    pub(super) async fn await_responses(
        &self,
        pending: &PendingInput,
    ) -> Result<Bytes, InputError> {
        let answers = pending.0.iter().map(|(key, nonce)| async move {
            let result = self.await_response(*nonce).await?;
            Ok((key.clone(), result))
        });
        let answers = timeout(INPUT_LIMIT, try_join_all(answers)).await;
        let answers = answers.map_err(|_| InputError::TimedOut)??;
        let answers: BTreeMap<String, Box<RawValue>> = answers.into_iter().collect();
        let answers = serde_json::to_vec(&answers).map_err(|_| InputError::Refused)?;
        Ok(answers.into())
    }

    async fn await_response(&self, nonce: Nonce) -> Result<Box<RawValue>, InputError> {
        let ResponseRouter {
            sealer,
            replica_inbox,
            ..
        } = &*self.router;
        let expected = replica_inbox.expect(message_id(nonce));
        let sealed = replica_inbox.receive(&expected).await;
        let within = within(&self.session, nonce);
        let stored = sealer.open_from_store(&self.caller, &within, &sealed);
        let stored: Option<StoredResponse> =
            stored.and_then(|text| serde_json::from_slice(&text).ok());
        stored
            .and_then(|stored| stored.result)
            .ok_or(InputError::Refused)
    }
}

impl ResponseRouter {
    pub(crate) fn new(
        sealer: Arc<Sealer>,
        ambient: Ambient,
        replica_inbox: ReplicaInbox,
        draining: CancellationToken,
    ) -> Self {
        Self {
            sealer,
            ambient,
            replica_inbox,
            draining,
        }
    }

    /// Cancels the call that answers `request` of `session`, on whichever replica it runs.
    pub(crate) async fn cancel(&self, session: &StreamableSession, request: &str) {
        self.replica_inbox.cancel(session, request).await;
    }

    /// Delivers the response of a client to the call that waits for it, on whichever replica the call runs.
    pub(crate) async fn deliver(
        &self,
        caller: &Caller,
        session: &str,
        response: &ClientResponse<'_>,
    ) {
        let id = response.id.and_then(text_of).unwrap_or_default();
        let nonce = (self.sealer).open::<Nonce>(Purpose::Question, caller, session, &id);
        let Some(nonce) = nonce else {
            return;
        };
        let result = response.result.filter(|raw| raw.get().starts_with('{'));
        let stored = StoredResponse {
            result: result.map(ToOwned::to_owned),
        };
        let text = serde_json::to_vec(&stored).unwrap_or_default();
        let within = within(session, nonce);
        if let Some(sealed) = self.sealer.seal_for_store(caller, &within, &text) {
            // The store logs a failure. The client is not asked again.
            let _ = self.replica_inbox.deliver(message_id(nonce), sealed).await;
        }
    }
}

fn message_id(nonce: Nonce) -> ReplicaMessageId {
    ReplicaMessageId(About::new("answer").and(&nonce).digest())
}

fn within(session: &str, nonce: Nonce) -> String {
    format!("{session}/answer/{:032x}", u128::from_be_bytes(nonce))
}
