//! The headers in which 2026-07-28 repeats what a body says.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::{HeaderMap, HeaderValue};

use crate::message::Request;

pub(crate) const VERSION: &str = "mcp-protocol-version";

/// Those of a request that speaks `version`.
pub(crate) fn of_modern(request: &Request, version: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(VERSION, value(version));
    headers.insert("mcp-method", value(&request.method));
    if let Some(subject) = &request.subject {
        headers.insert("mcp-name", value(subject));
    }
    headers
}

/// `text` as a header's value: as it is where it can be, else in Base64 between marks.
pub(crate) fn value(text: &str) -> HeaderValue {
    let plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        && text.trim_ascii() == text
        && !(text.starts_with("=?") && text.ends_with("?="));
    let encoded = match HeaderValue::from_str(text) {
        Ok(value) if plain => return value,
        _ => format!("=?base64?{}?=", STANDARD.encode(text)),
    };
    // Base64 between marks is always a legal value.
    HeaderValue::try_from(encoded).unwrap_or_else(|_| HeaderValue::from_static(""))
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
            assert_eq!(value(text), expected);
        }
    }
}
