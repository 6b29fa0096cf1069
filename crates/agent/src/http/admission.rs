//! Admission of requests: the checks that a request passes, in this order, before its body is parsed.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, any};
use bytes::Bytes;
use http::request::Parts;
use http::{Method, StatusCode};
use metrics::counter;
use tracing::Instrument;
use wardgate_domain::Caller;
use wardgate_edge::routes::GET;
use wardgate_telemetry::{names, trace_context};

use super::{Endpoints, GRANTS, Problem};
use crate::BearerToken;

/// An admitted request: the caller, the token and the complete body.
pub(super) struct AdmittedRequest {
    pub(super) caller: Arc<Caller>,
    pub(super) token: BearerToken,
    pub(super) parts: Parts,
    /// The body, which is empty for methods without one.
    pub(super) body: Bytes,
}

/// Creates a route that accepts `methods` and answers with `work`.
pub(super) fn endpoint<W, A>(
    here: &Arc<Endpoints>,
    methods: &'static [Method],
    work: W,
) -> MethodRouter
where
    W: Fn(Arc<Endpoints>, AdmittedRequest) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = Result<Response, Problem>> + Send + 'static,
{
    let here = Arc::clone(here);
    let preflight = {
        let here = Arc::clone(&here);
        move |request: Parts| async move {
            GRANTS
                .preflight(&here.admission.origins, &request)
                .map_err(|what| refused_origin(&what))
        }
    };
    any(move |request: Request| {
        let span = tracing::debug_span!("http", http.request.method = %request.method());
        trace_context::adopt(&span, request.headers());
        answer(here, methods, request, work).instrument(span)
    })
    .options(preflight)
}

async fn answer<W, A>(
    here: Arc<Endpoints>,
    methods: &'static [Method],
    request: Request,
    work: W,
) -> Response
where
    W: Fn(Arc<Endpoints>, AdmittedRequest) -> A,
    A: Future<Output = Result<Response, Problem>>,
{
    let (parts, mut body) = request.into_parts();
    let origin = here.admission.origins.allowed_origin(&parts);
    let mut response = match admit(&here, methods, &parts, &mut body).await {
        Ok((caller, token, body)) => {
            let admitted = AdmittedRequest {
                caller,
                token,
                parts,
                body,
            };
            work(here, admitted)
                .await
                .unwrap_or_else(IntoResponse::into_response)
        }
        Err(problem) => {
            counter!(names::REFUSED_REQUESTS, "reason" => problem.code()).increment(1);
            wardgate_edge::drain(&parts.headers, body).await;
            problem.into_response()
        }
    };
    GRANTS.allow(origin, response.headers_mut());
    response
}

/// Checks a request in order. Each step costs more than the step before and relies on its result.
async fn admit(
    here: &Endpoints,
    methods: &[Method],
    request: &Parts,
    body: &mut Body,
) -> Result<(Arc<Caller>, BearerToken, Bytes), Problem> {
    let headers = &request.headers;
    // 1. Host and Origin. This stops web pages that use DNS rebinding to reach this address.
    here.admission
        .origins
        .check(&request.uri, headers)
        .map_err(|what| refused_origin(&what))?;
    // 2. The token. Only authenticated callers reach a model. The token is passed on to the gateway's `/mcp` and must
    // therefore be valid there.
    let verified = here.admission.auth.verify_request(headers, &["/mcp"]);
    let caller = verified.await?.caller;
    let token = caller.token().map(wardgate_domain::BearerToken::expose);
    let token = BearerToken::new(token.unwrap_or_default())
        .of_peer(request.extensions.get::<SocketAddr>().copied());
    // 3. The method.
    if !methods.contains(&request.method) {
        let allowed = if methods == GET { "GET" } else { "POST" };
        return Err(Problem::method_not_allowed(allowed));
    }
    if request.method == Method::GET {
        return Ok((caller, token, Bytes::new()));
    }
    // 4. The media type. Only JSON bodies are accepted.
    if !wardgate_edge::is_json(headers) {
        return Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unsupported_media_type",
            "Send Content-Type: application/json.",
        ));
    }
    // 5. The body, limited in size and time.
    let body = wardgate_edge::read_body(body, here.admission.body).await?;
    Ok((caller, token, body))
}

fn refused_origin(what: &str) -> Problem {
    Problem::new(StatusCode::FORBIDDEN, "origin_refused", what)
}
