//! One request and its answer (MCP 2026-07-28, basic/transports, "Streamable HTTP").

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::StreamExt;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body::Body as HttpBody;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use sse_stream::SseStream;
use wardgate_edge::EdgeClient;
use wardgate_mcp::{Version, header as mcp_header, meta as meta_key};
use wardgate_telemetry::trace_context;

use super::fault::{FaultData, GatewayError, RpcFault};
use crate::request::BearerToken;

const VERSION: &str = Version::V2026_07_28.as_str();

/// Bytes of an answer.
const MAX_ANSWER: usize = 16 * 1024 * 1024;

/// Longest text of an error that is taken over, in characters.
const MAX_MESSAGE: usize = 2_000;

/// Headers of W3C Trace Context and Baggage, which a request also has in its `_meta`.
const TRACE: [&str; 3] = ["traceparent", "tracestate", "baggage"];

/// A request that is not written yet.
pub(super) struct GatewayRequest<'r> {
    pub(super) path: String,
    pub(super) method: &'r str,
    /// What the method is about, for the header `Mcp-Name`.
    pub(super) name: Option<&'r str>,
    pub(super) params: Map<String, Value>,
    /// `params.arguments`, which go as they are written.
    pub(super) arguments: Option<&'r RawValue>,
    /// Further members of `params._meta`.
    pub(super) meta: &'r [(&'r str, &'r str)],
    pub(super) limit: Duration,
}

#[derive(Serialize)]
struct RequestEnvelope<'r> {
    jsonrpc: &'static str,
    id: u64,
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
struct ResponseMessage<'m> {
    #[serde(default)]
    id: Option<Value>,
    #[serde(borrow, default)]
    result: Option<&'m RawValue>,
    #[serde(borrow, default)]
    error: Option<ErrorMember<'m>>,
}

#[derive(Deserialize)]
struct ErrorMember<'m> {
    code: i64,
    #[serde(borrow, default)]
    message: Cow<'m, str>,
    #[serde(borrow, default)]
    data: Option<&'m RawValue>,
}

/// Sends `request` and waits for its result, as the gateway wrote it.
pub(super) async fn exchange(
    edge: &EdgeClient,
    token: &BearerToken,
    request: GatewayRequest<'_>,
) -> Result<Box<RawValue>, GatewayError> {
    let limit = request.limit;
    let work = async {
        let id = next_id();
        let response = edge.send(write(edge, token, request, id)?).await?;
        read_response(response, id).await
    };
    let answered = tokio::time::timeout(limit, work).await;
    answered.unwrap_or(Err(GatewayError::Late))
}

/// An id that no other request has.
pub(super) fn next_id() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// The request on its way out, as the protocol wants it.
pub(super) fn write(
    edge: &EdgeClient,
    token: &BearerToken,
    request: GatewayRequest<'_>,
    id: u64,
) -> Result<http::Request<String>, GatewayError> {
    let mut trace = HeaderMap::new();
    trace_context::inject(&mut trace);
    let mut meta = Map::new();
    meta.insert(meta_key::PROTOCOL_VERSION.to_owned(), json!(VERSION));
    meta.insert(meta_key::CLIENT_CAPABILITIES.to_owned(), json!({}));
    meta.insert(
        meta_key::CLIENT_INFO.to_owned(),
        json!({ "name": "wardgate-agent", "version": env!("CARGO_PKG_VERSION") }),
    );
    for name in TRACE {
        if let Some(value) = trace.get(name).and_then(|value| value.to_str().ok()) {
            meta.insert(name.to_owned(), json!(value));
        }
    }
    for (name, value) in request.meta {
        meta.insert((*name).to_owned(), json!(value));
    }
    let body = serde_json::to_string(&RequestEnvelope {
        jsonrpc: "2.0",
        id,
        method: request.method,
        params: RequestParams {
            members: request.params,
            arguments: request.arguments,
            _meta: meta,
        },
    })
    .map_err(|_| GatewayError::Unreadable)?;

    let mut post = http::Request::post(edge.uri(&request.path)?)
        .body(body)
        .map_err(|_| GatewayError::UnknownToolset)?;
    // As the listener says it of a client behind a socket; without one, this is the only way to tell.
    if let Some(peer) = token.peer() {
        post.extensions_mut().insert(peer);
    }
    let headers = post.headers_mut();
    headers.extend(trace);
    let bearer = format!("Bearer {}", token.as_str());
    let mut bearer = HeaderValue::try_from(bearer).map_err(|_| GatewayError::Unauthorized)?;
    bearer.set_sensitive(true);
    headers.insert(AUTHORIZATION, bearer);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let both = HeaderValue::from_static("application/json, text/event-stream");
    headers.insert(ACCEPT, both);
    headers.insert(
        mcp_header::PROTOCOL_VERSION,
        HeaderValue::from_static(VERSION),
    );
    headers.insert(mcp_header::METHOD, mcp_header::encode_value(request.method));
    if let Some(name) = request.name {
        headers.insert(mcp_header::NAME, mcp_header::encode_value(name));
    }
    Ok(post)
}

