//! The handler of HTTP requests to JSON-RPC paths: checks and answers each request, and counts refusals.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use tracing::Instrument;
use wardgate_mcp_server::{McpResponse, StreamAcceptance};
use wardgate_telemetry::trace_context;

use super::guard::{AdmittedRequest, HttpRefusal, RequestKind};
use super::{Endpoint, GRANTS};
use crate::Gateway;
use crate::answer_pace;
use crate::catalogue::View;
use crate::dispatch;
use crate::listen::ListeningClient;
use crate::post::{Post, Transport, is_batch};
use crate::sse;
use crate::streamable;
use crate::upstream;

/// Headers with the rate limits that counted a request, and their remaining quota (draft-ietf-httpapi-ratelimit-headers-11).
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// Answers one request to a JSON-RPC path.
pub(super) async fn handle(
    gateway: Arc<Gateway>,
    endpoint: Endpoint,
    request: Request,
) -> Response {
    let client_ip = request
        .extensions()
        .get::<SocketAddr>()
        .map(|address| address.ip().to_canonical().to_string())
        .unwrap_or_default();
    // The span has the level that is always enabled, because it connects a call with its client's trace.
    let span = tracing::info_span!("http", http.request.method = %request.method());
    trace_context::adopt(&span, request.headers());
    let (parts, mut body) = request.into_parts();
    let origin = gateway.guard.origins().allowed_origin(&parts);
    let admitting = gateway.guard.admit(endpoint, &parts, &mut body);
    let admitted = admitting.instrument(span.clone()).await;
    let mut response = match admitted {
        Ok(admitted) => {
            let answering = Box::pin(answer_admitted(&gateway, admitted, parts, client_ip));
            answering.instrument(span).await
        }
        Err(HttpRefusal {
            reason,
            subject,
            response,
        }) => {
            wardgate_edge::drain(&parts.headers, body).await;
            gateway
                .recorder
                .count_refusal(reason.as_str(), &client_ip, &subject);
            *response
        }
    };
    GRANTS.allow(origin, response.headers_mut());
    response
}

/// Answers an admitted request.
async fn answer_admitted(
    gateway: &Arc<Gateway>,
    admitted: AdmittedRequest,
    parts: Parts,
    client_ip: String,
) -> Response {
    let AdmittedRequest {
        caller,
        access,
        kind,
    } = admitted;
    let arrived = Instant::now();
    let path = parts.uri.path();
    let view = match path.strip_prefix("/mcp/upstream/") {
        Some(source) => {
            upstream::resolve_view(&gateway.discovery, &caller, &access, &client_ip, source).await
        }
        None => Ok(View::of_path(path)),
    };
    let view = match view {
        Ok(view) => view,
        Err(error) => {
            let answer = match &kind {
                RequestKind::Message { body, .. } => {
                    dispatch::refuse_post(body, gateway.limits.depth, &error)
                }
                _ => McpResponse::error(None, &error),
            };
            gateway
                .recorder
                .count_refusals(&answer, &client_ip, &caller);
            if answer.is_of_unknown() {
                answer_pace::wait_for_step(arrived).await;
            }
            return answer.into_response();
        }
    };
    let answer = match kind {
        RequestKind::Message { transport, body } => {
            let accepts_stream = if transport == Transport::Mcp && !is_batch(&body) {
                StreamAcceptance::from_headers(&parts.headers)
            } else {
                StreamAcceptance::Refused
            };
            let post = Post {
                transport,
                accepts_stream,
                view,
                caller,
                access,
                client_ip,
                headers: parts.headers,
                body,
                session: None,
                streamable: None,
                limit_report: gateway.admission.open_report(),
            };
            return if transport == Transport::Sse {
                sse::accept_message(gateway, post, parts.uri.query()).await
            } else {
                answer_message(gateway, post).await
            };
        }
        RequestKind::EndSession => {
            match gateway.sessions.end(&view, &caller, &parts.headers).await {
                Ok(response) => return response,
                Err(error) => Err(error),
            }
        }
        RequestKind::Listen => {
            let headers = &parts.headers;
            streamable::listen(gateway, &view, &caller, &access, &client_ip, headers).await
        }
        RequestKind::SseStream => {
            let watcher = &gateway.resource_watcher;
            let client = ListeningClient::follower(watcher, &caller, &access, &client_ip, &view);
            gateway.sse.open_stream(&gateway.listeners, client).await
        }
    };
    let answer = answer.unwrap_or_else(|error| McpResponse::error(None, &error));
    gateway
        .recorder
        .count_refusals(&answer, &client_ip, &caller);
    answer.into_response()
}

async fn answer_message(gateway: &Arc<Gateway>, mut post: Post) -> Response {
    let answer = match post.attach_session(&gateway.sessions).await {
        Ok(()) => dispatch::answer_post(gateway, &post).await,
        Err(error) => McpResponse::error(None, &error),
    };
    let recorder = &gateway.recorder;
    recorder.count_refusals(&answer, &post.client_ip, &post.caller);
    let answer = if post.accepts_stream == StreamAcceptance::Preferred {
        answer.into_events()
    } else {
        answer
    };
    let mut response = answer.into_response();
    let fields = post.limit_report.and_then(|report| report.fields());
    if let Some((policies, left)) = fields
        && let (Ok(policies), Ok(left)) =
            (HeaderValue::try_from(policies), HeaderValue::try_from(left))
    {
        response.headers_mut().insert(RATE_LIMIT_POLICY, policies);
        response.headers_mut().insert(RATE_LIMIT, left);
    }
    response
}
