//! The route of a single MCP server, `/mcp/upstream/{source}`: the view of that server, for callers who may connect to it.
//!
//! A request to the route is answered like one to `/mcp`, but with the server's own names and URIs: see [`View`]. For callers
//! who may not connect, the server does not exist.

use std::sync::Arc;

use bytes::Bytes;
use wardgate_domain::{Caller, OfferKind};
use wardgate_mcp_server::RpcError;

use crate::authority::Authorization;
use crate::catalogue::View;
use crate::discovery::Discovery;
use crate::scopes::TokenAccess;

/// Returns the view of the server `name`.
pub(crate) async fn resolve_view(
    discovery: &Discovery,
    caller: &Caller,
    access: &TokenAccess,
    client_ip: &str,
    name: &str,
) -> Result<View, RpcError> {
    let catalogue = discovery.catalogue().require_current()?;
    let authority = discovery.authority();
    let source = catalogue
        .source(name)
        .filter(|source| source.switches.allow(caller));
    let connect = source.and_then(|source| source.facts.get(&OfferKind::Connect));
    let (Some(source), Some(connect)) = (source, connect) else {
        // If the policy service cannot decide, the error must be the same as for an existing source.
        return Err(match authority.visible(caller, []).await {
            Ok(_) => RpcError::unknown_route(),
            Err(error) => authority.undecided_error(&error),
        });
    };
    let arguments = Bytes::from_static(b"{}");
    let asked = authority.authorize(caller, connect, &arguments, client_ip);
    match asked.await {
        Ok(Authorization::Allowed(_)) => access.check_route(connect)?,
        Ok(Authorization::Denied { .. } | Authorization::NeedsIntent(_)) => {
            return Err(RpcError::unknown_route());
        }
        Err(error) => return Err(authority.undecided_error(&error)),
    }
    Ok(View::of_upstream(Arc::clone(source), &catalogue))
}
