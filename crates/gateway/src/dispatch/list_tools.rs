//! The method `tools/list`: the tools that the caller may see and the client can use.

use std::collections::HashSet;

use wardgate_domain::OfferKind;
use wardgate_mcp_server::{JsonRpcRequest, McpResponse, RequestMeta, RpcError};

use wardgate_mcp::Version;

use crate::caching;
use crate::catalogue::{CatalogueSource, MISSING_UPSTREAMS, Tool};
use crate::discovery::Discovery;
use crate::post::Post;

pub(super) async fn list_tools(
    discovery: &Discovery,
    post: &Post,
    request: &JsonRpcRequest<'_>,
    version: Version,
) -> Result<McpResponse, RpcError> {
    let caller = &*post.caller;
    if request.params.cursor.is_some() {
        return Err(RpcError::invalid_params(
            "`cursor` is unknown: the list has only one page",
        ));
    }
    let catalogue = discovery.catalogue().require_current()?;
    let mut enabled = post.view.tools(&catalogue);
    enabled.retain(|seen| seen.tool.switches.allow(caller));
    let meta = RequestMeta::from_request(request)?;
    let capabilities = post.client_capabilities(&meta, version);
    enabled.retain(|seen| seen.tool.is_for_client(capabilities.as_deref()));
    let authority = discovery.authority();
    let visible = authority.visible(caller, enabled.iter().map(|seen| &seen.tool.facts));
    let visible = visible
        .await
        .map_err(|error| authority.undecided_error(&error))?;
    let is_visible = |tool: &Tool| visible.iter().any(|name| *name == tool.facts.name.as_str());
    enabled.retain(|seen| is_visible(seen.tool));
    let missing = missing_upstreams(catalogue.missing_upstreams(), || {
        enabled.iter().map(|seen| seen.tool)
    });
    let listed = enabled.iter();
    let listed: Vec<_> = listed
        .map(|seen| post.view.definition(*seen, version))
        .collect();
    let mut members = format!(r#""tools":[{}"#, listed.join(","));
    members.push(']');
    if version.is_modern() {
        let shown: HashSet<_> = enabled.iter().map(|seen| &seen.tool.facts.name).collect();
        let of_shown =
            |source: &&CatalogueSource| source.tools.values().any(|name| shown.contains(name));
        members += &caching::hints(OfferKind::Tool, catalogue.sources().filter(of_shown));
    }
    Ok(McpResponse::result_with_meta(
        request.id, version, &members, &missing,
    ))
}

/// Returns the member of `_meta` that names the upstreams that do not answer, among those whose tools the caller sees.
fn missing_upstreams<'t, T: Iterator<Item = &'t Tool>>(
    upstreams: &[String],
    listed: impl Fn() -> T,
) -> String {
    let concerns = |upstream: &&String| {
        let tag = format!("upstream:{upstream}");
        listed().any(|tool| tool.facts.tags.contains(&tag))
    };
    let missing: Vec<&String> = upstreams.iter().filter(concerns).collect();
    if missing.is_empty() {
        return String::new();
    }
    format!(r#""{MISSING_UPSTREAMS}":{}"#, serde_json::json!(missing))
}
