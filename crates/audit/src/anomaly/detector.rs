//! Detection of anomalies in a sequence of records. The result depends only on the records and the settings.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};

use serde::Deserialize;
use wardgate_domain::{Reason, Timestamp};

use super::kind::AnomalyKind;
use super::settings::{AnomalySettings, AnomalyThreshold};

/// Maximum number of callers and addresses that are kept in memory. Further ones are ignored until some have been inactive for
/// a whole window.
const MAX_ORIGINS: usize = 100_000;

/// Inactive origins are forgotten at every sequence number that is a multiple of this. The page in which a record is read must
/// not matter, because pages end where the log ended when it was read.
const FORGET_EVERY: u64 = 1_024;

/// Unusual behaviour of a caller or an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Anomaly {
    pub(crate) kind: AnomalyKind,
    /// The caller, or `None` if no token was accepted.
    pub(crate) caller: Option<AnomalyCaller>,
    /// The client address in the record that revealed the anomaly.
    pub(crate) client_ip: String,
    /// The id of the watched policy, or `None` for other kinds of anomaly.
    pub(crate) policy: Option<String>,
    /// The number of events within the window, including this one.
    pub(crate) count: usize,
    pub(crate) threshold: AnomalyThreshold,
    /// The sequence number of the record that revealed the anomaly. `time` is the time of the same record.
    pub(crate) last_sequence: u64,
    pub(crate) time: Timestamp,
}

/// The caller whose behaviour is unusual.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AnomalyCaller {
    /// The issuer of the token; empty for counted refusals, which do not contain it.
    pub(crate) issuer: String,
    pub(crate) subject: String,
    pub(crate) tenant: String,
}

/// Finds anomalies in records that it receives in the order of their sequence numbers.
#[derive(Debug)]
pub(crate) struct AnomalyDetector {
    settings: AnomalySettings,
    histories: HashMap<AnomalyOrigin, CallerHistory>,
}

/// The origin of an action: a subject, whichever issuer named it, or an IP address.
#[derive(Debug, PartialEq, Eq, Hash)]
enum AnomalyOrigin {
    Subject(String),
    Address(String),
}

/// The recent actions of one origin.
#[derive(Debug)]
struct CallerHistory {
    /// The time of the newest action.
    newest: Timestamp,
    /// The times of the newest denials, in the order of their records.
    denials: VecDeque<Timestamp>,
    /// The time at which rows of each data subject were last released, by the tag of the data subject.
    data_subjects: HashMap<String, Timestamp>,
    /// The time at which each watched policy was last used, separately for usual and for odd hours.
    policies: HashMap<(AnomalyKind, String), Timestamp>,
}

/// The fields of a record that the detector reads.
#[derive(Debug, Deserialize)]
struct ObservedRecord<'a> {
    #[serde(borrow, default)]
    caller: ObservedCaller<'a>,
    #[serde(borrow, default)]
    client_ip: Cow<'a, str>,
    #[serde(borrow, default)]
    counts: Vec<ObservedRefusals<'a>>,
    #[serde(borrow, default)]
    data_subjects: Vec<ObservedSubject<'a>>,
    #[serde(borrow, default)]
    decision: ObservedDecision<'a>,
    #[serde(borrow)]
    event: Cow<'a, str>,
    #[serde(borrow, default)]
    status: Cow<'a, str>,
    #[serde(borrow)]
    time: Cow<'a, str>,
    #[serde(default)]
    violation: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct ObservedCaller<'a> {
    #[serde(borrow, default)]
    issuer: Cow<'a, str>,
    #[serde(borrow, default)]
    subject: Cow<'a, str>,
    #[serde(borrow, default)]
    tenant: Cow<'a, str>,
}

#[derive(Debug, Deserialize)]
struct ObservedRefusals<'a> {
    #[serde(borrow, default)]
    client_ip: Cow<'a, str>,
    count: usize,
    #[serde(borrow)]
    reason: Cow<'a, str>,
    #[serde(borrow, default)]
    subject: Cow<'a, str>,
}

#[derive(Debug, Deserialize)]
struct ObservedSubject<'a> {
    #[serde(borrow)]
    hmac: Cow<'a, str>,
}

#[derive(Debug, Default, Deserialize)]
struct ObservedDecision<'a> {
    #[serde(borrow, default)]
    policies: Vec<Cow<'a, str>>,
}

