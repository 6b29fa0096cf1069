//! The checks that a request passes, in this order, before its message is parsed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use tracing::Instrument;
use wardgate_domain::Caller;
use wardgate_mcp_server::McpResponse;
use wardgate_telemetry::trace_context;

use super::{Endpoint, GRANTS, metadata, problem};
use crate::Gateway;
use crate::answer_pace;
use crate::catalogue::View;
use crate::config::Limits;
use crate::dispatch;
use crate::listen;
use crate::post::{Post, Transport};
use crate::scopes::TokenAccess;
use crate::sse;
use crate::streamable;
use crate::upstream;

/// A request refused before its body was read.
struct HttpRefusal {
    reason: &'static str,
    /// The verified caller; empty when the token itself was refused, or not reached.
    subject: String,
    /// Boxed, because a refusal is the rare case and travels through every step.
    response: Box<Response>,
}

impl HttpRefusal {
    fn new(status: StatusCode, reason: &'static str, description: &str) -> Self {
        Self {
            reason,
            subject: String::new(),
            response: Box::new(problem(status, reason, description)),
        }
    }
}

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
    // Of the level that is always there: through it a call is in its client's trace.
    let span = tracing::info_span!("http", http.request.method = %request.method());
    trace_context::adopt(&span, request.headers());
    let (parts, mut body) = request.into_parts();
    let origin = gateway.origins.welcome(&parts);
    let admitted = admit(&gateway, endpoint, &parts, &mut body)
        .instrument(span.clone())
        .await;
    let mut response = match admitted {
        Ok(admitted) => {
            let answering = answer_admitted(&gateway, admitted, parts, client_ip);
            answering.instrument(span).await
        }
        Err(HttpRefusal {
            reason,
            subject,
            response,
        }) => {
            wardgate_edge::drain(&parts.headers, body).await;
            gateway.refusals.count(reason, &client_ip, &subject);
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
            upstream::resolve_view(gateway, (&caller, &access), &client_ip, source).await
        }
        None => Ok(View::of_path(path)),
    };
    let view = match view {
        Ok(view) => view,
        Err(error) => {
            let answer = match &kind {
                RequestKind::Message { body, .. } => dispatch::refuse_post(gateway, body, &error),
                _ => McpResponse::error(None, &error),
            };
            gateway.count(&answer, &client_ip, &caller);
            if answer.is_of_unknown() {
                answer_pace::wait_for_step(arrived).await;
            }
            return answer.into_response();
        }
    };
    match kind {
        RequestKind::Message { transport, body } => {
            let post = Post {
                transport,
                view,
                caller,
                access,
                client_ip,
                headers: parts.headers,
                body,
                session: None,
                streamable: None,
            };
            if transport == Transport::Sse {
                sse::accept_message(gateway, post, parts.uri.query()).await
            } else {
                answer_message(gateway, post).await
            }
        }
        RequestKind::Listen => {
            let who = (&caller, &access);
            open_listener(gateway, &view, who, &client_ip, &parts.headers).await
        }
        RequestKind::EndSession => {
            end_session(gateway, &view, &caller, &client_ip, &parts.headers).await
        }
        RequestKind::SseStream => {
            let opened = sse::open_stream(gateway, (&caller, &access), &client_ip);
            let answer = opened.unwrap_or_else(|error| McpResponse::error(None, &error));
            gateway.count(&answer, &client_ip, &caller);
            answer.into_response()
        }
    }
}

async fn answer_message(gateway: &Arc<Gateway>, mut post: Post) -> Response {
    let answer = match post.attach_session(&gateway.sessions).await {
        Ok(()) => dispatch::answer_post(gateway, &post).await,
        Err(error) => McpResponse::error(None, &error),
    };
    gateway.count(&answer, &post.client_ip, &post.caller);
    answer.into_response()
}

async fn open_listener(
    gateway: &Arc<Gateway>,
    view: &View,
    (caller, access): (&Arc<Caller>, &TokenAccess),
    client_ip: &str,
    headers: &HeaderMap,
) -> Response {
    let who = (caller, access);
    let opened = streamable::listen(gateway, view, who, client_ip, headers).await;
    let answer = opened.unwrap_or_else(|error| McpResponse::error(None, &error));
    gateway.count(&answer, client_ip, caller);
    answer.into_response()
}

async fn end_session(
    gateway: &Gateway,
    view: &View,
    caller: &Caller,
    client_ip: &str,
    headers: &HeaderMap,
) -> Response {
    let ended = gateway.sessions.end(view, caller, headers).await;
    ended.unwrap_or_else(|error| {
        let answer = McpResponse::error(None, &error);
        gateway.count(&answer, client_ip, caller);
        answer.into_response()
    })
}

/// A request that passed all checks.
struct AdmittedRequest {
    caller: Arc<Caller>,
    access: TokenAccess,
    kind: RequestKind,
}

