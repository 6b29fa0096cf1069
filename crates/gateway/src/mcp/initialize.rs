//! `initialize` of the versions before 2026-07-28: what is agreed on. Where there are sessions it begins one; without,
//! the version travels in the `MCP-Protocol-Version` header of every later request.

use super::discover::{capabilities, inner};
use super::envelope::{Request, text_of};
use super::instructions::instructions;
use super::{Post, Transport, Version};
use crate::Gateway;
use crate::reply::{Answer, RpcError, server_info};

/// The version asked for if it is spoken, the newest with a handshake otherwise.
pub(super) fn negotiate(request: &Request<'_>) -> Result<Version, RpcError> {
    let asked = request
        .params
        .protocol_version
        .and_then(text_of)
        .ok_or_else(|| RpcError::invalid_params("`params.protocolVersion` must be a string"))?;
    Ok(match asked.parse::<Version>() {
        Ok(version) if !version.is_modern() => version,
        _ => Version::NEWEST_LEGACY,
    })
}

/// The same on a stream of HTTP+SSE, whose clients may know no later version than 2024-11-05.
pub(crate) fn negotiate_on_stream(request: &Request<'_>) -> Result<Version, RpcError> {
    let asked = request.params.protocol_version.and_then(text_of);
    if asked.is_some_and(|asked| asked == Version::V2024_11_05.as_str()) {
        return Ok(Version::V2024_11_05);
    }
    negotiate(request)
}

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