/// Whether an answer with these headers is a stream of events.
pub(super) fn is_event_stream(headers: &HeaderMap) -> bool {
    let media = headers.get(CONTENT_TYPE);
    let media = media
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let media = media.split(';').next().unwrap_or_default().trim();
    media.eq_ignore_ascii_case("text/event-stream")
}

/// Waits for the answer to the request of this id.
pub(super) async fn read_response(
    response: Response<Body>,
    id: u64,
) -> Result<Box<RawValue>, GatewayError> {
    let (head, body) = response.into_parts();
    let status = head.status;
    let retry_after = head
        .headers
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok()?.parse().ok());
    let body = Limited::new(body, MAX_ANSWER).map_err(broken);
    let answer = if is_event_stream(&head.headers) {
        read_events(body, id, status, retry_after).await
    } else {
        let bytes = body.collect().await?.to_bytes();
        message(&bytes, id, status, retry_after).unwrap_or(Err(GatewayError::Unreadable))
    };
    match answer {
        // Whatever the body says, these say who is at fault.
        Err(_) if status == StatusCode::UNAUTHORIZED => Err(GatewayError::Unauthorized),
        Err(GatewayError::Unreadable) if status == StatusCode::NOT_FOUND => {
            Err(GatewayError::UnknownToolset)
        }
        Err(GatewayError::Refused(fault)) if fault.data.reason.as_deref() == Some("not_found") => {
            Err(GatewayError::UnknownToolset)
        }
        Err(GatewayError::Unreadable) if status.is_server_error() => Err(GatewayError::Unreachable),
        answer => answer,
    }
}

/// Why a body ends before it should.
fn broken(error: Box<dyn std::error::Error + Send + Sync>) -> GatewayError {
    match error.downcast::<LengthLimitError>() {
        Ok(_) => GatewayError::TooLarge,
        Err(_) => GatewayError::Unreachable,
    }
}

/// Waits for the answer among the events; what comes before it are notifications.
async fn read_events(
    body: impl HttpBody<Data = Bytes, Error = GatewayError> + Unpin,
    id: u64,
    status: StatusCode,
    retry_after: Option<u64>,
) -> Result<Box<RawValue>, GatewayError> {
    let mut events = SseStream::new(body);
    while let Some(event) = events.next().await {
        let event = event.map_err(|error| match error {
            sse_stream::Error::Body(error) => match error.downcast() {
                Ok(error) => *error,
                Err(_) => GatewayError::Unreachable,
            },
            _ => GatewayError::Unreadable,
        })?;
        let data = event.data.unwrap_or_default();
        if let Some(answer) = message(data.as_bytes(), id, status, retry_after) {
            return answer;
        }
    }
    // It ended without the answer.
    Err(GatewayError::Unreachable)
}

/// The answer that `bytes` hold; none when they hold another message.
fn message(
    bytes: &[u8],
    id: u64,
    status: StatusCode,
    retry_after: Option<u64>,
) -> Option<Result<Box<RawValue>, GatewayError>> {
    let message: ResponseMessage<'_> = serde_json::from_slice(bytes).ok()?;
    match message {
        // A request that was refused unread is answered without its id.
        ResponseMessage {
            error: Some(error),
            id: given,
            ..
        } if given
            .as_ref()
            .is_none_or(|given| given.is_null() || *given == json!(id)) =>
        {
            Some(Err(GatewayError::Refused(Box::new(RpcFault {
                code: error.code,
                message: error.message.chars().take(MAX_MESSAGE).collect(),
                data: FaultData::read(error.data.map(RawValue::get), retry_after),
                is_rate_limit: status == StatusCode::TOO_MANY_REQUESTS,
            }))))
        }
        ResponseMessage {
            result: Some(result),
            id: Some(given),
            ..
        } if given == json!(id) => Some(Ok(result.to_owned())),
        _ => None,
    }
}
