//! The relay of messages that reach another replica than the one with the stream.
//!
//! The address is part of an id that only a gateway with the same key can have sealed, and only for this caller. Therefore no
//! client can make the gateway send requests to any other address.

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

/// Header that marks a message as relayed, so that it is not relayed again. Its value is the sealed address of the client.
const RELAYED: HeaderName = HeaderName::from_static("wardgate-relayed");

/// The headers of the client that are passed on.
const PASSED: [HeaderName; 3] = [
    header::AUTHORIZATION,
    header::CONTENT_TYPE,
    HeaderName::from_static("idempotency-key"),
];

/// Maximum time to connect to another replica.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);

/// Maximum time for the other replica to accept a message, including the time until fewer messages are in progress there.
const LIMIT: Duration = Duration::from_secs(TURN.as_secs() + 5);

/// Maximum size of a refusal of another replica, in bytes.
const MAX_REFUSAL: usize = 64 << 10;

/// The HTTP client for other replicas.
#[derive(Debug)]
pub(crate) struct MessageRelay(Client);

impl MessageRelay {
    /// Creates a relay. `authority` is a PEM file with the CA certificates of the replicas, if they have special ones.
    pub(crate) fn new(authority: Option<&Path>) -> Result<Self, Error> {
        let client = replica_client(authority, [CONNECT_LIMIT, LIMIT]);
        client
            .map(Self)
            .map_err(|error| Error::Config(format!("gateway.advertise_ca_file: {error}")))
    }

    /// Relays the message to the replica at `url`. A message is relayed at most once.
    pub(super) async fn forward(
        &self,
        sealer: &Sealer,
        post: &Post,
        url: &str,
        id: &str,
    ) -> Result<Response, RpcError> {
        if post.headers.contains_key(RELAYED) {
            return Err(super::unknown_session_error());
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
            tracing::warn!(error = %error.without_url(), "a message could not be forwarded to the gateway of its stream");
            unreachable()
        })?;
        if response.status() == StatusCode::ACCEPTED {
            return Ok(McpResponse::accepted_without_body().into_response());
        }
        refusal(response).await.ok_or_else(unreachable)
    }
}

/// Returns the client's address of a message that another replica relayed.
pub(super) fn client_ip(sealer: &Sealer, post: &Post) -> Option<String> {
    let mark = post.headers.get(RELAYED)?.to_str().ok()?;
    sealer.open(Purpose::SseRelay, &post.caller, "", mark)
}

/// Returns the other replica's refusal unchanged. The other replica has recorded it.
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
    RpcError::for_unread_request(
        StatusCode::BAD_GATEWAY,
        Reason::STREAM_UNREACHABLE,
        "The gateway of this stream cannot be reached. Open another stream with GET /sse.",
    )
}
