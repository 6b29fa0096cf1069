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

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::{StreamExt, stream as streams};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use tracing::Instrument;
use wardgate_domain::{Ambient, Reason};
use wardgate_gateway_record::CallRecorder;
use wardgate_gateway_store::{Purpose, Sealer};
use wardgate_json::scan;
use wardgate_mcp_server::{McpResponse, RpcError, cancelled};

use crate::config::Config;
use crate::dispatch;
use crate::listen::{self, Listeners, ListeningClient};
use crate::post::Post;
use crate::session::{SseSession, SseStreams, sse_digest};
use crate::{Error, Gateway};

use self::relay::MessageRelay;

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

/// The streams of HTTP+SSE at this replica, and the way to those at others.
pub(crate) struct SseTransport {
    sealer: Arc<Sealer>,
    ambient: Ambient,
    streams: SseStreams,
    relay: MessageRelay,
    /// Where this replica answers others, if it says so.
    advertise: Option<String>,
    /// The path below which clients reach the gateway.
    public_path: String,
}

/// Where a message goes.
enum MessageTarget {
    /// To a session of this replica.
    Session(Arc<SseSession>),
    /// It went to another replica, which answered so.
    Relayed(Response),
}

impl SseTransport {
    /// `public_url` is how clients reach the gateway.
    pub(crate) fn new(
        sealer: &Arc<Sealer>,
        ambient: &Ambient,
        config: &Config,
        public_url: &str,
    ) -> Result<Self, Error> {
        Ok(Self {
            sealer: Arc::clone(sealer),
            ambient: ambient.clone(),
            streams: SseStreams::default(),
            relay: MessageRelay::new(config.advertise_ca_file.as_deref())?,
            advertise: config.advertise.clone(),
            public_path: path_of(public_url).to_owned(),
        })
    }

    /// Opens a stream for `client`, whose first event says where its messages go.
    pub(crate) async fn open_stream(
        &self,
        listeners: &Listeners,
        client: ListeningClient,
    ) -> Result<McpResponse, RpcError> {
        let number = u64::from_be_bytes(self.ambient.random());
        let caller = Arc::clone(&client.caller);
        let following = listeners.follow(client, Some(sse_digest(number)), false);
        let listening = following.await?;
        let place = StreamLocation {
            stream: number,
            replica: self.advertise.clone(),
        };
        let id = self.sealer.seal(Purpose::SseStream, &caller, "", &place);
        let id = id.ok_or_else(|| RpcError::internal(Reason::SEALING_FAILED, "Internal error."))?;
        let path = &self.public_path;
        let first = format!("event: endpoint\ndata: {path}/messages/?session_id={id}\n\n");
        let rest = stream::EventStream::new(listening, self.streams.open(number));
        let events = streams::iter([Bytes::from(first)]).chain(rest);
        Ok(listen::answer_with(events.boxed()))
    }

    /// Finds the session that `query` names, or hands the message to the replica that has it.
    async fn find_target(
        &self,
        post: &mut Post,
        query: Option<&str>,
    ) -> Result<MessageTarget, RpcError> {
        let id = session_id(query).ok_or_else(unknown)?;
        let opened = self.sealer.open(Purpose::SseStream, &post.caller, "", id);
        let place: StreamLocation = opened.ok_or_else(unknown)?;
        if let Some(ip) = relay::client_ip(&self.sealer, post) {
            post.client_ip = ip;
        }
        if let Some(session) = self.streams.find(place.stream) {
            return Ok(MessageTarget::Session(session));
        }
        let is_here = |url: &String| self.advertise.as_ref() == Some(url);
        let elsewhere = place.replica.filter(|url| !is_here(url));
        let url = elsewhere.ok_or_else(unknown)?;
        let relayed = self.relay.forward(&self.sealer, post, &url, id).await;
        relayed.map(MessageTarget::Relayed)
    }
}

/// The path of a URL, without a slash at its end.
fn path_of(url: &str) -> &str {
    let host_and_path = url.split_once("://").map_or(url, |(_, rest)| rest);
    let path = host_and_path.find('/').map(|at| &host_and_path[at..]);
    path.unwrap_or_default().trim_end_matches('/')
}

/// Takes one message for the session that `query` names.
pub(crate) async fn accept_message(
    gateway: &Arc<Gateway>,
    mut post: Post,
    query: Option<&str>,
) -> Response {
    let recorder = &gateway.recorder;
    let session = match gateway.sse.find_target(&mut post, query).await {
        Ok(MessageTarget::Session(session)) => session,
        Ok(MessageTarget::Relayed(response)) => return response,
        Err(error) => return refuse(recorder, &post, &error),
    };
    // What nobody can read has no id under which the stream could answer.
    let text = match scan(&post.body, gateway.limits.depth) {
        Ok(text) => text,
        Err(error) => {
            let error = RpcError::parse(error.into(), error.to_string());
            return refuse(recorder, &post, &error);
        }
    };
    if let Some(id) = cancelled(text) {
        session.cancel(id);
    }
    let Ok(turn) = timeout(TURN, session.turn()).await else {
        return refuse(recorder, &post, &RpcError::too_many_messages());
    };
    post.session = Some(Arc::clone(&session));
    let calls = gateway.calls.clone();
    let gateway = Arc::clone(gateway);
    let answering = async move {
        let answer = dispatch::answer_post(&gateway, &post).await;
        let recorder = &gateway.recorder;
        recorder.count_refusals(&answer, &post.client_ip, &post.caller);
        if let Some(message) = answer.into_text() {
            session.send_message(&message).await;
        }
        drop(turn);
    };
    // Among the calls, so that a gateway that stops waits for the answer too.
    calls.spawn(answering.in_current_span());
    McpResponse::accepted().into_response()
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
        Reason::UNKNOWN_STREAM,
        "There is no such stream. Open one with GET /sse, and send messages to the address it names. If several gateways share one address, set gateway.advertise for each.",
    )
}

fn refuse(recorder: &CallRecorder, post: &Post, error: &RpcError) -> Response {
    let answer = McpResponse::error(None, error);
    recorder.count_refusals(&answer, &post.client_ip, &post.caller);
    answer.into_response()
}
