//! The text of server-sent events (HTML Living Standard, "Server-sent events").

use std::cmp::Reverse;
use std::fmt::Write;
use std::time::Duration;

use axum::http::{HeaderMap, header};
use bytes::Bytes;
use wardgate_mcp::header::{EVENT_STREAM, JSON};

/// The longest silence on a stream, so that no proxy takes a quiet stream for a dead one.
pub const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Whether the client accepts a stream as the answer.
pub fn takes_events(headers: &HeaderMap) -> bool {
    accepted(headers, EVENT_STREAM).is_some()
}

/// Whether the client prefers a stream as the answer: it gives the media type of streams more weight than that of JSON, or as
/// much and names it first (RFC 9110, section 12.5.1; the order is a convention).
pub fn prefers_events(headers: &HeaderMap) -> bool {
    match (accepted(headers, EVENT_STREAM), accepted(headers, JSON)) {
        (Some(_), None) => true,
        (Some((stream_weight, stream_at)), Some((json_weight, json_at))) => {
            (stream_weight, json_at) > (json_weight, stream_at)
        }
        (None, _) => false,
    }
}

/// The weight in thousandths that `Accept` gives `media_type` by its name, and where it stands; none where it is not accepted.
fn accepted(headers: &HeaderMap, media_type: &str) -> Option<(u16, usize)> {
    let accepted = headers.get_all(header::ACCEPT).iter();
    let ranges = accepted
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    let weights = ranges.enumerate().filter_map(|(at, range)| {
        let mut parts = range.split(';').map(str::trim);
        let is_it = parts.next()?.eq_ignore_ascii_case(media_type);
        is_it.then(|| (parts.find_map(weight).unwrap_or(1_000), at))
    });
    weights
        .filter(|(weight, _)| *weight > 0)
        .max_by_key(|(weight, at)| (*weight, Reverse(*at)))
}

/// The weight that the parameter `q` gives, in thousandths.
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

/// One event with `message` as its data. The client may resume the stream from `id`.
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
        for (accept, prefers) in [
            ("text/event-stream, application/json", true),
            ("Text/Event-Stream;q=0.9,application/json", false),
            ("application/json; q=0.5, text/event-stream", true),
            ("text/event-stream;q=0.8, application/json;q=0.8", true),
            ("text/event-stream;q=0, application/json", false),
            ("text/event-stream;q=0", false),
            ("*/*, text/event-stream", true),
            ("application/json, text/event-stream", false),
            ("*/*", false),
        ] {
            let accept = HeaderValue::from_static(accept);
            let headers = HeaderMap::from_iter([(header::ACCEPT, accept.clone())]);
            assert_eq!(prefers_events(&headers), prefers, "{accept:?}");
        }
        assert!(!prefers_events(&HeaderMap::new()));
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
