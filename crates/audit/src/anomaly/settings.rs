//! Settings of anomaly detection.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use wardgate_domain::{TimeZone, Timestamp, duration};

use super::kind::AnomalyKind;
use crate::Error;

/// Maximum count of a threshold, which bounds the memory used for each caller.
const MAX_COUNT: usize = 1_000;

/// Maximum window of a threshold, which bounds how far back the audit log is read at the start.
const LONGEST_WINDOW: Duration = Duration::from_hours(24);

/// Period in which at most one use of a watched policy by the same caller is reported.
const WATCHED_POLICY_WINDOW: Duration = Duration::from_mins(15);

/// Settings of anomaly detection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnomalySettings {
    /// Threshold for requests of one caller, or of one address without an accepted token, that are refused by policy; default
    /// 20 within five minutes.
    #[serde(default = "default_denials")]
    pub denials: AnomalyThreshold,
    /// Threshold for different data subjects whose rows one caller receives; default 100 within an hour.
    #[serde(default = "default_data_subjects")]
    pub data_subjects: AnomalyThreshold,
    /// Ids of policies whose every use is reported, such as break-glass policies. A `*` at the end matches any suffix.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub watched_policies: Vec<String>,
    /// The hours in which watched policies are usually used. A use at another time is reported as a different kind of anomaly.
    /// With `None`, all times are equal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usual_hours: Option<UsualHours>,
}

/// A period of each day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UsualHours {
    /// The start of the period, for example `07:00`.
    pub from: TimeOfDay,
    /// The end of the period. If it is before `from`, it is on the next day.
    pub to: TimeOfDay,
    /// The time zone of `from` and `to`; default UTC.
    #[serde(default)]
    pub time_zone: TimeZone,
}

/// A local time of day, to the minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TimeOfDay {
    hour: u8,
    minute: u8,
}

impl TryFrom<String> for TimeOfDay {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let read = || {
            let (hour, minute) = text.split_once(':')?;
            let digits = |part: &str| part.len() == 2 && part.bytes().all(|it| it.is_ascii_digit());
            let (hour, minute) = Some((hour, minute)).filter(|(h, m)| digits(h) && digits(m))?;
            let (hour, minute) = (hour.parse().ok()?, minute.parse().ok()?);
            (hour < 24 && minute < 60).then_some(Self { hour, minute })
        };
        read().ok_or_else(|| format!("`{text}` is not a time of day; write for example 07:30"))
    }
}

impl From<TimeOfDay> for String {
    fn from(TimeOfDay { hour, minute }: TimeOfDay) -> Self {
        format!("{hour:02}:{minute:02}")
    }
}

impl UsualHours {
    /// Returns whether `time` is within the period; `false` if `time` has no local time in the time zone.
    pub(super) fn contains(&self, time: Timestamp) -> bool {
        let shown = self.time_zone.local(time).and_then(|local| {
            let (hour, minute) = (local.hour(), local.minute());
            let (hour, minute) = (hour.try_into().ok()?, minute.try_into().ok()?);
            Some(TimeOfDay { hour, minute })
        });
        shown.is_some_and(|shown| {
            let (is_after, is_before) = (shown >= self.from, shown < self.to);
            if self.from < self.to {
                is_after && is_before
            } else {
                is_after || is_before
            }
        })
    }
}

/// A number of events within a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnomalyThreshold {
    /// Number of events, from 1 to 1,000.
    pub count: usize,
    /// Length of the period, from one second to 24 hours.
    #[serde(with = "duration")]
    pub within: Duration,
}

impl AnomalyThreshold {
    /// Returns the range of times that count together with an event at `time`. It includes later times, because the clock may
    /// have been stepped back since.
    pub(super) fn window(&self, time: Timestamp) -> RangeInclusive<Timestamp> {
        time.minus(self.within)..=time.plus(self.within)
    }
}

fn default_denials() -> AnomalyThreshold {
    AnomalyThreshold {
        count: 20,
        within: Duration::from_mins(5),
    }
}

fn default_data_subjects() -> AnomalyThreshold {
    AnomalyThreshold {
        count: 100,
        within: Duration::from_hours(1),
    }
}

impl Default for AnomalySettings {
    fn default() -> Self {
        Self {
            denials: default_denials(),
            data_subjects: default_data_subjects(),
            watched_policies: Vec::new(),
            usual_hours: None,
        }
    }
}

impl AnomalySettings {
    /// Checks the values that the types do not restrict.
    pub(crate) fn validate(&self) -> Result<(), Error> {
        let thresholds = [
            ("denials", self.denials),
            ("data_subjects", self.data_subjects),
        ];
        for (name, threshold) in thresholds {
            if !(1..=MAX_COUNT).contains(&threshold.count) {
                return Err(Error::AnomalySettings {
                    key: format!("{name}.count"),
                    problem: format!("{} is not between 1 and {MAX_COUNT}", threshold.count),
                });
            }
            if !(Duration::from_secs(1)..=LONGEST_WINDOW).contains(&threshold.within) {
                let given = duration::format(threshold.within);
                return Err(Error::AnomalySettings {
                    key: format!("{name}.within"),
                    problem: format!("`{given}` is not between 1s and 24h"),
                });
            }
        }
        if let Some(hours) = &self.usual_hours
            && hours.from == hours.to
        {
            return Err(Error::AnomalySettings {
                key: "usual_hours".to_owned(),
                problem: "the beginning equals the end; omit usual_hours if no hours are unusual"
                    .to_owned(),
            });
        }
        let is_unfit = |pattern: &&String| {
            let name = pattern.strip_suffix('*').unwrap_or(pattern);
            pattern.is_empty() || name.contains('*')
        };
        match self.watched_policies.iter().find(is_unfit) {
            None => Ok(()),
            Some(pattern) => Err(Error::AnomalySettings {
                key: "watched_policies".to_owned(),
                problem: format!(
                    "`{pattern}` is neither the id of a policy nor a prefix followed by a single `*`"
                ),
            }),
        }
    }

