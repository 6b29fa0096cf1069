//! HTTP headers and media types of the Streamable HTTP transport.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue};

/// Header with the id of the session (before 2026-07-28).
pub const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");

/// Header with the protocol version of the request (from 2025-06-18).
pub const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");

/// Header with the method of the request (from 2026-07-28).
pub const METHOD: HeaderName = HeaderName::from_static("mcp-method");

/// Header with the name or URI of the object of the request (from 2026-07-28).
pub const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// Header with the id of the event after which a client resumes a stream (HTML, section 9.2.4; MCP, "Streamable HTTP").
pub const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Media type of a JSON-RPC message.
pub const JSON: &str = "application/json";

/// Media type of a stream of messages.
pub const EVENT_STREAM: &str = "text/event-stream";

/// The header `Accept` of a client that takes a single message or a stream as the response.
pub const JSON_OR_EVENT_STREAM: &str = "application/json, text/event-stream";

/// Prefix of the names of headers that repeat an argument marked with `x-mcp-header` in the tool's schema (from 2026-07-28).
pub const PARAM_PREFIX: &str = "mcp-param-";

/// Encodes `text` as the value of a header that repeats a part of the body: unchanged if possible, otherwise as `=?base64?…?=`
/// (2026-07-28, basic/transports, "Value encoding").
pub fn encode_value(text: &str) -> HeaderValue {
    let is_plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        && text.trim_ascii() == text
        && !(text.starts_with("=?") && text.ends_with("?="));
    let encoded = match HeaderValue::from_str(text) {
        Ok(value) if is_plain => return value,
        _ => format!("=?base64?{}?=", STANDARD.encode(text)),
    };
    // Base64 with its prefix and suffix is always a valid header value.
    HeaderValue::try_from(encoded).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// Returns whether `headers` declare a body of this media type. Parameters of the media type are ignored.
pub fn has_media_type(headers: &HeaderMap, media_type: &str) -> bool {
    headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').next())
        .is_some_and(|value| value.trim().eq_ignore_ascii_case(media_type))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_is_no_plain_header_is_sent_encoded() {
        for (text, expected) in [
            ("plain text", "plain text"),
            ("", ""),
            (" edge", "=?base64?IGVkZ2U=?="),
            ("naïve", "=?base64?bmHDr3Zl?="),
            ("a\r\nX: b", "=?base64?YQ0KWDogYg==?="),
            ("=?base64?YQ==?=", "=?base64?PT9iYXNlNjQ/WVE9PT89?="),
        ] {
            assert_eq!(encode_value(text), expected);
        }
    }
}
