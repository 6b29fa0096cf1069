//! Propagation of deadlines: the calls that a call leads to, on any machine, end a little before it.
//!
//! ```text
//!  caller ── grpc-timeout: what is left − 10 ms ──▶ stack ── within ──▶ handler ── time_left() ──▶ its own calls
//! ```

use std::future::Future;
use std::time::Duration;

use http::HeaderMap;
use http::header::HeaderValue;
use tokio::time::{Instant, timeout_at};
use wardgate_proto::common::v1::ErrorReason;

use crate::status::with_reason;

/// Time reserved for the response to come back, so that a service can report what was late before its caller's deadline passes.
const MARGIN: Duration = Duration::from_millis(10);

tokio::task_local! {
    static END: Instant;
}

/// Runs `work` for a call with `limit`, or the time left of the call that is being served, if that is less. Returns `None` if the
/// time is over before `work` ends.
pub(crate) async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    let end = Instant::now() + time_left(limit);
    END.scope(end, timeout_at(end, work)).await.ok()
}

/// Returns `limit`, or the time left of the call that is being served, if that is less.
pub(crate) fn time_left(limit: Duration) -> Duration {
    let left = END.try_with(|end| end.saturating_duration_since(Instant::now()));
    left.map_or(limit, |left| left.min(limit))
}

/// Returns the timeout to send for a call with `limit`, which leaves time for the response.
pub(crate) fn in_header(limit: Duration) -> Duration {
    limit.saturating_sub(MARGIN).max(limit / 2)
}

/// Sets `grpc-timeout` in `headers` to the time left until `end`.
pub(crate) fn renew(headers: &mut HeaderMap, end: Instant) {
    let left = end.saturating_duration_since(Instant::now());
    headers.insert("grpc-timeout", header(left));
}

/// Returns the status of a call whose deadline passed.
pub(crate) fn late() -> tonic::Status {
    with_reason(
        ErrorReason::DeadlineExceeded,
        "the deadline of the call was exceeded",
    )
}

/// Returns the timeout in `grpc-timeout`: at most eight digits and a unit (gRPC over HTTP/2, "Requests").
pub(crate) fn parse_timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let unit = text.chars().last()?;
    let digits = &text[..text.len() - unit.len_utf8()];
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let amount: u64 = digits.parse().ok()?;
    Some(match unit {
        'H' => Duration::from_secs(amount * 3_600),
        'M' => Duration::from_secs(amount * 60),
        'S' => Duration::from_secs(amount),
        'm' => Duration::from_millis(amount),
        'u' => Duration::from_micros(amount),
        'n' => Duration::from_nanos(amount),
        _ => return None,
    })
}

/// Formats `left` as the value of `grpc-timeout`.
fn header(left: Duration) -> HeaderValue {
    const DIGITS: u128 = 100_000_000;
    let units = [(left.as_micros(), 'u'), (left.as_millis(), 'm')];
    let fits = units.into_iter().find(|(amount, _)| *amount < DIGITS);
    let (amount, unit) = fits.unwrap_or((u128::from(left.as_secs()).min(DIGITS - 1), 'S'));
    // Digits with a letter are always a valid header value.
    let value = HeaderValue::try_from(format!("{amount}{unit}"));
    let mut value = value.unwrap_or(HeaderValue::from_static("0u"));
    // The value differs in each call, so it must not displace others in the tables of HTTP/2's header compression.
    value.set_sensitive(true);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_header_is_read_as_grpc_writes_it() {
        let read = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-timeout", text.parse().unwrap());
            parse_timeout(&headers)
        };
        assert_eq!(read("250m"), Some(Duration::from_millis(250)));
        assert_eq!(read("3S"), Some(Duration::from_secs(3)));
        assert_eq!(
            read("99999999H"),
            Some(Duration::from_secs(99_999_999 * 3_600))
        );
        for bad in ["", "S", "123456789S", "-1S", "1x", "1.5S"] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn the_time_that_is_left_survives_the_header() {
        for left in [
            Duration::ZERO,
            Duration::from_micros(1),
            Duration::from_micros(99_999_999),
            Duration::from_millis(99_999_999),
            Duration::from_secs(99_999_999),
        ] {
            let headers = HeaderMap::from_iter([(
                http::HeaderName::from_static("grpc-timeout"),
                header(left),
            )]);
            assert_eq!(parse_timeout(&headers), Some(left));
        }
        assert_eq!(header(Duration::MAX), "99999999S");
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_call_leads_to_ends_with_it_and_leaves_time_for_its_answer() {
        let ample = Duration::from_secs(30);
        assert_eq!(time_left(ample), ample);
        let inside = within(Duration::from_secs(2), async {
            tokio::time::advance(Duration::from_secs(1)).await;
            let outer = time_left(ample);
            let inner = within(ample, async { time_left(ample) }).await;
            (outer, inner, time_left(Duration::from_millis(5)))
        });
        let second = Duration::from_secs(1);
        let got = inside.await;
        assert_eq!(got, Some((second, Some(second), Duration::from_millis(5))));
        assert_eq!(in_header(second), Duration::from_millis(990));
        assert_eq!(
            in_header(Duration::from_millis(4)),
            Duration::from_millis(2)
        );
        assert_eq!(within(second, std::future::pending::<()>()).await, None);
    }
}
