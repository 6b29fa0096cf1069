//! The remaining capacity of the limits that apply to a request, in the format of the HTTP fields `RateLimit-Policy`
//! and `RateLimit` (draft-ietf-httpapi-ratelimit-headers-11).

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::rate::Rate;
use super::shared_rate::RateStatus;

/// The name of the rate limit of each caller in the fields. No quota may have this name.
pub const REQUESTS_PER_MINUTE: &str = "requests_per_minute";

/// The remaining capacity of the limits that apply to one HTTP request.
#[derive(Debug, Default)]
pub struct LimitReport(Mutex<Vec<ReportedLimit>>);

#[derive(Debug)]
struct ReportedLimit {
    name: String,
    rate: Rate,
    status: RateStatus,
}

impl LimitReport {
    /// Adds what is left of the limit `name`. If a batch is counted several times, the smallest remainder is kept.
    pub fn add(&self, name: &str, rate: Rate, status: RateStatus) {
        let mut limits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match limits.iter_mut().find(|limit| limit.name == name) {
            Some(known) if known.status.remaining < status.remaining => {}
            Some(known) => known.status = status,
            None => limits.push(ReportedLimit {
                name: name.to_owned(),
                rate,
                status,
            }),
        }
    }

    /// Returns the values of `RateLimit-Policy` and `RateLimit`, or `None` if no limit applied to the request.
    pub fn fields(&self) -> Option<(String, String)> {
        let limits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if limits.is_empty() {
            return None;
        }
        let policies = limits.iter().map(|ReportedLimit { name, rate, .. }| {
            format!(r#""{name}";q={};w={}"#, rate.calls(), rate.window())
        });
        let left = limits.iter().map(|ReportedLimit { name, status, .. }| {
            let seconds = whole_seconds(status.window);
            format!(r#""{name}";r={};t={seconds}"#, status.remaining)
        });
        let join = |items: Vec<String>| items.join(", ");
        Some((join(policies.collect()), join(left.collect())))
    }
}

/// Returns whether a name needs no escaping in the fields: visible ASCII without quotes and backslashes.
pub(crate) fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
    !name.is_empty() && name.bytes().all(is_plain)
}

/// Rounds up to whole seconds, like `Retry-After`, so that the window does not end later than the field says.
fn whole_seconds(window: Duration) -> u64 {
    window.as_secs() + u64::from(window.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(remaining: u32, millis: u64) -> RateStatus {
        let window = Duration::from_millis(millis);
        RateStatus { remaining, window }
    }

    #[test]
    fn fields_name_every_limit_with_what_is_left_of_it() {
        let report = LimitReport::default();
        assert_eq!(report.fields(), None);
        report.add(
            REQUESTS_PER_MINUTE,
            Rate::per_minute(100),
            status(50, 30_000),
        );
        report.add("exports", "3/d".parse().unwrap(), status(0, 28_799_001));
        let policies = r#""requests_per_minute";q=100;w=60, "exports";q=3;w=86400"#;
        let left = r#""requests_per_minute";r=50;t=30, "exports";r=0;t=28800"#;
        assert_eq!(
            report.fields(),
            Some((policies.to_owned(), left.to_owned()))
        );
    }

    #[test]
    fn of_a_batch_the_least_that_was_left_is_told() {
        let report = LimitReport::default();
        for (remaining, millis) in [(4, 600), (2, 1_800), (3, 1_200)] {
            report.add("exports", Rate::per_minute(100), status(remaining, millis));
        }
        let (_, left) = report.fields().unwrap();
        assert_eq!(left, r#""exports";r=2;t=2"#);
    }
}
