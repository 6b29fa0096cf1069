//! The gateway, as an MCP client sees it (protocol 2026-07-28): each request is one POST with the person's own token.

use std::time::Duration;

use axum::body::Body;
use futures::StreamExt;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use sse_stream::SseStream;
use wardgate_edge::{EdgeClient, EdgeClientError};
use wardgate_mcp::{Version, header, meta};
use wardgate_telemetry::trace_context;

use crate::session::SessionToken;

const VERSION: &str = Version::V2026_07_28.as_str();

/// Bytes of an answer.
const MAX_ANSWER: usize = 4 * 1024 * 1024;

/// How long anything but a call of a tool may take.
pub(crate) const ASK_LIMIT: Duration = Duration::from_secs(30);

/// The gateway ends every call within 5 minutes itself; this catches one that does not.
pub(crate) const CALL_LIMIT: Duration = Duration::from_secs(310);

/// How the gateway is reached.
#[derive(Debug, Clone)]
pub(crate) struct GatewayClient(EdgeClient);

/// A request that is not written yet.
pub(crate) struct GatewayRequest<'r> {
    pub(crate) method: &'r str,
    /// What the method is about, for the header `Mcp-Name`.
    pub(crate) name: Option<&'r str>,
    pub(crate) params: Map<String, Value>,
    /// `params.arguments`, which go as they are written.
    pub(crate) arguments: Option<&'r RawValue>,
    /// Further members of `params._meta`.
    pub(crate) meta: &'r [(&'r str, &'r str)],
    pub(crate) limit: Duration,
}

/// What went to and fro, and what it means.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) request: String,
    pub(crate) answer: String,
    pub(crate) outcome: Result<Value, RpcErrorObject>,
}

impl Exchange {
    /// The `_meta` of the result, or the `data` of the error: where the gateway says what is on record of the call.
    pub(crate) fn meta(&self) -> &Value {
        match &self.outcome {
            Ok(result) => &result["_meta"],
            Err(error) => &error.data,
        }
    }

    /// The exchange of a request and an answer that were kept as they were written.
    pub(crate) fn reread(request: &str, answer: &str) -> Option<Self> {
        Some(Self {
            request: request.to_owned(),
            answer: answer.to_owned(),
            outcome: message(answer.as_bytes())?,
        })
    }
}

/// A JSON-RPC error of the gateway.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct RpcErrorObject {
    pub(crate) code: i64,
    #[serde(default)]
    pub(crate) message: String,
    #[serde(default)]
    pub(crate) data: Value,
}

/// A fault for which there is no answer of the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub(crate) enum GatewayFault {
    #[error("the gateway cannot be reached")]
    Unreachable,
    #[error("the gateway did not answer in time")]
    Late,
    #[error("the gateway's answer is too large")]
    TooLarge,
    #[error("the gateway's answer cannot be read")]
    Unreadable,
    /// The token is no longer, or not there, a caller's.
    #[error("the gateway does not accept the token")]
    Unauthorized,
    /// It has no room for it now, or the person no right to more.
    #[error("the gateway is busy")]
    Busy,
}

impl GatewayFault {
    pub(crate) fn status(self) -> StatusCode {
        match self {
            Self::Unreachable | Self::TooLarge | Self::Unreadable => StatusCode::BAD_GATEWAY,
            Self::Late => StatusCode::GATEWAY_TIMEOUT,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// What a person reads.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Unreachable => "It cannot be reached. Try again, or tell whoever runs it.",
            Self::Late => {
                "It did not answer in time. What you asked for may have been done; the record knows."
            }
            Self::TooLarge => "Its answer is larger than 4 MiB, which a page does not show.",
            Self::Unreadable => "Its answer cannot be read.",
            Self::Unauthorized => "It does not accept your token any more. Sign in again.",
            Self::Busy => "It has more to do than it can. Nothing was done; try again.",
        }
    }
}

impl From<EdgeClientError> for GatewayFault {
    fn from(_: EdgeClientError) -> Self {
        Self::Unreachable
    }
}

#[derive(Serialize)]
struct RequestEnvelope<'r> {
    jsonrpc: &'static str,
    id: u32,
    method: &'r str,
    params: RequestParams<'r>,
}

#[derive(Serialize)]
struct RequestParams<'r> {
    #[serde(flatten)]
    members: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<&'r RawValue>,
    _meta: Map<String, Value>,
}

#[derive(Deserialize)]
struct ResponseMessage {
    #[serde(default)]
    id: Value,
    #[serde(default)]
    result: Option<Value>,
    #[serde(default)]
    error: Option<RpcErrorObject>,
}

/// There is one request a connection's stream, so that one id does for all.
const ID: u32 = 1;

impl GatewayClient {
    pub(crate) fn new(edge: EdgeClient) -> Self {
        Self(edge)
    }

