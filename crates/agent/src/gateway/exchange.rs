//! Sends a request to the gateway and reads its response.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Body;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use serde_json::value::RawValue;
use wardgate_edge::{EdgeClient, GatewayCaller, GatewayRequest, GatewayResponse};
use wardgate_egress::retry_after;
use wardgate_mcp::message::ErrorObject;
use wardgate_telemetry::trace_context;

use super::fault::{FaultData, GatewayError, RpcFault};
use crate::request::BearerToken;

/// Maximum size of a response, in bytes.
const MAX_ANSWER: usize = 16 * 1024 * 1024;

/// Maximum length of an error message that is kept, in characters.
const MAX_MESSAGE: usize = 2_000;

/// The headers of W3C Trace Context and Baggage, which are copied to the `_meta` of a request.
const TRACE: [&str; 3] = ["traceparent", "tracestate", "baggage"];

/// Sends `request` and returns its result as the gateway wrote it.
pub(super) async fn exchange(
    edge: &EdgeClient,
    token: &BearerToken,
    request: GatewayRequest<'_>,
    limit: Duration,
) -> Result<Box<RawValue>, GatewayError> {
    let work = async {
        let (id, response) = send(edge, token, request).await?;
        read_response(response, id).await
    };
    let answered = tokio::time::timeout(limit, work).await;
    answered.unwrap_or(Err(GatewayError::Late))
}

/// Sends `request` with an id that no other request of this process has.
pub(super) async fn send(
    edge: &EdgeClient,
    token: &BearerToken,
    request: GatewayRequest<'_>,
) -> Result<(u64, Response<Body>), GatewayError> {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let id = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    let mut trace = HeaderMap::new();
    trace_context::inject(&mut trace);
    let trace_members = TRACE.into_iter().filter_map(|name| {
        let value = trace.get(name)?.to_str().ok()?;
        Some((name, value))
    });
    let meta: Vec<_> = trace_members.chain(request.meta.iter().copied()).collect();
    let request = GatewayRequest {
        meta: &meta,
        ..request
    };
    let bearer = format!("Bearer {}", token.as_str());
    let mut bearer = HeaderValue::try_from(bearer).map_err(|_| GatewayError::Unauthorized)?;
    bearer.set_sensitive(true);
    let caller = GatewayCaller {
        client: "wardgate-agent",
        bearer,
        peer: token.peer(),
    };
    let response = edge.send(request.encode(edge, caller, id)?).await?;
    Ok((id, response))
}

/// Reads the response to the request `id`.
pub(super) async fn read_response(
    response: Response<Body>,
    id: u64,
) -> Result<Box<RawValue>, GatewayError> {
    let status = response.status();
    let retry_after = retry_after(response.headers()).map(|pause| pause.as_secs());
    let answer = match GatewayResponse::from_response(response, id, MAX_ANSWER).await {
        Ok(answer) => answer.outcome.map_err(
            |ErrorObject {
                 code,
                 message,
                 data,
             }| {
                GatewayError::Refused(Box::new(RpcFault {
                    code,
                    message: message.chars().take(MAX_MESSAGE).collect(),
                    data: FaultData::from_value(data, retry_after),
                    is_rate_limit: status == StatusCode::TOO_MANY_REQUESTS,
                }))
            },
        ),
        Err(error) => Err(error.into()),
    };
    match answer {
        // These statuses identify the error whatever the body contains.
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
