//! The time for which a server asks clients to wait.

use std::time::{Duration, SystemTime};

use http::header::{DATE, HeaderMap, HeaderName, RETRY_AFTER};

/// Returns the delay of a `Retry-After` header (RFC 9110 §10.2.3), which is either a number of seconds or an HTTP date.
/// A date is compared with the `Date` of the same response, so the clocks need not agree. Returns `None` if the header
/// is missing or invalid.
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let (until, now) = (date(headers, &RETRY_AFTER)?, date(headers, &DATE)?);
    Some(until.duration_since(now).unwrap_or_default())
}

fn date(headers: &HeaderMap, name: &HeaderName) -> Option<SystemTime> {
    httpdate::parse_http_date(headers.get(name)?.to_str().ok()?.trim()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_asks_in_seconds_or_by_a_date_of_its_own_clock() {
        let now = "Sun, 09 Sep 2001 01:46:40 GMT";
        for (text, expected) in [
            ("7", Some(7)),
            (" 0 ", Some(0)),
            ("Sun, 09 Sep 2001 01:46:49 GMT", Some(9)),
            ("Sun, 09 Sep 2001 01:46:00 GMT", Some(0)),
            ("-1", None),
            ("99999999999999999999", None),
            ("soon", None),
        ] {
            let headers = [
                (RETRY_AFTER, text.parse().unwrap()),
                (DATE, now.parse().unwrap()),
            ];
            let asked = retry_after(&HeaderMap::from_iter(headers));
            assert_eq!(asked, expected.map(Duration::from_secs), "{text}");
        }
        let undated = [(RETRY_AFTER, now.parse().unwrap())];
        assert_eq!(retry_after(&HeaderMap::from_iter(undated)), None);
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }
}
