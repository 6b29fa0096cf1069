//! `initialize` of the versions before 2026-07-28: what is agreed on. Where there are sessions it begins one; without,
//! the version travels in the `MCP-Protocol-Version` header of every later request.

use wardgate_mcp::Version;
use wardgate_mcp_server::{Answer, Request, inner, server_info};

use super::discover::capabilities;
use super::instructions::instructions;
use crate::Gateway;
use crate::post::{Post, Transport};

pub(super) async fn initialize(
    gateway: &Gateway,
    post: &Post,
    request: &Request<'_>,
    version: Version,
) -> Answer {
    let mut capabilities = capabilities(gateway, &post.view, post.transport != Transport::Message);
    if !version.has_audio()
        && let Some(capabilities) = capabilities.as_object_mut()
    {
        capabilities.remove("completions");
    }
    let instructions = instructions(gateway, &post.caller, &post.view).await;
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
    Answer::result(request.id, version, &members)
}
