//! The route of one upstream server, `/mcp/upstream/{source}`: its own names and words, under the caller's rights.
//!
//! ```text
//!  POST · GET · DELETE ─▶ errand ─▶ right ─▶ story ─────────▶ tool-runner ─▶ upstream
//!                         what is   which    authorize, intent,   │ same era, same bytes
//!                         asked     permit   outcome, release     ▼
//!  client ◀──────────── answer ◀── receipts, sealed ids, lists without what the caller may not use
//! ```
//!
//! Where a session or an event has an id of the upstream's, the client gets it sealed: nothing is kept here, so any
//! replica serves any request, and nobody can use what was handed to another.

mod answer;
mod edit;
mod endings;
mod errand;
mod handles;
mod lists;
mod right;
mod story;

use std::sync::Arc;

use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use wardgate_domain::{Caller, OfferKind};

use crate::Gateway;
use crate::catalogue::Source;
use crate::reply::{Answer, RpcError};
use crate::scopes::Access;

use self::errand::Errand;

/// One request to the route, authenticated but unread.
pub(crate) struct Visit {
    pub(crate) source: String,
    pub(crate) caller: Arc<Caller>,
    /// What the token is good for.
    pub(crate) access: Access,
    pub(crate) client_ip: String,
    pub(crate) headers: HeaderMap,
    pub(crate) knock: Knock,
}

/// How it came.
pub(crate) enum Knock {
    Post(Bytes),
    Get,
    Delete,
}

/// Answers one request.
pub(crate) async fn answer(gateway: &Arc<Gateway>, visit: Visit) -> Response {
    let source = source(gateway, &visit).map_err(|error| (None, error));
    let asked = source.and_then(|source| Ok((source, Errand::of(gateway, &visit)?)));
    match asked {
        Ok((source, errand)) => story::run(gateway, source, visit, errand).await,
        Err((id, error)) => {
            let answer = Answer::error(id.as_deref(), &error);
            for reason in answer.refused() {
                let (ip, subject) = (&visit.client_ip, visit.caller.subject());
                gateway.refusals.count(reason, ip, subject);
            }
            answer.into_response()
        }
    }
}

/// The source of that name, if it has a route that is on for the caller. Whether the policy lets the caller use it is
/// decided with every errand.
fn source(gateway: &Gateway, visit: &Visit) -> Result<Arc<Source>, RpcError> {
    let catalogue = gateway.catalogue().known()?;
    let source = catalogue.source(&visit.source);
    source
        .filter(|source| source.facts.contains_key(&OfferKind::Connect))
        .filter(|source| source.switches.allow(&visit.caller))
        .cloned()
        .ok_or_else(RpcError::unknown_route)
}
