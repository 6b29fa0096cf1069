//! Formatting of server-sent events, and negotiation of event streams (HTML Living Standard, "Server-sent events").

use std::cmp::Reverse;
use std::fmt::Write;
use std::time::Duration;

use axum::http::{HeaderMap, header};
use bytes::Bytes;
use wardgate_mcp::header::{EVENT_STREAM, JSON};

/// Maximum time without an event on a stream. It keeps proxies from closing a quiet stream as dead.
pub const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Whether a client accepts a stream as the response, according to its header `Accept`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamAcceptance {
    /// The client does not accept a stream.
    Refused,
    /// The client accepts a stream, and a single message as well.
    Accepted,
    /// The client prefers a stream: it gives the media type of streams a larger weight than JSON, or the same weight and an
    /// earlier position (RFC 9110, section 12.5.1; the use of the order is a convention).
    Preferred,
}

impl StreamAcceptance {
    /// Reads the header `Accept` of a request.
    pub fn from_headers(headers: &HeaderMap) -> Self {
        let values = headers.get_all(header::ACCEPT).iter();
        let ranges = values
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','));
        // The largest weight of each media type, and its first position with this weight.
        let (mut stream, mut json) = (None, None);
        for (at, range) in ranges.enumerate() {
            let mut parts = range.split(';').map(str::trim);
            let named = parts.next().unwrap_or_default();
            let of_type = if named.eq_ignore_ascii_case(EVENT_STREAM) {
                &mut stream
            } else if named.eq_ignore_ascii_case(JSON) {
                &mut json
            } else {
                continue;
            };
            let weight = parts.find_map(weight).unwrap_or(1_000);
            if weight > 0 {
                *of_type = (*of_type).max(Some((weight, Reverse(at))));
            }
        }
        match stream {
            None => Self::Refused,
            Some(_) if stream > json => Self::Preferred,
            Some(_) => Self::Accepted,
        }
    }
}

/// Returns the weight of the parameter `q` in thousandths, or `None` for another parameter.
fn weight(parameter: &str) -> Option<u16> {
    let (name, value) = parameter.split_once('=')?;
    let weight: f32 = value.trim().parse().ok()?;
    let is_weight = name.trim().eq_ignore_ascii_case("q") && (0.0..=1.0).contains(&weight);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is between 0 and 1,000"
    )]
    is_weight.then_some((weight * 1_000.0) as u16)
}

/// Formats an event with `message` as its data. The client may resume the stream from `id`.
pub fn format_event(id: Option<&str>, retry: Option<Duration>, message: &str) -> Bytes {
    let mut text = String::with_capacity(message.len() + 64);
    // Writing to a string cannot fail.
    if let Some(id) = id {
        let _ = writeln!(text, "id: {id}");
    }
    if let Some(retry) = retry {
        let _ = writeln!(text, "retry: {}", retry.as_millis());
    }
    if message.is_empty() {
        text.push_str("data:\n\n");
        return text.into();
    }
    text.push_str("event: message\n");
    for line in message.split(['\n', '\r']) {
        let _ = writeln!(text, "data: {line}");
    }
    text.push('\n');
    text.into()
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn a_client_prefers_the_media_type_of_more_weight_and_else_the_first() {
        use StreamAcceptance::{Accepted, Preferred, Refused};
        for (accept, expected) in [
            ("text/event-stream, application/json", Preferred),
            ("Text/Event-Stream;q=0.9,application/json", Accepted),
            ("application/json; q=0.5, text/event-stream", Preferred),
            ("text/event-stream;q=0.8, application/json;q=0.8", Preferred),
            ("text/event-stream;q=0, application/json", Refused),
            ("text/event-stream;q=0", Refused),
            ("*/*, text/event-stream", Preferred),
            ("application/json, text/event-stream", Accepted),
            ("*/*", Refused),
        ] {
            let accept = HeaderValue::from_static(accept);
            let headers = HeaderMap::from_iter([(header::ACCEPT, accept.clone())]);
            assert_eq!(
                StreamAcceptance::from_headers(&headers),
                expected,
                "{accept:?}"
            );
        }
        assert_eq!(StreamAcceptance::from_headers(&HeaderMap::new()), Refused);
    }

    #[test]
    fn a_message_is_one_event_whatever_ends_its_lines() {
        let told = format_event(Some("i"), None, "{\r\"a\":\r\n1,\n\"b\":\"\u{2028}\"}");
        let told = std::str::from_utf8(&told).unwrap();
        assert!(told.starts_with("id: i\nevent: message\n"), "{told}");
        let lines: Vec<_> = told.trim_end().split(['\n', '\r']).skip(2).collect();
        assert!(
            lines.iter().all(|line| line.starts_with("data: ")),
            "{told}"
        );
    }
}
