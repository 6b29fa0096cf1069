//! Messages that reach another replica than the one with the stream.
//!
//! The address comes out of an id that only a gateway with our key can have made, and that opened for this very
//! caller: nobody can make us ask anywhere else.

use std::path::Path;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use reqwest::Client;
use wardgate_domain::Reason;
use wardgate_edge::replica_client;
use wardgate_gateway_store::{Purpose, Sealer};
use wardgate_mcp_server::{McpResponse, RpcError};
use wardgate_telemetry::trace_context;

use super::TURN;
use crate::Error;
use crate::post::Post;

/// Marks a message as relayed, so that it goes no further. Holds the client's address, sealed.
const RELAYED: HeaderName = HeaderName::from_static("wardgate-relayed");

/// What goes along of the client's headers.
const PASSED: [HeaderName; 3] = [
    header::AUTHORIZATION,
    header::CONTENT_TYPE,
    HeaderName::from_static("idempotency-key"),
];

/// How long a connection to another replica may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);

/// How long it may take to take a message, which may have to wait for its turn there.
const LIMIT: Duration = Duration::from_secs(TURN.as_secs() + 5);

/// No refusal is longer.
const MAX_REFUSAL: usize = 64 << 10;

/// The way to the other replicas.
#[derive(Debug)]
pub(crate) struct MessageRelay(Client);

impl MessageRelay {
    /// Replicas have certificates of `authority`, a file of PEM, where it is given.
    pub(crate) fn new(authority: Option<&Path>) -> Result<Self, Error> {
        let client = replica_client(authority, [CONNECT_LIMIT, LIMIT]);
        client
            .map(Self)
            .map_err(|error| Error::Config(format!("gateway.advertise_ca_file: {error}")))
    }

    /// Hands the message to the replica at `url`, once.
    pub(super) async fn forward(
        &self,
        sealer: &Sealer,
        post: &Post,
        url: &str,
        id: &str,
    ) -> Result<Response, RpcError> {
        if post.headers.contains_key(RELAYED) {
            return Err(super::unknown());
        }
        let mark = sealer.seal(Purpose::SseRelay, &post.caller, "", &post.client_ip);
        let mark = mark.and_then(|mark| HeaderValue::try_from(mark).ok());
        let mut headers = HeaderMap::new();
        trace_context::inject(&mut headers);
        headers.insert(RELAYED, mark.ok_or_else(unreachable)?);
        for name in PASSED {
            if let Some(value) = post.headers.get(&name) {
                headers.insert(name, value.clone());
            }
        }
        let target = format!("{url}/messages/?session_id={id}");
        let request = self.0.post(target).headers(headers).body(post.body.clone());
        let response = request.send().await.map_err(|error| {
            tracing::warn!(error = %error.without_url(), "a message could not be handed to the gateway that has its stream");
            unreachable()
        })?;
        if response.status() == StatusCode::ACCEPTED {
            return Ok(McpResponse::accepted().into_response());
        }
        refusal(response).await.ok_or_else(unreachable)
    }
}

/// Where a message comes from that another replica relayed.
pub(super) fn client_ip(sealer: &Sealer, post: &Post) -> Option<String> {
    let mark = post.headers.get(RELAYED)?.to_str().ok()?;
    sealer.open(Purpose::SseRelay, &post.caller, "", mark)
}

/// The other replica's refusal, as it stands; it is on record there.
async fn refusal(mut response: reqwest::Response) -> Option<Response> {
    let status = response.status();
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.ok()? {
        if body.len() + chunk.len() > MAX_REFUSAL {
            return None;
        }
        body.extend_from_slice(&chunk);
    }
    let json = [(header::CONTENT_TYPE, "application/json")];
    Some((status, json, body).into_response())
}

fn unreachable() -> RpcError {
    RpcError::unread(
        StatusCode::BAD_GATEWAY,
        Reason::STREAM_UNREACHABLE,
        "The gateway that has this stream cannot be reached. Open another stream with GET /sse.",
    )
}
