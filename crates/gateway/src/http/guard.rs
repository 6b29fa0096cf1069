//! The checks that a request passes, in this order, before its message is parsed.

use std::sync::Arc;

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use wardgate_domain::{Caller, Reason};
use wardgate_edge::{Admission, Origins};
use wardgate_mcp_server::McpResponse;

use super::metadata::{self, ResourceMetadata};
use super::{Endpoint, problem};
use crate::config::Config;
use crate::listen;
use crate::post::Transport;
use crate::scopes::{ScopesConfig, TokenAccess};

/// A request that was refused before its body was read.
pub(super) struct HttpRefusal {
    pub(super) reason: Reason,
    /// The subject of the verified caller. Empty if the token was refused or not checked yet.
    pub(super) subject: String,
    /// The response. It is boxed because refusals are rare, while this type is part of the result of every check.
    pub(super) response: Box<Response>,
}

impl HttpRefusal {
    fn new(status: StatusCode, reason: Reason, description: &str) -> Self {
        Self {
            reason,
            subject: String::new(),
            response: Box::new(problem(status, reason, description)),
        }
    }
}

/// A request that passed all checks.
pub(super) struct AdmittedRequest {
    pub(super) caller: Arc<Caller>,
    pub(super) access: TokenAccess,
    pub(super) kind: RequestKind,
}

/// The kind of an admitted request.
pub(super) enum RequestKind {
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

/// Admits requests to the paths that take tokens.
pub(crate) struct HttpGuard {
    admission: Admission,
    metadata: Arc<ResourceMetadata>,
    scopes: Arc<ScopesConfig>,
}

impl HttpGuard {
    /// Creates a guard. `public_url` is the URL at which clients reach the gateway.
    pub(crate) fn new(admission: Admission, config: &Config, public_url: String) -> Self {
        Self {
            admission,
            metadata: Arc::new(ResourceMetadata::new(config, public_url)),
            scopes: Arc::new(config.scopes.clone()),
        }
    }

    pub(crate) fn admission(&self) -> &Admission {
        &self.admission
    }

    pub(super) fn origins(&self) -> &Origins {
        &self.admission.origins
    }

    pub(super) fn metadata(&self) -> &Arc<ResourceMetadata> {
        &self.metadata
    }

    /// Runs the checks in their order. Each check costs more than the one before, and relies on it.
    pub(super) async fn admit(
        &self,
        endpoint: Endpoint,
        request: &Parts,
        body: &mut Body,
    ) -> Result<AdmittedRequest, HttpRefusal> {
        let headers = &request.headers;
        // 1. Host and Origin: a web page that rebinds a DNS name to this address is refused here.
        self.admission
            .origins
            .check(&request.uri, headers)
            .map_err(|kind| {
                HttpRefusal::new(StatusCode::FORBIDDEN, Reason::ORIGIN_REFUSED, &kind)
            })?;
        // 2. The token: there is no anonymous caller, whatever the method or the path.
        let verified = self
            .admission
            .auth
            .verify_request(headers, &metadata::audiences(request))
            .await
            .map_err(|refused| HttpRefusal {
                reason: refused.reason(),
                subject: String::new(),
                response: Box::new(self.metadata.challenge(&refused, request)),
            })?;
        let caller = verified.caller;
        let metadata = self.metadata.url(metadata::resource_of(request));
        let access = TokenAccess::new(verified.scopes, &self.scopes, metadata);
        let kind = self
            .classify_request(endpoint, request, body, &access)
            .await;
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

    /// Runs the remaining checks, for a known caller.
    async fn classify_request(
        &self,
        endpoint: Endpoint,
        request: &Parts,
        body: &mut Body,
        access: &TokenAccess,
    ) -> Result<RequestKind, HttpRefusal> {
        let headers = &request.headers;
        // 3. The scopes that every token needs.
        access.check_required().map_err(|error| HttpRefusal {
            reason: error.reason(),
            subject: String::new(),
            response: Box::new(McpResponse::error(None, &error).into_response()),
        })?;
        // 4. The method: messages use POST; GET opens a stream of changes, and DELETE ends a session.
        let listens = request.method == Method::GET && listen::is_asked_for(headers);
        match endpoint {
            Endpoint::Messages(Transport::Mcp) if listens => return Ok(RequestKind::Listen),
            Endpoint::Messages(Transport::Mcp) if request.method == Method::DELETE => {
                return Ok(RequestKind::EndSession);
            }
            // Not every client of that version sends an Accept header.
            Endpoint::Sse if request.method == Method::GET => return Ok(RequestKind::SseStream),
            _ if request.method != Method::POST => return Err(not_a_post(endpoint)),
            _ => {}
        }
        // 5. The media types: a body that is not JSON is not parsed as JSON.
        media_types(headers)?;
        // 6. The body: limited in size and time.
        let body = self.read_body(body).await?;
        match endpoint {
            Endpoint::Messages(transport) => Ok(RequestKind::Message { transport, body }),
            Endpoint::Sse => Err(not_a_post(endpoint)),
        }
    }

    async fn read_body(&self, body: &mut Body) -> Result<Bytes, HttpRefusal> {
        wardgate_edge::read_body(body, self.admission.body)
            .await
            .map_err(|refused| {
                HttpRefusal::new(refused.status(), refused.reason(), &refused.description())
            })
    }
}

fn not_a_post(endpoint: Endpoint) -> HttpRefusal {
    let description = match endpoint {
        Endpoint::Messages(Transport::Mcp) => {
            "Send messages by POST. Before 2026-07-28, GET with Accept: text/event-stream opens a stream of notifications, and DELETE \
             ends a session."
        }
        Endpoint::Messages(Transport::Message) => "Send messages by POST.",
        Endpoint::Messages(Transport::Sse) => {
            "Send messages by POST; the stream of GET /sse contains the address."
        }
        Endpoint::Sse => {
            "Open a stream by GET; send messages by POST to the address in its first event."
        }
    };
    let mut refusal = HttpRefusal::new(
        StatusCode::METHOD_NOT_ALLOWED,
        Reason::METHOD_NOT_ALLOWED,
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
            Reason::UNSUPPORTED_MEDIA_TYPE,
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
            Reason::NOT_ACCEPTABLE,
            "Send Accept: application/json, text/event-stream.",
        ));
    }
    Ok(())
}
