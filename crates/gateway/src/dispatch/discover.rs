//! The method `server/discover` (MCP 2026-07-28): the versions and capabilities of the gateway.

use serde_json::{Value, json};
use wardgate_mcp::{Version, extension};
use wardgate_mcp_server::{JsonRpcRequest, McpResponse, inner};
use wardgate_rpc::client::ServerCapabilities;

use super::instructions::instructions;
use crate::catalogue::View;
use crate::discovery::Discovery;
use crate::post::{Post, Transport};

/// Returns the server capabilities. They depend on the configuration, never on the caller. A view of a single server has the
/// capabilities that the server declared, as far as the gateway passes them on. `hears` is whether the client has a stream on
/// which it receives messages before an answer.
pub(super) fn capabilities(discovery: &Discovery, view: &View, hears: bool) -> Value {
    let changes = json!({ "listChanged": true });
    let offered = discovery.offered_content(view);
    let declared = view.declared_capabilities();
    let declares = |what: fn(ServerCapabilities) -> bool| declared.is_none_or(what);
    let mut capabilities = json!({ "tools": changes });
    if offered.conversations || offered.resources {
        let subscribe = declares(|server| server.resource_subscriptions);
        capabilities["resources"] = json!({ "subscribe": subscribe, "listChanged": true });
    }
    if offered.prompts {
        capabilities["prompts"] = changes;
    }
    if (offered.prompts || offered.resources) && declares(|server| server.completions) {
        capabilities["completions"] = json!({});
    }
    if hears && declares(|server| server.logging) {
        capabilities["logging"] = json!({});
    }
    capabilities
}

/// Returns the server capabilities with the extensions of 2026-07-28.
fn with_extensions(discovery: &Discovery, view: &View, hears: bool) -> Value {
    let mut capabilities = capabilities(discovery, view, hears);
    if discovery.offers_tasks(view) {
        capabilities["extensions"][extension::TASKS] = json!({});
    }
    if let Some(skills) = discovery.offered_content(view).skills {
        let settings = if skills.directories {
            json!({ "directoryRead": true })
        } else {
            json!({})
        };
        capabilities["extensions"][extension::SKILLS] = settings;
    }
    capabilities
}

pub(super) async fn discover(
    discovery: &Discovery,
    post: &Post,
    request: &JsonRpcRequest<'_>,
    version: Version,
) -> McpResponse {
    let supported: Vec<&str> = Version::ALL
        .iter()
        .map(|version| version.as_str())
        .collect();
    let instructions = instructions(discovery, &post.caller, &post.view).await;
    let hears = post.transport != Transport::Message;
    let capabilities = with_extensions(discovery, &post.view, hears);
    let result = json!({
        "supportedVersions": supported,
        "capabilities": capabilities,
        "instructions": instructions.text,
    });
    // Any cache may keep a result that is the same for every caller.
    let (ttl, scope) = if instructions.is_personal {
        (5_000, "private")
    } else {
        (3_600_000, "public")
    };
    let members = format!(
        r#"{},"ttlMs":{ttl},"cacheScope":"{scope}""#,
        inner(&result.to_string())
    );
    McpResponse::result(request.id, version, &members)
}
