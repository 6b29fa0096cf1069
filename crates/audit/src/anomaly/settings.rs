//! What counts as unusual.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use wardgate_domain::{TimeZone, Timestamp, duration};

use super::kind::AnomalyKind;
use crate::Error;

/// Most that a threshold counts: so much is kept in memory of each caller.
const MAX_COUNT: usize = 1_000;

/// The longest window: so far back the record is read at the start.
const LONGEST_WINDOW: Duration = Duration::from_hours(24);

/// A caller's use of a watched policy is told once in so long.
const WATCHED_POLICY_WINDOW: Duration = Duration::from_mins(15);

/// Settings of the search for anomalies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnomalySettings {
    /// What one caller, or one address without an accepted token, is refused by policy; default 20 within five minutes.
    #[serde(default = "default_denials")]
    pub denials: AnomalyThreshold,
    /// Different data subjects of whom one caller gets rows; default 100 within an hour.
    #[serde(default = "default_data_subjects")]
    pub data_subjects: AnomalyThreshold,
    /// Ids of policies whose every use is worth a look, such as those of break-glass. A `*` at the end stands for any rest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub watched_policies: Vec<String>,
    /// When watched policies are usually used. A use at another time is told as such. None: all times are alike.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usual_hours: Option<UsualHours>,
}

/// A span of each day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UsualHours {
    /// When it begins, for example `07:00`.
    pub from: TimeOfDay,
    /// When it ends; before `from` it is of the next day.
    pub to: TimeOfDay,
    /// Whose clocks show it; default UTC.
    #[serde(default)]
    pub time_zone: TimeZone,
}

/// A time that clocks show, to the minute.
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
        read().ok_or_else(|| format!("`{text}` is no time of day; write 07:30"))
    }
}

impl From<TimeOfDay> for String {
    fn from(TimeOfDay { hour, minute }: TimeOfDay) -> Self {
        format!("{hour:02}:{minute:02}")
    }
}

impl UsualHours {
    /// Whether `time` is in it; a time that no calendar has is not.
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

/// So many within so long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnomalyThreshold {
    /// From 1 to 1,000.
    pub count: usize,
    /// From a second to 24 hours.
    #[serde(with = "duration")]
    pub within: Duration,
}

impl AnomalyThreshold {
    /// What counts with something at `time`. Later than that is what a clock said that stepped back since.
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
    /// Checks what the types cannot say.
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
                let given = duration::show(threshold.within);
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
                problem: "they begin when they end; leave them out where all times are alike"
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
                    "`{pattern}` is neither the id of a policy nor the beginning of some with one `*` behind it"
                ),
            }),
        }
    }

    /// Whether each use of this policy is worth a look.
    pub(super) fn watches(&self, policy: &str) -> bool {
        let mut patterns = self.watched_policies.iter();
        patterns.any(|pattern| match pattern.strip_suffix('*') {
            Some(beginning) => policy.starts_with(beginning),
            None => policy == pattern,
        })
    }

    /// What a use of a watched policy at this time is.
    pub(super) fn watched_use(&self, time: Timestamp) -> AnomalyKind {
        match &self.usual_hours {
            Some(hours) if !hours.contains(time) => AnomalyKind::WatchedPolicyAtOddHours,
            _ => AnomalyKind::WatchedPolicy,
        }
    }

    /// When a caller uses a watched policy.
    pub(super) fn watched_policy_threshold() -> AnomalyThreshold {
        AnomalyThreshold {
            count: 1,
            within: WATCHED_POLICY_WINDOW,
        }
    }

    /// How far back a finding can reach.
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
                "audit.anomalies.usual_hours: they begin when they end; leave them out where all times are alike",
            ),
            (
                r#"{"watched_policies":["a*b"]}"#,
                "audit.anomalies.watched_policies: `a*b` is neither the id of a policy nor the beginning of some with one `*` behind it",
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
        // An hour before UTC in winter, two in summer.
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
