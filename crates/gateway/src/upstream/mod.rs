//! The route of one upstream server, `/mcp/upstream/{source}`: its own names and words, under the caller's rights.
//!
//! ```text
//!  POST · GET · DELETE ─▶ request ─▶ right ─▶ exchange ─────▶ tool-runner ─▶ upstream
//!                         what is    which    authorize, intent,  │ same era, same bytes
//!                         asked      permit   outcome, release    ▼
//!  client ◀──────────── answer ◀── receipts, sealed ids, lists without what the caller may not use
//! ```
//!
//! Where messages of this client cannot be carried to that server, as they are of another era or it has no URL, the
//! gateway answers itself as it does on `/mcp`: see [`View`]. Which of the two it is, [`is_forwarded`] says. Where the tool-runner
//! has the last word ([`may_be_answered_here`]), the gateway goes on with what it began: see [`NotForwarded`].
//!
//! Where a session or an event has an id of the upstream's, the client gets it sealed: nothing is kept here, so any
//! replica serves any request, and nobody can use what was handed to another.

mod answer;
mod batch;
mod exchange;
mod handles;
mod lists;
mod outcomes;
mod right;
mod upstream_request;

use std::sync::Arc;
use std::time::Instant;

use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde_json::value::RawValue;
use wardgate_domain::{Caller, OfferKind};
use wardgate_mcp::Version;
use wardgate_mcp::header::PROTOCOL_VERSION;
use wardgate_rpc::client::Carriage;

use crate::Gateway;
use crate::answer_pace;
use crate::catalogue::Source;
use crate::reply::Answer;
use crate::rpc_error::RpcError;
use crate::scopes::TokenAccess;
use crate::view::View;

use self::right::{AccessError, AccessRight};
use self::upstream_request::UpstreamRequest;

/// One request to the route, authenticated but unread.
pub(crate) struct RouteRequest {
    pub(crate) source: String,
    pub(crate) caller: Arc<Caller>,
    /// What the token is good for.
    pub(crate) access: TokenAccess,
    pub(crate) client_ip: String,
    pub(crate) headers: HeaderMap,
    pub(crate) verb: HttpVerb,
}

impl RouteRequest {
    /// The same request with another verb.
    fn with_verb(&self, verb: HttpVerb) -> Self {
        Self {
            source: self.source.clone(),
            caller: Arc::clone(&self.caller),
            access: self.access.clone(),
            client_ip: self.client_ip.clone(),
            headers: self.headers.clone(),
            verb,
        }
    }
}

/// How it came.
#[derive(Clone)]
pub(crate) enum HttpVerb {
    Post(Bytes),
    Get,
    Delete,
}

/// What becomes of a request to the route.
pub(crate) enum Routing {
    /// The server's answer, or a refusal.
    Answered(Response),
    /// The gateway answers itself, as on `/mcp`, of that view.
    AnswerHere(View, RouteRequest),
}

/// Sends one request on its way.
pub(crate) async fn route(gateway: &Arc<Gateway>, route_request: RouteRequest) -> Routing {
    let arrived = Instant::now();
    let routing = resolve_routing(gateway, route_request).await;
    if matches!(&routing, Routing::Answered(response) if answer_pace::has_to_wait(response)) {
        answer_pace::wait_for_step(arrived).await;
    }
    routing
}

async fn resolve_routing(gateway: &Arc<Gateway>, route_request: RouteRequest) -> Routing {
    match resolve_source(gateway, &route_request).await {
        Ok((source, None)) if may_be_answered_here(&source, &route_request.headers) => {
            let again = route_request.with_verb(route_request.verb.clone());
            let response = forward_request(gateway, Arc::clone(&source), route_request).await;
            match response.extensions().get::<NotForwarded>() {
                Some(NotForwarded) => answer_here(gateway, source, again).await,
                None => Routing::Answered(response),
            }
        }
        Ok((source, None)) => {
            Routing::Answered(forward_request(gateway, source, route_request).await)
        }
        Ok((_, Some(view))) => Routing::AnswerHere(view, route_request),
        // Read all the same: what is wrong with it is wrong wherever it goes, and tells nobody which sources there are.
        Err(error) => {
            let (id, error) = match &route_request.verb {
                HttpVerb::Post(body) if batch::is_batch(body) => {
                    let misread = batch::entries(gateway, &route_request, body).err();
                    (None, misread.unwrap_or(error))
                }
                _ => match UpstreamRequest::from_route_request(gateway, &route_request) {
                    Ok(upstream_request) => (upstream_request.id, error),
                    Err(misread) => misread,
                },
            };
            Routing::Answered(refuse(gateway, &route_request, id.as_deref(), &error))
        }
    }
}

/// Whether the tool-runner has the last word on whether a message is carried: the caller of a server that acts in its callers'
/// names may have to connect it first, and whether a server of 2026-07-28 takes older messages the first one shows.
fn may_be_answered_here(source: &Source, headers: &HeaderMap) -> bool {
    source.acts_for_caller || source.carriage == Carriage::All && !is_modern(headers)
}

/// Marks the answer to what was not carried, and what the gateway can answer itself.
#[derive(Clone, Copy)]
struct NotForwarded;