/// The caller, address, sequence number and time of a record.
#[derive(Debug, Clone)]
struct RecordObservation<'a> {
    caller: ObservedCaller<'a>,
    client_ip: Cow<'a, str>,
    sequence: u64,
    time: Timestamp,
}

impl AnomalyDetector {
    pub(crate) fn new(settings: AnomalySettings) -> Self {
        Self {
            settings,
            histories: HashMap::new(),
        }
    }

    /// Returns the anomalies that the record at `sequence` reveals; none if `canonical` is not a valid record.
    pub(crate) fn observe(&mut self, sequence: u64, canonical: &[u8]) -> Vec<Anomaly> {
        let Ok(record) = serde_json::from_slice::<ObservedRecord<'_>>(canonical) else {
            return Vec::new();
        };
        let Ok(time) = record.time.parse() else {
            return Vec::new();
        };
        if sequence.is_multiple_of(FORGET_EVERY) {
            self.forget_quiet(time);
        }
        let observation = RecordObservation {
            caller: record.caller,
            client_ip: record.client_ip,
            sequence,
            time,
        };
        match &*record.event {
            "outcome" if !record.violation => {
                let many = self.observe_subjects(&observation, &record.data_subjects);
                let mut found: Vec<_> = many.into_iter().collect();
                if record.status != "denied" {
                    found.extend(self.observe_policies(&observation, &record.decision.policies));
                }
                found
            }
            "outcome" | "memory_access" if record.violation => {
                self.observe_denials(&observation, 1).into_iter().collect()
            }
            // The operator lacked permission.
            "admin_change" if record.status == "denied" => {
                self.observe_denials(&observation, 1).into_iter().collect()
            }
            "refusals" => {
                let counts = record.counts.into_iter();
                let denials = counts.filter(|refusals| is_denial(&refusals.reason));
                let found = denials.filter_map(|refusals| {
                    let of = RecordObservation {
                        caller: ObservedCaller {
                            subject: refusals.subject,
                            ..ObservedCaller::default()
                        },
                        client_ip: refusals.client_ip,
                        ..observation
                    };
                    self.observe_denials(&of, refusals.count)
                });
                found.collect()
            }
            _ => Vec::new(),
        }
    }

    /// Removes the histories of origins without an action within the longest window around `now`.
    fn forget_quiet(&mut self, now: Timestamp) {
        let window = self.settings.longest_window();
        let window = now.minus(window)..=now.plus(window);
        self.histories
            .retain(|_, history| window.contains(&history.newest));
    }

    fn observe_denials(&mut self, of: &RecordObservation<'_>, count: usize) -> Option<Anomaly> {
        let threshold = self.settings.denials;
        let denials = &mut self.history(of)?.denials;
        let window = threshold.window(of.time);
        denials.retain(|time| window.contains(time));
        let before = denials.len();
        denials.extend(std::iter::repeat_n(of.time, count.min(threshold.count)));
        let surplus = denials.len().saturating_sub(threshold.count);
        denials.drain(..surplus);
        let is_crossed = before < threshold.count && denials.len() == threshold.count;
        let all = before.saturating_add(count);
        is_crossed.then(|| of.anomaly(AnomalyKind::DenialBurst, all, threshold))
    }

    fn observe_subjects(
        &mut self,
        of: &RecordObservation<'_>,
        subjects: &[ObservedSubject<'_>],
    ) -> Option<Anomaly> {
        if subjects.is_empty() {
            return None;
        }
        let threshold = self.settings.data_subjects;
        let seen = &mut self.history(of)?.data_subjects;
        let window = threshold.window(of.time);
        seen.retain(|_, time| window.contains(time));
        let before = seen.len();
        for subject in subjects {
            seen.insert(subject.hmac.clone().into_owned(), of.time);
        }
        let all = seen.len();
        while seen.len() > threshold.count {
            let first = seen.iter().min_by_key(|(tag, time)| (**time, *tag));
            let first = first.map(|(tag, _)| tag.clone())?;
            seen.remove(&first);
        }
        let is_crossed = before < threshold.count && all >= threshold.count;
        is_crossed.then(|| of.anomaly(AnomalyKind::ManyDataSubjects, all, threshold))
    }

    fn observe_policies(
        &mut self,
        of: &RecordObservation<'_>,
        policies: &[Cow<'_, str>],
    ) -> Vec<Anomaly> {
        let threshold = AnomalySettings::watched_policy_threshold();
        let kind = self.settings.watched_use(of.time);
        let watched = policies.iter().filter(|id| self.settings.watches(id));
        let watched: Vec<_> = watched.collect();
        if watched.is_empty() {
            return Vec::new();
        }
        let Some(history) = self.history(of) else {
            return Vec::new();
        };
        let window = threshold.window(of.time);
        history.policies.retain(|_, time| window.contains(time));
        let new = watched.into_iter().filter_map(|id| {
            let id = id.clone().into_owned();
            let last = history.policies.insert((kind, id.clone()), of.time);
            last.is_none().then(|| Anomaly {
                policy: Some(id),
                ..of.anomaly(kind, 1, threshold)
            })
        });
        new.collect()
    }

    /// Returns the history of the origin, or `None` if the record names no origin or the maximum number of origins is reached.
    fn history(&mut self, of: &RecordObservation<'_>) -> Option<&mut CallerHistory> {
        let origin = of.origin()?;
        if !self.histories.contains_key(&origin) && self.histories.len() >= MAX_ORIGINS {
            self.forget_quiet(of.time);
            if self.histories.len() >= MAX_ORIGINS {
                return None;
            }
        }
        let history = self
            .histories
            .entry(origin)
            .or_insert_with(|| CallerHistory {
                newest: of.time,
                denials: VecDeque::new(),
                data_subjects: HashMap::new(),
                policies: HashMap::new(),
            });
        history.newest = of.time;
        Some(history)
    }
}

impl RecordObservation<'_> {
    fn origin(&self) -> Option<AnomalyOrigin> {
        let (subject, address) = (&self.caller.subject, &self.client_ip);
        match (subject.is_empty(), address.is_empty()) {
            (false, _) => Some(AnomalyOrigin::Subject(subject.clone().into_owned())),
            (true, false) => Some(AnomalyOrigin::Address(address.clone().into_owned())),
            (true, true) => None,
        }
    }

    fn anomaly(&self, kind: AnomalyKind, count: usize, threshold: AnomalyThreshold) -> Anomaly {
        let caller = &self.caller;
        Anomaly {
            kind,
            caller: (!caller.subject.is_empty()).then(|| AnomalyCaller {
                issuer: caller.issuer.clone().into_owned(),
                subject: caller.subject.clone().into_owned(),
                tenant: caller.tenant.clone().into_owned(),
            }),
            client_ip: self.client_ip.clone().into_owned(),
            policy: None,
            count,
            threshold,
            last_sequence: self.sequence,
            time: self.time,
        }
    }
}

