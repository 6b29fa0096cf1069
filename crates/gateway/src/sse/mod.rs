//! HTTP+SSE, the transport of 2024-11-05: a stream for answers, and an address to send messages to.
//!
//! ```text
//!  GET /sse ───────▶ open ──▶ event: endpoint, data: /messages/?session_id=…        replica A
//!                     │  ◀──── event: message: answers, changes ◀──┐
//!                     └─ Streams: the sessions of this replica     │ mcp::answer
//!  POST /messages/ ─▶ take ─ opens the id: is its stream here? ────┘ 202
//!                      └──── at A? ─▶ relay, once ──────────────▶ POST A/messages/          replica B
//! ```
//!
//! The id is sealed for the caller, so it opens for nobody else, and says where the stream is. Calls go on when their
//! stream is lost, are recorded, and their answers are lost with it: only `notifications/cancelled` cancels.

mod relay;
mod stream;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::{StreamExt, stream as streams};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use tracing::Instrument;
use wardgate_domain::Caller;
use wardgate_gateway_store::Purpose;
use wardgate_json::scan;
use wardgate_mcp_server::{Answer, RpcError, cancelled};

use crate::Gateway;
use crate::catalogue::View;
use crate::content;
use crate::dispatch;
use crate::listen::{ListeningClient, StreamScript};
use crate::post::Post;
use crate::scopes::TokenAccess;
use crate::session::sse_digest;

pub(crate) use self::relay::MessageRelay;

/// How long a message waits until fewer of its session are under way.
const TURN: Duration = Duration::from_secs(30);

/// What a session id holds.
#[derive(Debug, Serialize, Deserialize)]
struct StreamLocation {
    /// Which stream of its replica.
    #[serde(rename = "s")]
    stream: u64,
    /// Where the replica answers others, if it says so.
    #[serde(rename = "r")]
    replica: Option<String>,
}

/// Opens a stream for `caller`, whose first event says where its messages go.
pub(crate) fn open_stream(
    gateway: &Arc<Gateway>,
    who: (&Arc<Caller>, &TokenAccess),
    client_ip: &str,
) -> Result<Answer, RpcError> {
    let (caller, _) = who;
    let number = u64::from_be_bytes(gateway.ambient().random());
    let who = ListeningClient::follower(gateway, who, client_ip, &View::Everything);
    let session = Some(sse_digest(number));
    let offered = content::offered(gateway, &who.view);
    let script =
        StreamScript::of_get(session, offered).hearing(who.subscribed(session, offered, false));
    let listening = gateway
        .listeners()
        .listen(caller, script, gateway.ambient())?;
    let place = StreamLocation {
        stream: number,
        replica: gateway.config.advertise.clone(),
    };
    let id = gateway
        .sealer()
        .seal(Purpose::SseStream, caller, "", &place);
    let id = id.ok_or_else(|| RpcError::internal("sealing_failed", "Internal error."))?;
    let path = gateway.public_path();
    let first = format!("event: endpoint\ndata: {path}/messages/?session_id={id}\n\n");
    let rest = stream::EventStream::new(listening, gateway.streams.open(number));
    let events = streams::iter([Bytes::from(first)]).chain(rest);
    let events = events.map(Ok::<_, std::convert::Infallible>);
    Ok(Answer::events(Body::from_stream(events)))
}

/// Takes one message for the session that `query` names.
pub(crate) async fn accept_message(
    gateway: &Arc<Gateway>,
    mut post: Post,
    query: Option<&str>,
) -> Response {
    let Some((id, place)) = session_id(query).and_then(|id| {
        let opened =
            gateway
                .sealer()
                .open::<StreamLocation>(Purpose::SseStream, &post.caller, "", id);
        Some((id, opened?))
    }) else {
        return refuse(gateway, &post, &unknown());
    };
    if let Some(ip) = relay::client_ip(gateway.sealer(), &post) {
        post.client_ip = ip;
    }
    let Some(session) = gateway.streams.find(place.stream) else {
        let elsewhere = place.replica.filter(|url| !gateway.is_at(url));
        let relayed = match &elsewhere {
            Some(url) => gateway.relay.forward(gateway, &post, url, id).await,
            None => Err(unknown()),
        };
        return relayed.unwrap_or_else(|error| refuse(gateway, &post, &error));
    };
    // What nobody can read has no id under which the stream could answer.
    let text = match scan(&post.body, gateway.limits().depth) {
        Ok(text) => text,
        Err(error) => {
            let error = RpcError::parse(error.reason(), error.to_string());
            return refuse(gateway, &post, &error);
        }
    };
    if let Some(id) = cancelled(text) {
        session.cancel(id);
    }
    let Ok(turn) = timeout(TURN, session.turn()).await else {
        return refuse(gateway, &post, &RpcError::too_many_messages());
    };
    post.session = Some(Arc::clone(&session));
    let calls = gateway.calls.clone();
    let gateway = Arc::clone(gateway);
    let answering = async move {
        let answer = dispatch::answer_post(&gateway, &post).await;
        gateway.count(&answer, &post.client_ip, &post.caller);
        if let Some(message) = answer.into_text() {
            session.send_message(&message).await;
        }
        drop(turn);
    };
    // Among the calls, so that a gateway that stops waits for the answer too.
    calls.spawn(answering.in_current_span());
    Answer::accepted().into_response()
}

/// The value of `session_id` in a query; ids need no decoding.
fn session_id(query: Option<&str>) -> Option<&str> {
    let mut pairs = query?.split('&').filter_map(|pair| pair.split_once('='));
    pairs
        .find(|(name, _)| *name == "session_id")
        .map(|pair| pair.1)
}

fn unknown() -> RpcError {
    RpcError::unread(
        StatusCode::NOT_FOUND,
        "unknown_stream",
        "There is no such stream. Open one with GET /sse, and send messages to the address it names. If several gateways share one address, set gateway.advertise for each.",
    )
}

fn refuse(gateway: &Gateway, post: &Post, error: &RpcError) -> Response {
    let answer = Answer::error(None, error);
    gateway.count(&answer, &post.client_ip, &post.caller);
    answer.into_response()
}
