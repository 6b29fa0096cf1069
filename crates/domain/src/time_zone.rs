//! Time zones, for rules that depend on local time.

use std::str::FromStr;

use jiff::Zoned;
use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// A time zone of the IANA database, with its daylight saving time. Its rules are those of the system
/// (`/usr/share/zoneinfo`) or, if the system has none, those that are compiled into the program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TimeZone(jiff::tz::TimeZone);

/// An error for a name that is not a time zone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a time zone of the IANA database; write a name such as `Europe/Berlin`")]
pub struct UnknownTimeZone(String);

impl TimeZone {
    /// Returns the local date and time at `time`, or `None` if `time` is outside the range of the calendar.
    pub fn local(&self, time: Timestamp) -> Option<Zoned> {
        let time = jiff::Timestamp::from_microsecond(time.as_micros()).ok()?;
        Some(time.to_zoned(self.0.clone()))
    }

    /// Returns the first instant of the local date at `time`, or `None` if it is outside the range of the calendar. This is
    /// midnight, or the first one if the clocks are set back to midnight, except on a day on which the clocks skip midnight.
    pub fn start_of_day(&self, time: Timestamp) -> Option<Timestamp> {
        let start = self.local(time)?.start_of_day().ok()?;
        Some(Timestamp::from_micros(start.timestamp().as_microsecond()))
    }

    /// Returns the rules of the time zone.
    pub fn rules(&self) -> &jiff::tz::TimeZone {
        &self.0
    }
}

impl Default for TimeZone {
    fn default() -> Self {
        Self(jiff::tz::TimeZone::UTC)
    }
}

impl FromStr for TimeZone {
    type Err = UnknownTimeZone;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = jiff::tz::TimeZone::get(name);
        found
            .map(Self)
            .map_err(|_| UnknownTimeZone(name.to_owned()))
    }
}

impl TryFrom<String> for TimeZone {
    type Error = UnknownTimeZone;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        name.parse()
    }
}

impl From<TimeZone> for String {
    fn from(zone: TimeZone) -> Self {
        zone.0.iana_name().unwrap_or("UTC").to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_begins_at_the_first_local_midnight_or_where_the_clocks_skip_midnight_an_hour_later() {
        for (zone, time, expected) in [
            ("UTC", "2026-03-29T23:59:59Z", "2026-03-29T00:00:00Z"),
            (
                "Europe/Berlin",
                "2026-03-29T12:00:00+02:00",
                "2026-03-29T00:00:00+01:00",
            ),
            (
                "Europe/Berlin",
                "2026-10-25T12:00:00+01:00",
                "2026-10-25T00:00:00+02:00",
            ),
            (
                "America/Sao_Paulo",
                "2018-11-04T12:00:00-02:00",
                "2018-11-04T01:00:00-02:00",
            ),
            // At 1:00, the clocks are set back to midnight.
            (
                "America/Havana",
                "2025-11-02T12:00:00-05:00",
                "2025-11-02T00:00:00-04:00",
            ),
            (
                "America/Havana",
                "2025-11-02T00:30:00-05:00",
                "2025-11-02T00:00:00-04:00",
            ),
        ] {
            let zone: TimeZone = zone.parse().unwrap();
            let expected: Timestamp = expected.parse().unwrap();
            let start = zone.start_of_day(time.parse().unwrap());
            assert_eq!(start, Some(expected), "{time}");
        }
        let never = Timestamp::from_micros(i64::MAX);
        assert_eq!(TimeZone::default().start_of_day(never), None);
    }
}
