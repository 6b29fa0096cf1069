//! Check of whether another machine's clock agrees with the clock of this one.

use std::time::Duration;

use wardgate_domain::Timestamp;

use super::finding::{Finding, FindingSubject};

/// Maximum difference that counts as equal: a `Date` header has whole seconds, and the response took some time.
const NOISE: Duration = Duration::from_secs(2);
/// Maximum difference with which tokens and permits are accepted: the default leeway of an issuer.
const MOST: Duration = Duration::from_secs(10);

/// Compares the remote time `theirs`, received at the local time `ours`.
pub(super) fn compare(subject: &str, theirs: Timestamp, ours: Timestamp) -> Finding {
    let about = FindingSubject::new("clock", subject);
    let (apart, word) = if theirs > ours {
        (theirs.since(ours), "ahead of")
    } else {
        (ours.since(theirs), "behind")
    };
    let seconds = apart.as_secs();
    if apart <= NOISE {
        return about.ok("matches the clock of this machine");
    }
    let message = format!("is {seconds} s {word} the clock of this machine");
    let remedy = "synchronize both clocks (chrony, systemd-timesyncd)";
    if apart <= MOST {
        about.warn(message, remedy)
    } else {
        about.fail(
            message,
            format!("{remedy}; until then, tokens and permits are refused"),
        )
    }
}

/// Parses an HTTP `Date` header.
pub(super) fn date(header: Option<&http::HeaderValue>) -> Option<Timestamp> {
    let date = httpdate::parse_http_date(header?.to_str().ok()?).ok()?;
    Some(date.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::finding::CheckStatus;

    #[test]
    fn clocks_may_differ_by_the_noise_and_not_by_more_than_the_leeway_of_tokens() {
        let now = Timestamp::from_seconds(1_000);
        for (theirs, verdict) in [
            (1_000, CheckStatus::Ok),
            (998, CheckStatus::Ok),
            (995, CheckStatus::Warn),
            (1_009, CheckStatus::Warn),
            (1_011, CheckStatus::Fail),
            (0, CheckStatus::Fail),
        ] {
            let finding = compare("db", Timestamp::from_seconds(theirs), now);
            assert_eq!(finding.verdict, verdict, "{theirs}");
        }
    }

    #[test]
    fn what_is_no_date_says_nothing() {
        let read = |text: &str| date(Some(&text.parse().unwrap()));
        assert_eq!(
            read("Thu, 01 Jan 1970 00:00:01 GMT"),
            Some(Timestamp::from_seconds(1))
        );
        assert_eq!(read("yesterday"), None);
        assert_eq!(date(None), None);
    }
}
