//! Timestamps in UTC with microsecond precision.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;

use crate::InvalidMessage;

/// A point in time in UTC, in microseconds since 1970. Displayed in RFC 3339 format with six decimals and `Z`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Creates a timestamp from microseconds since 1970-01-01T00:00:00Z.
    pub fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Creates a timestamp from seconds since 1970-01-01T00:00:00Z, the unit of JWT claims.
    pub fn from_seconds(seconds: i64) -> Self {
        Self(seconds.saturating_mul(1_000_000))
    }

    /// Returns the microseconds since 1970-01-01T00:00:00Z.
    pub fn as_micros(self) -> i64 {
        self.0
    }

    /// Returns the whole seconds since 1970-01-01T00:00:00Z.
    pub fn as_seconds(self) -> i64 {
        self.0.div_euclid(1_000_000)
    }

    /// Returns this time plus `duration`.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(micros(duration)))
    }

    /// Returns this time minus `duration`.
    #[must_use]
    pub fn minus(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(micros(duration)))
    }

    /// Returns the time elapsed since `earlier`, or zero if `earlier` is later than `self`.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Self(micros(after)),
            Err(before) => Self(-micros(before.duration())),
        }
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape = format_description!(
            "[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:6]Z"
        );
        let instant = OffsetDateTime::from_unix_timestamp_nanos(i128::from(self.0) * 1_000)
            .map_err(|_| fmt::Error)?;
        f.write_str(&instant.format(shape).map_err(|_| fmt::Error)?)
    }
}

impl FromStr for Timestamp {
    type Err = time::error::Parse;

    /// Parses RFC 3339 format with any offset.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let instant = OffsetDateTime::parse(text, &Rfc3339)?;
        Ok(Self(
            i64::try_from(instant.unix_timestamp_nanos().div_euclid(1_000)).unwrap_or(i64::MAX),
        ))
    }
}

impl From<Timestamp> for prost_types::Timestamp {
    fn from(time: Timestamp) -> Self {
        Self {
            seconds: time.as_seconds(),
            nanos: i32::try_from(time.0.rem_euclid(1_000_000) * 1_000).unwrap_or(0),
        }
    }
}

impl TryFrom<prost_types::Timestamp> for Timestamp {
    type Error = InvalidMessage;

    fn try_from(time: prost_types::Timestamp) -> Result<Self, Self::Error> {
        let seconds = time.seconds.checked_mul(1_000_000);
        match (seconds, time.nanos) {
            (Some(micros), nanos @ 0..1_000_000_000) => Ok(Self(micros + i64::from(nanos / 1_000))),
            _ => Err(InvalidMessage::field("timestamp", "out of range")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_rfc_3339_in_utc_with_microseconds() {
        let time = Timestamp::from_micros(1_762_869_000_000_042);
        assert_eq!(time.to_string(), "2025-11-11T13:50:00.000042Z");
        assert_eq!(time.to_string().parse::<Timestamp>().unwrap(), time);
    }

    #[test]
    fn reads_any_offset() {
        let time: Timestamp = "2025-11-11T14:50:00+01:00".parse().unwrap();
        assert_eq!(time, Timestamp::from_seconds(1_762_869_000));
    }

    #[test]
    fn survives_the_wire() {
        let time = Timestamp::from_micros(1_762_869_000_123_456);
        assert_eq!(
            Timestamp::try_from(prost_types::Timestamp::from(time)).unwrap(),
            time
        );
    }
}
