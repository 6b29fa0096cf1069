//! The metadata of a request in MCP 2026-07-28 and later: `_meta`, and the headers that mirror the body
//! (MCP 2026-07-28, basic/transports, "Protocol Version Header" and "Standard Headers").
//!
//! No decision depends on a header: each header must equal the body, and policy, audit and routing use the body.

use std::borrow::Cow;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::value::RawValue;
use wardgate_domain::{AgentRefusal, Digest};

use crate::envelope::{JsonRpcRequest, is_id, object, text_of};
use crate::log_level::LogLevel;
use crate::rpc_error::RpcError;
use wardgate_mcp::Version;

/// Maximum length of a progress token in bytes. Every progress notification repeats the token.
const TOKEN_BYTES: usize = 256;

/// Maximum number of characters of a conversation id, which is also the limit of the memory service.
const CONVERSATION_CHARACTERS: usize = 256;

/// The members of `params._meta` that the gateway reads.
#[derive(Debug, Default, Deserialize)]
pub struct RequestMeta<'a> {
    #[serde(borrow, default, rename = "io.modelcontextprotocol/protocolVersion")]
    protocol_version: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "io.modelcontextprotocol/clientCapabilities")]
    client_capabilities: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "io.modelcontextprotocol/logLevel")]
    log_level: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "progressToken")]
    progress_token: Option<&'a RawValue>,
    #[serde(borrow, default)]
    traceparent: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tracestate: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "dev.wardgate/idempotencyKey")]
    pub(crate) idempotency_key: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "dev.wardgate/conversation")]
    conversation: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "dev.wardgate/refusedByAgent")]
    refused_by_agent: Option<&'a RawValue>,
}

impl<'a> RequestMeta<'a> {
    /// Returns the `_meta` of a request, or an empty one if the request has none.
    pub fn from_request(request: &JsonRpcRequest<'a>) -> Result<Self, RpcError> {
        let Some(raw) = request.params.meta else {
            return Ok(Self::default());
        };
        object(raw.get()).ok_or_else(|| RpcError::invalid_meta("`_meta` must be an object"))
    }

    /// Returns the `_meta` of a request in version 2026-07-28 or later, or `None` if the request is in an older version.
    pub fn from_modern_request(request: &JsonRpcRequest<'a>) -> Result<Option<Self>, RpcError> {
        let meta = Self::from_request(request)?;
        Ok(meta.protocol_version.is_some().then_some(meta))
    }

