//! HTTP+SSE, the transport of 2024-11-05: a stream for answers, and an address for messages.
//!
//! ```text
//!  GET /sse ────────▶ open_stream ──▶ event: endpoint, data: /messages/?session_id=…      replica A
//!                      │     ◀──── event: message: answers, changes ◀───┐
//!                      └─ SseStreams: the sessions of this replica      │ dispatch
//!  POST /messages/ ─▶ accept_message: the stream of the id is here ─────┘ 202
//!                      └──── it is at replica A ─▶ relay, once ─▶ POST A/messages/        replica B
//! ```
//!
//! The id is sealed for the caller, so that nobody else can use it, and holds the location of the stream. If a stream is lost,
//! its calls continue and are recorded, but their answers are lost. Only `notifications/cancelled` cancels a call.

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
use wardgate_mcp_server::{McpResponse, RpcError, cancelled_request_id};

use crate::config::Config;
use crate::dispatch;
use crate::listen::{self, Listeners, ListeningClient};
use crate::post::Post;
use crate::session::{SseSession, SseStreams, sse_digest};
use crate::{Error, Gateway};

pub(crate) use self::relay::MessageRelay;

/// Maximum time that a message waits until fewer messages of its session are in progress.
const TURN: Duration = Duration::from_secs(30);

/// The content of a session id.
#[derive(Debug, Serialize, Deserialize)]
struct StreamLocation {
    /// The number of the stream at its replica.
    #[serde(rename = "s")]
    stream: u64,
    /// The URL at which other replicas reach the replica of the stream, if it is advertised.
    #[serde(rename = "r")]
    replica: Option<String>,
}

/// The HTTP+SSE streams of this replica, and the relay of messages to other replicas.
pub(crate) struct SseTransport {
    sealer: Arc<Sealer>,
    ambient: Ambient,
    streams: SseStreams,
    relay: MessageRelay,
    /// The URL at which other replicas reach this one, if it is advertised.
    advertise: Option<String>,
    /// The path below which clients reach the gateway.
    public_path: String,
}

/// The destination of a message.
enum MessageTarget {
    /// A session of this replica.
    Session(Arc<SseSession>),
    /// Another replica, to which the message was relayed. Holds its response.
    Relayed(Response),
}

impl SseTransport {
    /// Creates the transport. `public_url` is the URL at which clients reach the gateway.
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

    /// Opens a stream for `client`. Its first event holds the address for messages.
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
        let (open, messages) = self.streams.open(number);
        let rest = stream::EventStream::new(listening, open, messages);
        let events = streams::iter([Bytes::from(first)]).chain(rest);
        Ok(listen::answer_with(events.boxed()))
    }

    /// Finds the session that `query` names, or relays the message to the replica that has the session.
    async fn find_target(
        &self,
        post: &mut Post,
        query: Option<&str>,
    ) -> Result<MessageTarget, RpcError> {
        let id = session_id(query).ok_or_else(unknown_session_error)?;
        let opened = self.sealer.open(Purpose::SseStream, &post.caller, "", id);
        let place: StreamLocation = opened.ok_or_else(unknown_session_error)?;
        if let Some(ip) = relay::client_ip(&self.sealer, post) {
            post.client_ip = ip;
        }
        if let Some(session) = self.streams.find(place.stream) {
            return Ok(MessageTarget::Session(session));
        }
        let is_here = |url: &String| self.advertise.as_ref() == Some(url);
        let elsewhere = place.replica.filter(|url| !is_here(url));
        let url = elsewhere.ok_or_else(unknown_session_error)?;
        let relayed = self.relay.forward(&self.sealer, post, &url, id).await;
        relayed.map(MessageTarget::Relayed)
    }
}

/// Returns the path of a URL, without a trailing slash.
fn path_of(url: &str) -> &str {
    let host_and_path = url.split_once("://").map_or(url, |(_, rest)| rest);
    let path = host_and_path.find('/').map(|at| &host_and_path[at..]);
    path.unwrap_or_default().trim_end_matches('/')
}

/// Accepts one message for the session that `query` names.
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
    // A message that cannot be parsed has no id for an answer on the stream.
    let text = match scan(&post.body, gateway.limits.depth) {
        Ok(text) => text,
        Err(error) => {
            let error = RpcError::parse(error.into(), error.to_string());
            return refuse(recorder, &post, &error);
        }
    };
    if let Some(id) = cancelled_request_id(text) {
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
    // The task is tracked with the calls, so that a shutdown waits for the answer too.
    calls.spawn(answering.in_current_span());
    McpResponse::accepted_without_body().into_response()
}

/// Returns the value of `session_id` in a query. Ids need no percent-decoding.
fn session_id(query: Option<&str>) -> Option<&str> {
    let mut pairs = query?.split('&').filter_map(|pair| pair.split_once('='));
    pairs
        .find(|(name, _)| *name == "session_id")
        .map(|pair| pair.1)
}

fn unknown_session_error() -> RpcError {
    RpcError::for_unread_request(
        StatusCode::NOT_FOUND,
        Reason::UNKNOWN_STREAM,
        "The stream does not exist. Open one with GET /sse, and send messages to the address that it contains. If several gateways share \
         one address, set gateway.advertise for each.",
    )
}

fn refuse(recorder: &CallRecorder, post: &Post, error: &RpcError) -> Response {
    let answer = McpResponse::error(None, error);
    recorder.count_refusals(&answer, &post.client_ip, &post.caller);
    answer.into_response()
}
