//! The method `initialize` of the versions before 2026-07-28, which negotiates the version. On transports with sessions it
//! begins a session; on the others the version is in the `MCP-Protocol-Version` header of every later request.

use wardgate_mcp::Version;
use wardgate_mcp_server::{JsonRpcRequest, McpResponse, inner, server_info};

use super::discover::capabilities;
use super::instructions::instructions;
use crate::discovery::Discovery;
use crate::post::{Post, Transport};

pub(super) async fn initialize(
    discovery: &Discovery,
    post: &Post,
    request: &JsonRpcRequest<'_>,
    version: Version,
) -> McpResponse {
    let mut capabilities =
        capabilities(discovery, &post.view, post.transport != Transport::Message);
    if !version.has_audio()
        && let Some(capabilities) = capabilities.as_object_mut()
    {
        capabilities.remove("completions");
    }
    let instructions = instructions(discovery, &post.caller, &post.view).await;
    let result = serde_json::json!({
        "protocolVersion": version.as_str(),
        "capabilities": capabilities,
        "instructions": instructions.text,
    });
    let members = format!(
        r#"{},"serverInfo":{}"#,
        inner(&result.to_string()),
        server_info(version)
    );
    McpResponse::result(request.id, version, &members)
}
