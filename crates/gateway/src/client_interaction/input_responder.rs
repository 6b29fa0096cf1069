//! How a client of an older version is asked, and its answers find the story that waits for them.
//!
//! ```text
//!  story ─▶ request, with an id sealed for the session ─▶ client
//!    ▲                                                      │ response, to any gateway
//!    └── the mailbox, under what the id holds ◀── answered ─┘
//! ```
//!
//! A response whose id opens for another session or caller is nobody's, and the second to one request changes nothing.

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
use wardgate_domain::{About, Caller};

use super::InputError;
use crate::Gateway;
use crate::mcp::{Response, object, text_of};
use crate::session::Purpose;
use crate::store::ReplicaMessageId;

/// How long a client may take to answer what it is asked at once.
const LEG: Duration = Duration::from_mins(10);

/// One client of a session.
pub(super) struct InputResponder {
    gateway: Arc<Gateway>,
    caller: Arc<Caller>,
    /// Names the session.
    session: String,
}

impl fmt::Debug for InputResponder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Respondent")
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}

/// What a client was asked at once: the keys under which answers are wanted, and what the ids hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PendingInput(Vec<(String, Nonce)>);

type Nonce = [u8; 16];

#[derive(Deserialize)]
struct InputRequest<'a> {
    method: String,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
}

/// What a client answered, as it is kept.
#[derive(Serialize, Deserialize)]
struct StoredResponse {
    /// None for an error.
    result: Option<Box<RawValue>>,
}

impl InputResponder {
    pub(super) fn new(gateway: &Arc<Gateway>, caller: &Arc<Caller>, session: String) -> Self {
        Self {
            gateway: Arc::clone(gateway),
            caller: Arc::clone(caller),
            session,
        }
    }

    /// Requests to say for `input_requests`, an MCP object of that name, and how to know the answers to them.
    pub(super) fn requests(&self, input_requests: &str) -> Option<(PendingInput, Vec<String>)> {
        let requests: BTreeMap<String, InputRequest<'_>> = object(input_requests)?;
        let (gateway, caller) = (&self.gateway, &self.caller);
        let (mut asked, mut messages) = (Vec::new(), Vec::new());
        for (key, InputRequest { method, params }) in requests {
            let nonce: Nonce = gateway.ambient().random();
            let sealer = gateway.sealer();
            let id = sealer.seal(Purpose::Question, caller, &self.session, &nonce)?;
            let (id, method) = (Value::from(id), Value::from(method));
            let params = params.map(|params| format!(r#","params":{params}"#));
            let params = params.unwrap_or_default();
            messages.push(format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":{method}{params}}}"#
            ));
            asked.push((key, nonce));
        }
        Some((PendingInput(asked), messages))
    }

    /// Waits until this gateway is told to stop.
    pub(super) async fn stopping(&self) {
        self.gateway.listeners().draining().cancelled().await;
    }

    /// Waits for every answer: MCP `inputResponses`.
    pub(super) async fn answers(&self, asked: &PendingInput) -> Result<Bytes, InputError> {
        let answers = asked.0.iter().map(|(key, nonce)| async move {
            let result = self.answer(*nonce).await?;
            Ok((key.clone(), result))
        });
        let answers = timeout(LEG, try_join_all(answers)).await;
        let answers = answers.map_err(|_| InputError::Late)??;
        let answers: BTreeMap<String, Box<RawValue>> = answers.into_iter().collect();
        let answers = serde_json::to_vec(&answers).map_err(|_| InputError::Refused)?;
        Ok(answers.into())
    }

    async fn answer(&self, nonce: Nonce) -> Result<Box<RawValue>, InputError> {
        let replica_inbox = self.gateway.replica_inbox();
        let expected = replica_inbox.expect(replica_message(nonce));
        let sealed = replica_inbox.receive(&expected).await;
        let within = within(&self.session, nonce);
        let stored = self
            .gateway
            .sealer()
            .open_from_store(&self.caller, &within, &sealed);
        let stored: Option<StoredResponse> =
            stored.and_then(|text| serde_json::from_slice(&text).ok());
        stored
            .and_then(|stored| stored.result)
            .ok_or(InputError::Refused)
    }
}

/// A client answered something: whoever waits for it hears of it, wherever that is.
pub(crate) async fn answered(
    gateway: &Gateway,
    caller: &Caller,
    session: &str,
    response: &Response<'_>,
) {
    let id = response.id.and_then(text_of).unwrap_or_default();
    let sealer = gateway.sealer();
    let Some(nonce) = sealer.open::<Nonce>(Purpose::Question, caller, session, &id) else {
        return;
    };
    let result = response.result.filter(|raw| raw.get().starts_with('{'));
    let stored = StoredResponse {
        result: result.map(ToOwned::to_owned),
    };
    let text = serde_json::to_vec(&stored).unwrap_or_default();
    if let Some(sealed) = sealer.seal_for_store(caller, &within(session, nonce), &text) {
        // A failure is told where it happens; the client is asked no second time.
        let _ = gateway
            .replica_inbox()
            .deliver(replica_message(nonce), sealed)
            .await;
    }
}

fn replica_message(nonce: Nonce) -> ReplicaMessageId {
    ReplicaMessageId(About::new("answer").and(&nonce).digest())
}

fn within(session: &str, nonce: Nonce) -> String {
    format!("{session}/answer/{:032x}", u128::from_be_bytes(nonce))
}