/// Has the gateway answer itself what was not carried.
async fn answer_here(
    gateway: &Gateway,
    source: Arc<Source>,
    route_request: RouteRequest,
) -> Routing {
    let view = async {
        may_connect(gateway, &source, &route_request).await?;
        let catalogue = gateway.catalogue().known()?;
        Ok(View::of_upstream(Arc::clone(&source), &catalogue))
    };
    match view.await {
        Ok(view) => Routing::AnswerHere(view, route_request),
        Err(error) => Routing::Answered(refuse(gateway, &route_request, None, &error)),
    }
}

/// The source, and the view where its messages are not carried.
async fn resolve_source(
    gateway: &Gateway,
    route_request: &RouteRequest,
) -> Result<(Arc<Source>, Option<View>), RpcError> {
    let catalogue = gateway.catalogue().known()?;
    let source = catalogue.source(&route_request.source);
    // The policy decides with every request whether the caller may use it.
    let source = source
        .filter(|source| source.facts.contains_key(&OfferKind::Connect))
        .filter(|source| source.switches.allow(&route_request.caller));
    let Some(source) = source.map(Arc::clone) else {
        return Err(unknown_route_error(gateway, route_request).await);
    };
    if is_forwarded(source.carriage, &route_request.headers) {
        return Ok((source, None));
    }
    may_connect(gateway, &source, route_request).await?;
    let view = View::of_upstream(Arc::clone(&source), &catalogue);
    Ok((source, Some(view)))
}

/// A source that there is not is answered as one whose rights cannot be decided, while none can be.
async fn unknown_route_error(gateway: &Gateway, route_request: &RouteRequest) -> RpcError {
    match gateway.authority().visible(&route_request.caller, []).await {
        Ok(_) => RpcError::unknown_route(),
        Err(error) => gateway.undecided(&error),
    }
}

/// To whoever may not connect, the source is one that there is not.
async fn may_connect(
    gateway: &Gateway,
    source: &Source,
    route_request: &RouteRequest,
) -> Result<(), RpcError> {
    let right = AccessRight::for_offer(source, OfferKind::Connect, "");
    let right = right.ok_or_else(RpcError::unknown_route)?;
    match right.decide(gateway, route_request).await {
        Ok(_) => Ok(()),
        Err(AccessError::Denied { .. } | AccessError::Gone) => Err(RpcError::unknown_route()),
        Err(AccessError::Undecided(error)) => Err(error),
    }
}

/// Whether a request with these headers goes to the server as it is. A client of 2026-07-28 says so in a header, or is
/// refused either way.
fn is_forwarded(carriage: Carriage, headers: &HeaderMap) -> bool {
    match carriage {
        Carriage::All => true,
        Carriage::Modern => is_modern(headers),
        Carriage::Legacy => !is_modern(headers),
        Carriage::None => false,
    }
}

fn is_modern(headers: &HeaderMap) -> bool {
    let named = headers.get(PROTOCOL_VERSION);
    let named = named.and_then(|named| named.to_str().ok()?.parse::<Version>().ok());
    named.is_some_and(Version::is_modern)
}

/// Carries one message, or what needs none; or each message of a batch.
async fn forward_request(
    gateway: &Arc<Gateway>,
    source: Arc<Source>,
    route_request: RouteRequest,
) -> Response {
    match &route_request.verb {
        HttpVerb::Post(body) if batch::is_batch(body) => {
            let body = body.clone();
            batch::run(gateway, source, route_request, &body).await
        }
        _ => forward_message(gateway, source, route_request, false).await,
    }
}

async fn forward_message(
    gateway: &Arc<Gateway>,
    source: Arc<Source>,
    route_request: RouteRequest,
    is_of_batch: bool,
) -> Response {
    match UpstreamRequest::from_route_request(gateway, &route_request) {
        Ok(upstream_request) => {
            let upstream_request = UpstreamRequest {
                is_of_batch,
                ..upstream_request
            };
            // Cancellations, answers of the client and streams that only listen pass.
            let slot = if upstream_request.id.is_some() && !upstream_request.is_open_ended() {
                match gateway.admit(&route_request.caller).await {
                    Ok(slot) => Some(slot),
                    Err(error) => {
                        return refuse(
                            gateway,
                            &route_request,
                            upstream_request.id.as_deref(),
                            &error,
                        );
                    }
                }
            } else {
                None
            };
            exchange::run(gateway, source, route_request, upstream_request, slot).await
        }
        Err((id, error)) => {
            refuse_unreadable(gateway, &source, &route_request, id.as_deref(), &error)
        }
    }
}

/// Refuses what cannot be read. What goes on with something that was not begun with the server may have been begun with
/// the gateway.
fn refuse_unreadable(
    gateway: &Gateway,
    source: &Source,
    route_request: &RouteRequest,
    id: Option<&RawValue>,
    error: &RpcError,
) -> Response {
    if source.acts_for_caller && error.is_of_unknown_handle() {
        let mut response = Answer::error(id, error).into_response();
        response.extensions_mut().insert(NotForwarded);
        return response;
    }
    refuse(gateway, route_request, id, error)
}

fn refuse(
    gateway: &Gateway,
    route_request: &RouteRequest,
    id: Option<&RawValue>,
    error: &RpcError,
) -> Response {
    let answer = Answer::error(id, error);
    gateway.count(&answer, &route_request.client_ip, &route_request.caller);
    answer.into_response()
}