    /// Returns whether the uses of this policy are reported.
    pub(super) fn watches(&self, policy: &str) -> bool {
        let mut patterns = self.watched_policies.iter();
        patterns.any(|pattern| match pattern.strip_suffix('*') {
            Some(beginning) => policy.starts_with(beginning),
            None => policy == pattern,
        })
    }

    /// Returns the kind of anomaly of a use of a watched policy at `time`.
    pub(super) fn watched_use(&self, time: Timestamp) -> AnomalyKind {
        match &self.usual_hours {
            Some(hours) if !hours.contains(time) => AnomalyKind::WatchedPolicyAtOddHours,
            _ => AnomalyKind::WatchedPolicy,
        }
    }

    /// Returns the threshold for the use of a watched policy.
    pub(super) fn watched_policy_threshold() -> AnomalyThreshold {
        AnomalyThreshold {
            count: 1,
            within: WATCHED_POLICY_WINDOW,
        }
    }

    /// Returns the longest period that an anomaly can span.
    pub(crate) fn longest_window(&self) -> Duration {
        let of_counts = self.denials.within.max(self.data_subjects.within);
        of_counts.max(WATCHED_POLICY_WINDOW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_without_a_sense_are_refused_by_name() {
        let read = |text: &str| {
            let settings: AnomalySettings = serde_json::from_str(text).unwrap();
            settings.validate().map_err(|error| error.to_string())
        };
        assert_eq!(read("{}"), Ok(()));
        for (text, expected) in [
            (
                r#"{"denials":{"count":0,"within":"5m"}}"#,
                "audit.anomalies.denials.count: 0 is not between 1 and 1000",
            ),
            (
                r#"{"data_subjects":{"count":9,"within":"25h"}}"#,
                "audit.anomalies.data_subjects.within: `90000s` is not between 1s and 24h",
            ),
            (
                r#"{"usual_hours":{"from":"07:00","to":"07:00"}}"#,
                "audit.anomalies.usual_hours: the beginning equals the end; omit usual_hours if no hours are unusual",
            ),
            (
                r#"{"watched_policies":["a*b"]}"#,
                "audit.anomalies.watched_policies: `a*b` is neither the id of a policy nor a prefix followed by a single `*`",
            ),
        ] {
            assert_eq!(read(text), Err(expected.to_owned()));
        }
    }

    #[test]
    fn usual_hours_are_those_of_a_time_zone_and_can_span_midnight() {
        let hours = |text: &str| serde_json::from_str::<UsualHours>(text).unwrap();
        let day = hours(r#"{"from":"07:00","to":"19:30","time_zone":"Europe/Berlin"}"#);
        let night = hours(r#"{"from":"22:00","to":"06:00"}"#);
        let at = |time: &str| time.parse().unwrap();
        // Berlin is one hour ahead of UTC in winter, and two in summer.
        for (time, is_usual) in [
            ("2026-01-07T05:59:59Z", false),
            ("2026-01-07T06:00:00Z", true),
            ("2026-07-07T05:00:00Z", true),
            ("2026-07-07T17:29:59Z", true),
            ("2026-07-07T17:30:00Z", false),
        ] {
            assert_eq!(day.contains(at(time)), is_usual, "{time}");
        }
        for (time, is_usual) in [
            ("2026-01-07T21:59:00Z", false),
            ("2026-01-07T22:00:00Z", true),
            ("2026-01-07T05:59:00Z", true),
            ("2026-01-07T06:00:00Z", false),
        ] {
            assert_eq!(night.contains(at(time)), is_usual, "{time}");
        }
        for wrong in [
            r#""7:00""#,
            r#""24:00""#,
            r#""07:60""#,
            r#""0700""#,
            r#""07:0x""#,
        ] {
            assert!(serde_json::from_str::<TimeOfDay>(wrong).is_err(), "{wrong}");
        }
        let zone = serde_json::from_str::<UsualHours>(
            r#"{"from":"07:00","to":"19:00","time_zone":"Europe/Wien"}"#,
        );
        assert!(zone.unwrap_err().to_string().contains("Europe/Wien"));
        assert_eq!(hours(&serde_json::to_string(&day).unwrap()), day);
    }

    #[test]
    fn policies_are_watched_by_id_or_by_the_beginning_of_their_ids() {
        let settings = AnomalySettings {
            watched_policies: vec!["break-glass-*".to_owned(), "exports".to_owned()],
            ..AnomalySettings::default()
        };
        assert!(settings.watches("break-glass-reads") && settings.watches("exports"));
        assert!(!settings.watches("break") && !settings.watches("exports-of-all"));
    }
}
