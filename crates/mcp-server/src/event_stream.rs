//! The text of server-sent events (HTML Living Standard, "Server-sent events").

use std::fmt::Write;
use std::time::Duration;

use axum::http::{HeaderMap, header};
use bytes::Bytes;
use wardgate_mcp::header::{EVENT_STREAM, JSON};

/// The longest silence on a stream, so that no proxy takes a quiet stream for a dead one.
pub const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Whether the client accepts a stream as the answer.
pub fn takes_events(headers: &HeaderMap) -> bool {
    accepted_types(headers).any(|accepted| accepted.eq_ignore_ascii_case(EVENT_STREAM))
}

/// Whether the client prefers a stream as the answer: it names the media type of streams before that of JSON.
pub fn prefers_events(headers: &HeaderMap) -> bool {
    let named = accepted_types(headers).find(|accepted| {
        [EVENT_STREAM, JSON]
            .iter()
            .any(|it| accepted.eq_ignore_ascii_case(it))
    });
    named.is_some_and(|first| first.eq_ignore_ascii_case(EVENT_STREAM))
}

/// The media types in `Accept`, in the order of the client.
fn accepted_types(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let accepted = headers.get_all(header::ACCEPT).iter();
    accepted
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|range| range.split(';').next())
        .map(str::trim)
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
    fn a_client_prefers_the_media_type_that_it_names_first() {
        for (accept, prefers) in [
            ("text/event-stream, application/json", true),
            ("Text/Event-Stream;q=0.9,application/json", true),
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
