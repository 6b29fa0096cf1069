//! What a message passes, in this order, before anyone reads it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tracing::Instrument;
use wardgate_telemetry::trace_context;

use super::{metadata, origin, problem};
use crate::Gateway;
use crate::mcp::{self, Door, Post};

/// A request refused before its body was read.
struct Refusal {
    reason: &'static str,
    /// Boxed, because a refusal is the rare case and travels through every step.
    response: Box<Response>,
}

impl Refusal {
    fn new(status: StatusCode, reason: &'static str, description: &str) -> Self {
        Self {
            reason,
            response: Box::new(problem(status, reason, description)),
        }
    }
}

/// Answers one request to a JSON-RPC path.
pub(super) async fn handle(gateway: Arc<Gateway>, door: Door, request: Request) -> Response {
    let client_ip = request
        .extensions()
        .get::<SocketAddr>()
        .map(|address| address.ip().to_canonical().to_string())
        .unwrap_or_default();
    let span = tracing::debug_span!("http", http.request.method = %request.method());
    trace_context::adopt(&span, request.headers());
    let post = match admit(&gateway, door, request, &client_ip)
        .instrument(span.clone())
        .await
    {
        Ok(post) => post,
        Err((subject, refusal)) => {
            gateway.refusals.count(refusal.reason, &client_ip, &subject);
            return *refusal.response;
        }
    };
    let answer = mcp::answer(&gateway, &post).instrument(span).await;
    // A refused call of a tool has its own record; what never became one is counted.
    if let Some(reason) = answer.refused() {
        gateway
            .refusals
            .count(reason, &client_ip, post.caller.subject());
    }
    answer.into_response()
}

/// The ordered list. Each step costs more than the one before, and trusts what that one checked.
async fn admit(
    gateway: &Gateway,
    door: Door,
    request: Request,
    client_ip: &str,
) -> Result<Post, (String, Refusal)> {
    let nobody = |refusal| (String::new(), refusal);
    let headers = request.headers();
    // 1. Host and Origin: a web page that rebinds a name to this address gets no further.
    origin::check(&gateway.config, headers)
        .map_err(|what| nobody(Refusal::new(StatusCode::FORBIDDEN, "origin_refused", &what)))?;
    // 2. The token: nobody is anonymous, whatever the method or the path.
    let caller = gateway
        .auth
        .caller_of_request(headers)
        .await
        .map_err(|refused| {
            let reason = refused.reason();
            nobody(Refusal {
                reason,
                response: Box::new(metadata::unauthorized(gateway, &refused)),
            })
        })?;
    let known = |refusal| (caller.subject().to_owned(), refusal);
    // 3. The method: there is no stream to open and no session to end.
    if request.method() != Method::POST {
        let mut refusal = Refusal::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "method_not_allowed",
            "Send messages by POST; this server opens no stream of its own.",
        );
        refusal
            .response
            .headers_mut()
            .insert(header::ALLOW, HeaderValue::from_static("POST"));
        return Err(known(refusal));
    }
    // 4. The media types: what is not JSON is not read as JSON.
    media_types(headers).map_err(known)?;
    // 5. The body: bounded in size and time.
    let (parts, body) = request.into_parts();
    let body = read(body, gateway).await.map_err(known)?;
    Ok(Post {
        door,
        client_ip: client_ip.to_owned(),
        headers: parts.headers,
        body,
        caller,
    })
}

fn media_types(headers: &HeaderMap) -> Result<(), Refusal> {
    let text = |name| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    };
    let content = text(header::CONTENT_TYPE)
        .split(';')
        .next()
        .unwrap_or_default()
        .trim();
    if !content.eq_ignore_ascii_case("application/json") {
        return Err(Refusal::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unsupported_media_type",
            "Send Content-Type: application/json.",
        ));
    }
    let accepted = headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok());
    let mut ranges = accepted.flat_map(|value| value.split(',')).peekable();
    let takes_json = |range: &str| {
        let range = range.split(';').next().unwrap_or_default().trim();
        ["application/json", "application/*", "*/*"]
            .iter()
            .any(|json| range.eq_ignore_ascii_case(json))
    };
    if ranges.peek().is_some() && !ranges.any(takes_json) {
        return Err(Refusal::new(
            StatusCode::NOT_ACCEPTABLE,
            "not_acceptable",
            "Send Accept: application/json, text/event-stream.",
        ));
    }
    Ok(())
}

async fn read(body: Body, gateway: &Gateway) -> Result<Bytes, Refusal> {
    let limits = gateway.limits();
    let reading = Limited::new(body, limits.body_bytes).collect();
    match tokio::time::timeout(Duration::from_secs(limits.body_seconds), reading).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Refusal::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too_large",
            &format!("The body is larger than {} bytes.", limits.body_bytes),
        )),
        Ok(Err(_)) => Err(Refusal::new(
            StatusCode::BAD_REQUEST,
            "incomplete_body",
            "The body ended early.",
        )),
        Err(_) => Err(Refusal::new(
            StatusCode::REQUEST_TIMEOUT,
            "body_timeout",
            &format!(
                "The body did not arrive within {} seconds.",
                limits.body_seconds
            ),
        )),
    }
}