    /// Returns the capabilities of the client, an object with at least one member, or `None` if there are none.
    pub fn capabilities(&self) -> Option<&'a str> {
        let capabilities = self.client_capabilities?.get();
        let inside = capabilities.strip_prefix('{')?;
        (!inside.trim_start().starts_with('}')).then_some(capabilities)
    }

    /// Returns the lowest level of the log messages that the client asks for.
    pub fn log_level(&self) -> Result<Option<LogLevel>, RpcError> {
        let Some(raw) = self.log_level else {
            return Ok(None);
        };
        let level = text_of(raw).and_then(|name| LogLevel::from_name(&name));
        level.map(Some).ok_or_else(|| {
            RpcError::invalid_meta(
                "`_meta` io.modelcontextprotocol/logLevel must be debug, info, notice, warning, error, critical, alert or emergency",
            )
        })
    }

    /// Returns the trace context of the client as headers (SEP-414). The values are not validated here, but where they are used.
    pub fn trace_context(&self) -> HeaderMap {
        let named = [
            ("traceparent", self.traceparent),
            ("tracestate", self.tracestate),
        ];
        let headers = named.into_iter().filter_map(|(name, raw)| {
            let value = HeaderValue::from_str(&text_of(raw?)?).ok()?;
            Some((HeaderName::from_static(name), value))
        });
        headers.collect()
    }

    /// Returns the digest of the id of the conversation that the request belongs to, or `None` if the request names none.
    pub fn conversation(&self) -> Result<Option<Digest>, RpcError> {
        let Some(raw) = self.conversation else {
            return Ok(None);
        };
        let is_id = |id: &Cow<'_, str>| {
            (1..=CONVERSATION_CHARACTERS).contains(&id.chars().count())
                && !id.chars().any(char::is_control)
        };
        let id = text_of(raw).filter(is_id).ok_or_else(|| {
            RpcError::invalid_params(format!(
                "`_meta` dev.wardgate/conversation must be a string of 1 to {CONVERSATION_CHARACTERS} characters without control \
                 characters"
            ))
        })?;
        Ok(Some(Digest::compute(id.as_bytes())))
    }

    /// Returns the token for progress notifications, as written, or `None` if the client does not ask for them.
    pub fn progress_token(&self) -> Result<Option<&'a RawValue>, RpcError> {
        let Some(raw) = self.progress_token else {
            return Ok(None);
        };
        if !is_id(raw) || raw.get().len() > TOKEN_BYTES {
            return Err(RpcError::invalid_params(format!(
                "`_meta` progressToken must be a string or an integer of at most {TOKEN_BYTES} bytes"
            )));
        }
        Ok(Some(raw))
    }

    /// Returns the reason why the sending agent refused to make the call, or `None` if the call is to run. An unknown reason is
    /// an error, so that a call that the agent refused never runs.
    pub fn agent_refusal(&self) -> Result<Option<AgentRefusal>, RpcError> {
        let Some(raw) = self.refused_by_agent else {
            return Ok(None);
        };
        let reason = text_of(raw).and_then(|name| name.parse().ok());
        reason.map(Some).ok_or_else(|| {
            let known = AgentRefusal::ALL.map(AgentRefusal::as_str).join(", ");
            RpcError::invalid_meta(format!(
                "`_meta` {} must be one of {known}",
                AgentRefusal::META
            ))
        })
    }

    /// Returns the version of the request, after comparing the headers with the body.
    pub fn version(
        &self,
        request: &JsonRpcRequest<'_>,
        headers: Option<&HeaderMap>,
    ) -> Result<Version, RpcError> {
        let text = self.protocol_version.and_then(text_of).ok_or_else(|| {
            RpcError::invalid_meta(
                "`_meta` io.modelcontextprotocol/protocolVersion must be a string",
            )
        })?;
        if !self
            .client_capabilities
            .is_some_and(|raw| raw.get().starts_with('{'))
        {
            return Err(RpcError::invalid_meta(
                "`_meta` io.modelcontextprotocol/clientCapabilities must be an object; `{}` is enough",
            ));
        }
        if let Some(headers) = headers {
            mirrors(headers, "MCP-Protocol-Version", &text)?;
            mirrors(headers, "Mcp-Method", &request.method)?;
            let named = match &*request.method {
                "tools/call" | "prompts/get" => request.params.name,
                "resources/read" => request.params.uri,
                "tasks/get" | "tasks/update" | "tasks/cancel" => request.params.task_id,
                _ => None,
            };
            if let Some(name) = named.and_then(text_of) {
                mirrors(headers, "Mcp-Name", &name)?;
            }
        }
        match text.parse::<Version>() {
            Ok(version) if version.is_modern() => Ok(version),
            _ => Err(RpcError::unsupported_version(&text, true)),
        }
    }
}

/// Checks that there is exactly one header `name` and that its value is `expected`.
fn mirrors(headers: &HeaderMap, name: &str, expected: &str) -> Result<(), RpcError> {
    let mut values = headers.get_all(name).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return Err(RpcError::header_mismatch(format!(
            "send the header {name} exactly once"
        )));
    };
    let said = value.to_str().ok().and_then(decode).ok_or_else(|| {
        RpcError::header_mismatch(format!(
            "the header {name} is neither plain text nor =?base64?…?="
        ))
    })?;
    if said != expected {
        return Err(RpcError::header_mismatch(format!(
            "the header {name} differs from the body"
        )));
    }
    Ok(())
}

