//! Which version a message names, and which is agreed on.

use axum::http::HeaderMap;
use wardgate_mcp::Version;
use wardgate_mcp::header::PROTOCOL_VERSION;

use crate::envelope::{JsonRpcRequest, text_of};
use crate::rpc_error::RpcError;

/// The version in the header, if there is one.
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

/// The version asked for if it is spoken, the newest with a handshake otherwise.
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

/// The same on a stream of HTTP+SSE, whose clients may know no later version than 2024-11-05.
pub fn negotiate_on_stream(request: &JsonRpcRequest<'_>) -> Result<Version, RpcError> {
    let asked = request.params.protocol_version.and_then(text_of);
    if asked.is_some_and(|asked| asked == Version::V2024_11_05.as_str()) {
        return Ok(Version::V2024_11_05);
    }
    negotiate(request)
}
