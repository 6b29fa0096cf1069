//! HTTP headers of the Streamable HTTP transport.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue};

/// The session of a client before 2026-07-28.
pub const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");

/// The version of the request (from 2025-06-18).
pub const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");

/// The method of the request (from 2026-07-28).
pub const METHOD: HeaderName = HeaderName::from_static("mcp-method");

/// The name or URI of what the request is about (from 2026-07-28).
pub const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// The event of a stream after which a client goes on (HTML, section 9.2.4; MCP, "Streamable HTTP").
pub const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The media type of a message.
pub const JSON: &str = "application/json";

/// The media type of a stream of messages.
pub const EVENT_STREAM: &str = "text/event-stream";

/// The media types that a client accepts for the answer to a message.
pub const JSON_OR_EVENT_STREAM: &str = "application/json, text/event-stream";

/// Begins the name of a header that repeats an argument of a call, marked `x-mcp-header` in its schema (from 2026-07-28).
pub const PARAM_PREFIX: &str = "mcp-param-";

/// `text` as the value of a header that repeats a part of the body: as it is where it can be, else in Base64 between marks
/// (2026-07-28, basic/transports, "Value encoding").
pub fn encode_value(text: &str) -> HeaderValue {
    let is_plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        && text.trim_ascii() == text
        && !(text.starts_with("=?") && text.ends_with("?="));
    let encoded = match HeaderValue::from_str(text) {
        Ok(value) if is_plain => return value,
        _ => format!("=?base64?{}?=", STANDARD.encode(text)),
    };
    // Base64 between marks is always a legal value.
    HeaderValue::try_from(encoded).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// Whether a message with these headers has a body of this media type, whatever its parameters.
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
