//! What counts as unusual.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use wardgate_domain::duration;

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
                r#"{"watched_policies":["a*b"]}"#,
                "audit.anomalies.watched_policies: `a*b` is neither the id of a policy nor the beginning of some with one `*` behind it",
            ),
        ] {
            assert_eq!(read(text), Err(expected.to_owned()));
        }
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