/// Decodes a header value: plain text, or `=?base64?<base64 of UTF-8>?=` for what a header cannot carry.
pub(crate) fn decode(value: &str) -> Option<Cow<'_, str>> {
    let marked = value.strip_prefix("=?base64?");
    // A value with only the prefix or only the suffix is plain text.
    let Some(encoded) = marked.and_then(|rest| rest.strip_suffix("?=")) else {
        return Some(Cow::Borrowed(value));
    };
    let bytes = STANDARD.decode(encoded).ok()?;
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::JsonRpcMessage;

    const BODY: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"naïve","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;

    fn version(body: &str, headers: &[(&'static str, &str)]) -> Result<Version, RpcError> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        let Ok(JsonRpcMessage::Request(request)) = JsonRpcMessage::parse(body) else {
            panic!("{body}")
        };
        RequestMeta::from_modern_request(&request)?
            .unwrap()
            .version(&request, Some(&map))
    }

    const VERSION: (&str, &str) = ("mcp-protocol-version", "2026-07-28");
    const METHOD: (&str, &str) = ("mcp-method", "tools/call");
    const NAME: (&str, &str) = ("mcp-name", "=?base64?bmHDr3Zl?=");

    #[test]
    fn headers_that_mirror_the_body_pass() {
        assert_eq!(
            version(BODY, &[VERSION, METHOD, NAME]).unwrap(),
            Version::V2026_07_28
        );
    }

    #[test]
    fn every_difference_between_header_and_body_is_refused() {
        let cases: [&[(&'static str, &str)]; 9] = [
            &[METHOD, NAME],
            &[VERSION, NAME],
            &[VERSION, METHOD],
            &[VERSION, VERSION, METHOD, NAME],
            &[("mcp-protocol-version", "2025-11-25"), METHOD, NAME],
            &[VERSION, ("mcp-method", "Tools/Call"), NAME],
            &[VERSION, METHOD, ("mcp-name", "other")],
            &[VERSION, METHOD, ("mcp-name", "=?base64?bmHDr3Zl")],
            &[VERSION, METHOD, ("mcp-name", "=?base64?/w==?=")],
        ];
        for headers in cases {
            assert_eq!(
                version(BODY, headers).unwrap_err().reason().as_str(),
                "header_mismatch",
                "{headers:?}"
            );
        }
    }

    #[test]
    fn a_trace_context_is_read_as_the_headers_it_stands_for() {
        let context = |members: &str| {
            let body = BODY.replace(r#""_meta":{"#, &format!(r#""_meta":{{{members},"#));
            let Ok(JsonRpcMessage::Request(request)) = JsonRpcMessage::parse(&body) else {
                panic!("{body}")
            };
            RequestMeta::from_request(&request).unwrap().trace_context()
        };
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let both = context(&format!(
            r#""traceparent":"{parent}","tracestate":"a=\u0062""#
        ));
        assert_eq!(both["traceparent"], parent);
        assert_eq!(both["tracestate"], "a=b");
        assert!(context(r#""traceparent":7,"tracestate":"a\nb""#).is_empty());
    }

    #[test]
    fn a_resource_is_named_by_its_uri() {
        let body = BODY
            .replace("tools/call", "resources/read")
            .replace(r#""name":"naïve""#, r#""uri":"memory://conversation/a""#);
        let method = ("mcp-method", "resources/read");
        let name = ("mcp-name", "memory://conversation/a");
        assert!(version(&body, &[VERSION, method, name]).is_ok());
        let other = ("mcp-name", "memory://conversation/b");
        for headers in [&[VERSION, method][..], &[VERSION, method, other]] {
            let refused = version(&body, headers).unwrap_err();
            assert_eq!(refused.reason().as_str(), "header_mismatch");
        }
    }

    #[test]
    fn a_version_nobody_offers_is_named_with_those_that_are() {
        let body = BODY.replace("2026-07-28", "2099-01-01");
        let headers = [("mcp-protocol-version", "2099-01-01"), METHOD, NAME];
        assert_eq!(
            version(&body, &headers).unwrap_err().reason().as_str(),
            "unsupported_version"
        );
    }

    #[test]
    fn meta_without_capabilities_is_refused() {
        let body = BODY.replace(r#","io.modelcontextprotocol/clientCapabilities":{}"#, "");
        assert_eq!(
            version(&body, &[VERSION, METHOD, NAME])
                .unwrap_err()
                .reason()
                .as_str(),
            "invalid_meta"
        );
    }
}