/// Returns whether a refused request counts as a denial: the caller asked for something that is not permitted, or sent a token
/// that is not accepted. A missing or expired token does not count, because clients begin to sign in with such a request.
fn is_denial(reason: &str) -> bool {
    let of_sign_in = [Reason::TOKEN_MISSING, Reason::TOKEN_EXPIRED];
    Reason::of_word(reason).is_some_and(|it| it.is_violation() && !of_sign_in.contains(&it))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const START: i64 = 1_762_869_000;

    /// A detector, and the sequence number of the previous record.
    struct RecordSequence(AnomalyDetector, u64);

    impl RecordSequence {
        fn new(denials: usize, data_subjects: usize, watched_policies: &[&str]) -> Self {
            let threshold = |count, minutes| AnomalyThreshold {
                count,
                within: Duration::from_mins(minutes),
            };
            let settings = AnomalySettings {
                denials: threshold(denials, 5),
                data_subjects: threshold(data_subjects, 60),
                watched_policies: watched_policies.iter().map(|&id| id.to_owned()).collect(),
                usual_hours: None,
            };
            Self(AnomalyDetector::new(settings), 0)
        }

        /// Returns the anomalies revealed by a record that was made `seconds` after the start.
        fn observe(&mut self, seconds: i64, members: &str) -> Vec<Anomaly> {
            let time = Timestamp::from_seconds(START + seconds);
            let record = format!(r#"{{{members},"time":"{time}","version":1}}"#);
            self.1 += 1;
            self.0.observe(self.1, record.as_bytes())
        }

        fn observe_denial(&mut self, seconds: i64, subject: &str) -> Vec<Anomaly> {
            let members = format!(
                r#""caller":{{"issuer":"i","subject":"{subject}","tenant":"north"}},"client_ip":"192.0.2.7","event":"outcome","status":"denied","violation":true"#
            );
            self.observe(seconds, &members)
        }

        fn observe_release(&mut self, seconds: i64, tags: &[&str]) -> Vec<Anomaly> {
            let tags = tags
                .iter()
                .map(|tag| format!(r#"{{"hmac":"{tag}","rows":1}}"#));
            let tags: Vec<_> = tags.collect();
            let members = format!(
                r#""caller":{{"issuer":"i","subject":"anna"}},"data_subjects":[{}],"event":"outcome","status":"ok","violation":false"#,
                tags.join(",")
            );
            self.observe(seconds, &members)
        }
    }

    #[test]
    fn a_burst_of_denials_is_told_once_until_it_has_ebbed() {
        let mut records = RecordSequence::new(3, 100, &[]);
        for (seconds, is_unusual) in [
            (0, false),
            (1, false),
            (2, true),
            (3, false),
            (299, false),
            // By now, all but one of the denials have left the window.
            (590, false),
            (591, true),
        ] {
            let found = records.observe_denial(seconds, "mallory");
            assert_eq!(!found.is_empty(), is_unusual, "{seconds}: {found:?}");
            assert!(
                records
                    .observe_denial(seconds, &format!("other-{seconds}"))
                    .is_empty()
            );
        }
        let mut records = RecordSequence::new(1, 100, &[]);
        let found = records.observe_denial(7, "mallory");
        assert_eq!(
            found,
            [Anomaly {
                kind: AnomalyKind::DenialBurst,
                caller: Some(AnomalyCaller {
                    issuer: "i".to_owned(),
                    subject: "mallory".to_owned(),
                    tenant: "north".to_owned(),
                }),
                client_ip: "192.0.2.7".to_owned(),
                policy: None,
                count: 1,
                threshold: records.0.settings.denials,
                last_sequence: 1,
                time: Timestamp::from_seconds(START + 7),
            }]
        );
    }

    #[test]
    fn counted_refusals_count_by_their_number_and_signing_in_does_not() {
        let mut records = RecordSequence::new(50, 100, &[]);
        let mut refused = |reason: &str, count: usize| {
            let members = format!(
                r#""counts":[{{"client_ip":"192.0.2.9","count":{count},"reason":"{reason}"}}],"event":"refusals""#
            );
            records.observe(0, &members)
        };
        for reason in [
            "token_missing",
            "token_expired",
            "rate_limited",
            "too_large",
        ] {
            assert_eq!(refused(reason, 1_000), []);
        }
        assert_eq!(refused("signature_invalid", 49), []);
        let found = refused("not_permitted", 2);
        assert_eq!((found.len(), found[0].count), (1, 51));
        assert_eq!(found[0].caller, None);
        assert_eq!(found[0].client_ip, "192.0.2.9");
    }

    #[test]
    fn rows_of_many_data_subjects_are_told_however_many_calls_they_took() {
        let mut records = RecordSequence::new(100, 4, &[]);
        assert_eq!(records.observe_release(0, &["a", "b"]), []);
        assert_eq!(records.observe_release(1, &["b", "c"]), []);
        // `a` has left the window. `b` has not, because it was seen again one second later.
        assert_eq!(records.observe_release(3_600 + 1, &["d"]), []);
        let found = records.observe_release(3_600 + 1, &["e", "f", "g"]);
        assert_eq!((found.len(), found[0].count), (1, 6));
        assert_eq!(found[0].kind, AnomalyKind::ManyDataSubjects);
        assert_eq!(records.observe_release(3_600 + 2, &["h"]), []);
        assert_eq!(
            RecordSequence::new(9, 2, &[])
                .observe_release(0, &["a", "b"])
                .len(),
            1
        );
    }

    #[test]
    fn a_use_of_a_watched_policy_is_told_once_a_quarter_of_an_hour() {
        let mut records = RecordSequence::new(100, 100, &["break-glass-*"]);
        let mut used = |seconds: i64, policy: &str, status: &str| {
            let members = format!(
                r#""caller":{{"subject":"anna"}},"decision":{{"id":"d","policies":["doctors","{policy}"]}},"event":"outcome","status":"{status}","violation":false"#
            );
            records.observe(seconds, &members).pop()?.policy
        };
        assert_eq!(used(0, "nurses", "ok"), None);
        let policy = Some("break-glass-reads".to_owned());
        assert_eq!(used(1, "break-glass-reads", "denied"), None);
        assert_eq!(used(1, "break-glass-reads", "ok"), policy);
        assert_eq!(used(899, "break-glass-reads", "ok"), None);
        assert_eq!(
            used(900, "break-glass-calls", "error"),
            Some("break-glass-calls".to_owned())
        );
        assert_eq!(used(899 + 901, "break-glass-reads", "ok"), policy);
    }

    #[test]
    fn a_use_of_a_watched_policy_at_odd_hours_is_told_as_such() {
        // The first record is made at 13:50 UTC, which is 14:50 in Berlin.
        let mut records = RecordSequence::new(100, 100, &["break-glass-*"]);
        let hours = r#"{"from":"07:00","to":"15:00","time_zone":"Europe/Berlin"}"#;
        records.0.settings.usual_hours = Some(serde_json::from_str(hours).unwrap());
        let mut used = |seconds: i64| {
            let members = r#""caller":{"subject":"anna"},"decision":{"policies":["break-glass-reads"]},"event":"outcome","status":"ok","violation":false"#;
            Some(records.observe(seconds, members).pop()?.kind)
        };
        assert_eq!(used(599), Some(AnomalyKind::WatchedPolicy));
        // One second later is outside the usual hours, which is reported although the use within the usual hours was reported
        // already.
        assert_eq!(used(600), Some(AnomalyKind::WatchedPolicyAtOddHours));
        assert_eq!(used(601), None);
    }

    #[test]
    fn what_is_found_does_not_depend_on_where_reading_began() {
        let seconds: Vec<i64> = (0..400).map(|n| n * 37 % 4_000).collect();
        let mut ordered = seconds;
        ordered.sort_unstable();
        let found = |from: usize| {
            let mut records = RecordSequence::new(5, 100, &[]);
            records.1 = from as u64;
            let found = ordered[from..]
                .iter()
                .flat_map(|second| records.observe_denial(*second, "m"));
            let found: Vec<_> = found.map(|anomaly| anomaly.last_sequence).collect();
            found
        };
        let all = found(0);
        assert!(!all.is_empty());
        // The window is 300 seconds, so a detector that starts more than 300 seconds earlier finds the same anomalies.
        let begin = ordered.iter().position(|second| *second > 1_000).unwrap();
        let compared = ordered.iter().position(|second| *second > 1_300).unwrap() as u64;
        let later = |found: Vec<u64>| -> Vec<u64> {
            found
                .into_iter()
                .filter(|sequence| *sequence > compared)
                .collect()
        };
        assert_eq!(later(found(begin)), later(all));
    }

    #[test]
    fn what_a_clock_said_that_stepped_back_hides_nothing() {
        const DAY: i64 = 86_400;
        let mut records = RecordSequence::new(3, 2, &["break-glass-*"]);
        let mut kinds_at = |seconds: i64| {
            let policy = r#""caller":{"subject":"mallory"},"decision":{"policies":["break-glass-reads"]},"event":"outcome","status":"ok","violation":false"#;
            let mut found = records.observe(seconds, policy);
            found.extend(records.observe_release(seconds, &["a", "b"]));
            found.extend((0..3).flat_map(|_| records.observe_denial(seconds, "mallory")));
            found.into_iter().map(|it| it.kind).collect::<Vec<_>>()
        };
        let all = [
            AnomalyKind::WatchedPolicy,
            AnomalyKind::ManyDataSubjects,
            AnomalyKind::DenialBurst,
        ];
        for seconds in [0, DAY, 60, -DAY, 120] {
            assert_eq!(kinds_at(seconds), all, "{seconds}");
            assert_eq!(kinds_at(seconds), [], "{seconds}, on a clock that stands");
        }
        // A clock that was stepped back does not keep the histories of inactive callers in memory either.
        records.observe_denial(DAY, "eve");
        records.observe_denial(120, "mallory");
        let now = Timestamp::from_seconds(START + 120);
        records.0.forget_quiet(now);
        assert_eq!(records.0.histories.len(), 2);
    }

    #[test]
    fn those_who_were_quiet_are_forgotten() {
        let mut records = RecordSequence::new(3, 100, &[]);
        records.observe_denial(0, "mallory");
        records
            .0
            .forget_quiet(Timestamp::from_seconds(START + 3_600));
        assert_eq!(records.0.histories.len(), 1);
        records
            .0
            .forget_quiet(Timestamp::from_seconds(START + 3_601));
        assert!(records.0.histories.is_empty());
        records.observe_denial(0, "mallory");
        while records.1 < FORGET_EVERY {
            assert!(records.0.histories.len() <= 2);
            records.observe_denial(3_601, "eve");
        }
        assert_eq!(records.0.histories.len(), 1);
    }
}