/// The kind of an admitted request.
enum RequestKind {
    Message {
        transport: Transport,
        body: Bytes,
    },
    /// A GET for a stream of changes.
    Listen,
    /// A DELETE of a session.
    EndSession,
    /// A GET for an HTTP+SSE stream, which also carries the answers.
    SseStream,
}

/// The checks in order. Each costs more than the one before, and relies on it.
async fn admit(
    gateway: &Gateway,
    endpoint: Endpoint,
    request: &Parts,
    body: &mut Body,
) -> Result<AdmittedRequest, HttpRefusal> {
    let headers = &request.headers;
    // 1. Host and Origin: a web page that rebinds a name to this address gets no further.
    gateway
        .origins
        .check(&request.uri, headers)
        .map_err(|kind| HttpRefusal::new(StatusCode::FORBIDDEN, "origin_refused", &kind))?;
    // 2. The token: nobody is anonymous, whatever the method or the path.
    let verified = gateway
        .auth
        .verify_request(headers, &metadata::audiences(request))
        .await
        .map_err(|refused| HttpRefusal {
            reason: refused.reason(),
            subject: String::new(),
            response: Box::new(metadata::unauthorized(gateway, &refused, request)),
        })?;
    let caller = verified.caller;
    let metadata = metadata::url(gateway, metadata::resource_of(request));
    let access = TokenAccess::new(verified.scopes, metadata);
    let kind = classify_request(gateway, endpoint, request, body, &access).await;
    match kind {
        Ok(kind) => Ok(AdmittedRequest {
            caller,
            access,
            kind,
        }),
        Err(refusal) => Err(HttpRefusal {
            subject: caller.subject().to_owned(),
            ..refusal
        }),
    }
}

/// The rest of the checks, for a known caller.
async fn classify_request(
    gateway: &Gateway,
    endpoint: Endpoint,
    request: &Parts,
    body: &mut Body,
    access: &TokenAccess,
) -> Result<RequestKind, HttpRefusal> {
    let headers = &request.headers;
    // 3. What every token must have been given.
    access
        .enter(&gateway.config.scopes)
        .map_err(|error| HttpRefusal {
            reason: error.reason(),
            subject: String::new(),
            response: Box::new(McpResponse::error(None, &error).into_response()),
        })?;
    // 4. The method: messages come by POST; GET listens, DELETE ends a session.
    let listens = request.method == Method::GET && listen::is_asked_for(headers);
    match endpoint {
        Endpoint::Messages(Transport::Mcp) if listens => return Ok(RequestKind::Listen),
        Endpoint::Messages(Transport::Mcp) if request.method == Method::DELETE => {
            return Ok(RequestKind::EndSession);
        }
        // Not every client of that time says what it accepts.
        Endpoint::Sse if request.method == Method::GET => return Ok(RequestKind::SseStream),
        _ if request.method != Method::POST => return Err(not_a_post(endpoint)),
        _ => {}
    }
    // 5. The media types: what is not JSON is not read as JSON.
    media_types(headers)?;
    // 6. The body: bounded in size and time.
    let body = read_body(body, gateway.limits()).await?;
    match endpoint {
        Endpoint::Messages(transport) => Ok(RequestKind::Message { transport, body }),
        Endpoint::Sse => Err(not_a_post(endpoint)),
    }
}

fn not_a_post(endpoint: Endpoint) -> HttpRefusal {
    let description = match endpoint {
        Endpoint::Messages(Transport::Mcp) => {
            "Send messages by POST. Before 2026-07-28, GET with Accept: text/event-stream opens a stream of changes, and DELETE ends a session."
        }
        Endpoint::Messages(Transport::Message) => "Send messages by POST.",
        Endpoint::Messages(Transport::Sse) => {
            "Send messages by POST; the stream of GET /sse says where to."
        }
        Endpoint::Sse => {
            "Open a stream by GET; messages go by POST to the address that its first event names."
        }
    };
    let mut refusal = HttpRefusal::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method_not_allowed",
        description,
    );
    let methods: Vec<_> = endpoint.methods().iter().map(Method::as_str).collect();
    if let Ok(allowed) = HeaderValue::try_from(methods.join(", ")) {
        refusal
            .response
            .headers_mut()
            .insert(header::ALLOW, allowed);
    }
    refusal
}

fn media_types(headers: &HeaderMap) -> Result<(), HttpRefusal> {
    if !wardgate_edge::is_json(headers) {
        return Err(HttpRefusal::new(
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
        return Err(HttpRefusal::new(
            StatusCode::NOT_ACCEPTABLE,
            "not_acceptable",
            "Send Accept: application/json, text/event-stream.",
        ));
    }
    Ok(())
}

async fn read_body(body: &mut Body, limits: Limits) -> Result<Bytes, HttpRefusal> {
    wardgate_edge::read(body, limits.body())
        .await
        .map_err(|refused| {
            HttpRefusal::new(refused.status(), refused.reason(), &refused.description())
        })
}