    /// Sends `request` and waits for what comes of it. Dropping the future cancels it.
    pub(crate) async fn ask(
        &self,
        token: &SessionToken,
        request: GatewayRequest<'_>,
    ) -> Result<Exchange, GatewayFault> {
        let limit = request.limit;
        let work = async {
            let post = self.write(token, request)?;
            let body = post.body().clone();
            let response = self.0.send(post).await?;
            let (answer, outcome) = read_response(response).await?;
            Ok(Exchange {
                request: body,
                answer,
                outcome,
            })
        };
        let answered = tokio::time::timeout(limit, work).await;
        answered.unwrap_or(Err(GatewayFault::Late))
    }

    fn write(
        &self,
        token: &SessionToken,
        request: GatewayRequest<'_>,
    ) -> Result<http::Request<String>, GatewayFault> {
        let mut own_meta = Map::new();
        for (name, value) in [
            (meta::PROTOCOL_VERSION, json!(VERSION)),
            (meta::CLIENT_CAPABILITIES, json!({})),
            (
                meta::CLIENT_INFO,
                json!({ "name": "wardgate-console", "version": env!("CARGO_PKG_VERSION") }),
            ),
        ] {
            own_meta.insert(name.to_owned(), value);
        }
        for (name, value) in request.meta {
            own_meta.insert((*name).to_owned(), json!(value));
        }
        let body = serde_json::to_string(&RequestEnvelope {
            jsonrpc: "2.0",
            id: ID,
            method: request.method,
            params: RequestParams {
                members: request.params,
                arguments: request.arguments,
                _meta: own_meta,
            },
        })
        .map_err(|_| GatewayFault::Unreadable)?;
        let post = http::Request::post(self.0.uri("/mcp")?).body(body);
        let mut post = post.map_err(|_| GatewayFault::Unreachable)?;
        // As the listener says it of a client behind a socket; without one, this is the only way to tell.
        if let Some(peer) = token.peer() {
            post.extensions_mut().insert(peer);
        }
        let headers = post.headers_mut();
        trace_context::inject(headers);
        headers.insert(
            AUTHORIZATION,
            token.header().ok_or(GatewayFault::Unauthorized)?,
        );
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let both = HeaderValue::from_static("application/json, text/event-stream");
        headers.insert(ACCEPT, both);
        headers.insert(header::PROTOCOL_VERSION, HeaderValue::from_static(VERSION));
        headers.insert(header::METHOD, header::encode_value(request.method));
        if let Some(name) = request.name {
            headers.insert(header::NAME, header::encode_value(name));
        }
        Ok(post)
    }
}

/// Waits for the answer, as it was written and as what it means.
async fn read_response(
    response: Response<Body>,
) -> Result<(String, Result<Value, RpcErrorObject>), GatewayFault> {
    let (head, body) = response.into_parts();
    match head.status {
        StatusCode::UNAUTHORIZED => return Err(GatewayFault::Unauthorized),
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            return Err(GatewayFault::Busy);
        }
        _ => {}
    }
    let body = Limited::new(body, MAX_ANSWER).map_err(broken);
    if is_event_stream(&head.headers) {
        let mut events = SseStream::new(body);
        while let Some(event) = events.next().await {
            let event = event.map_err(|error| match error {
                sse_stream::Error::Body(error) => error
                    .downcast()
                    .map_or(GatewayFault::Unreachable, |fault| *fault),
                _ => GatewayFault::Unreadable,
            })?;
            let data = event.data.unwrap_or_default();
            // What comes before it are notifications.
            if let Some(outcome) = message(data.as_bytes()) {
                return Ok((data, outcome));
            }
        }
        return Err(GatewayFault::Unreachable);
    }
    let bytes = body.collect().await?.to_bytes();
    let outcome = message(&bytes).ok_or(GatewayFault::Unreadable)?;
    let text = String::from_utf8(bytes.into()).map_err(|_| GatewayFault::Unreadable)?;
    Ok((text, outcome))
}

fn broken(error: Box<dyn std::error::Error + Send + Sync>) -> GatewayFault {
    match error.downcast::<LengthLimitError>() {
        Ok(_) => GatewayFault::TooLarge,
        Err(_) => GatewayFault::Unreachable,
    }
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    let media = headers.get(CONTENT_TYPE);
    let media = media.and_then(|value| value.to_str().ok());
    let media = media.unwrap_or_default().split(';').next();
    media.is_some_and(|media| media.trim().eq_ignore_ascii_case("text/event-stream"))
}

/// The answer that `bytes` hold; none where they hold another message.
fn message(bytes: &[u8]) -> Option<Result<Value, RpcErrorObject>> {
    let message: ResponseMessage = serde_json::from_slice(bytes).ok()?;
    match message {
        // A request that was refused unread is answered without its id.
        ResponseMessage {
            error: Some(error),
            id,
            ..
        } if id.is_null() || id == json!(ID) => Some(Err(error)),
        ResponseMessage {
            result: Some(result),
            id,
            ..
        } if id == json!(ID) => Some(Ok(result)),
        _ => None,
    }
}
