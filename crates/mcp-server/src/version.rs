//! The protocol version that a message names, and version negotiation.

use axum::http::HeaderMap;
use wardgate_mcp::Version;
use wardgate_mcp::header::PROTOCOL_VERSION;

use crate::envelope::{JsonRpcRequest, text_of};
use crate::rpc_error::RpcError;

/// Returns the version in the header `MCP-Protocol-Version`, or `None` if the header is absent.
pub fn named_version(headers: &HeaderMap) -> Result<Option<Version>, RpcError> {
    let Some(named) = headers.get(PROTOCOL_VERSION) else {
        return Ok(None);
    };
    let named = named.to_str().unwrap_or_default();
    match named.parse() {
        Ok(version) => Ok(Some(version)),
        Err(_) => Err(RpcError::unsupported_version(named, false)),
    }
}

/// Returns the requested version if it has a handshake and is supported, otherwise the newest version with a handshake.
pub fn negotiate(request: &JsonRpcRequest<'_>) -> Result<Version, RpcError> {
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

/// Negotiates like [`negotiate`] on an HTTP+SSE stream, where clients may request 2024-11-05.
pub fn negotiate_on_stream(request: &JsonRpcRequest<'_>) -> Result<Version, RpcError> {
    let asked = request.params.protocol_version.and_then(text_of);
    if asked.is_some_and(|asked| asked == Version::V2024_11_05.as_str()) {
        return Ok(Version::V2024_11_05);
    }
    negotiate(request)
}
