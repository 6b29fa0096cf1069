//! Refusals that are counted and recorded once a second: requests that never became a call, and refused calls of a
//! caller that had many of them recently.
//!
//! With a durable record for each, a flood of bad tokens or a single caller could cause any number of disk flushes and
//! fill the audit log. Without any record, the flood would go unnoticed.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use metrics::counter;
use wardgate_domain::{
    Ambient, CallFacts, Event, RefusalCount, Refusals as Window, Status, Timestamp, person,
};
use wardgate_resilience::{Rate, RateLimiter};
use wardgate_telemetry::names;

use crate::audit_log::AuditLog;

/// Maximum number of kinds that are counted separately in one window. Further ones are counted by their reason only.
const KINDS: usize = 256;

/// The reason, the client's address and the subject of a refusal.
type RefusalKey = (&'static str, String, String);

/// Number of refused calls of one caller that are recorded individually, at once and in each minute.
const RECORDED_PER_MINUTE: u32 = 60;

/// Counts refused requests.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    counts: Mutex<RefusalCounts>,
    record_rates: RateLimiter,
}

#[derive(Debug, Default)]
struct RefusalCounts {
    by_kind: BTreeMap<RefusalKey, u64>,
    /// The start of the first window that could not be recorded, or `None` if all were recorded.
    since: Option<Timestamp>,
}

impl RefusalCounts {
    fn add(&mut self, kind: RefusalKey, count: u64) {
        let full = self.by_kind.len() >= KINDS && !self.by_kind.contains_key(&kind);
        let kind = if full {
            (kind.0, String::new(), String::new())
        } else {
            kind
        };
        *self.by_kind.entry(kind).or_default() += count;
    }
}

impl Refusals {
    /// Counts a refusal. `subject` is empty if the token itself was refused.
    pub(crate) fn count(&self, reason: &'static str, client_ip: &str, subject: &str) {
        counter!(names::REFUSED_REQUESTS, "reason" => reason).increment(1);
        let kind = (reason, client_ip.to_owned(), subject.to_owned());
        self.counts().add(kind, 1);
    }

    /// Returns whether a call with this status is only counted, and counts it in that case. This applies to the refused
    /// calls of a caller who has used up the number of individual records.
    pub(crate) fn folds(&self, call: &CallFacts, status: Status) -> bool {
        let reason = match status {
            Status::Denied | Status::UnknownTool | Status::InvalidArguments => status.as_str(),
            Status::Ok | Status::Error | Status::Timeout | Status::Cancelled | Status::Unknown => {
                return false;
            }
        };
        let caller = person(&call.tenant, &call.issuer, &call.subject);
        let is_spent = self
            .record_rates
            .try_acquire_call(caller, Rate::per_minute(RECORDED_PER_MINUTE))
            .is_err();
        if is_spent {
            self.count(reason, &call.client_ip, &call.subject);
        }
        is_spent
    }

    fn counts(&self) -> MutexGuard<'_, RefusalCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the refusals since the last time. Those that cannot be recorded now stay counted.
    pub(crate) async fn flush(&self, audit_log: &AuditLog, ambient: &Ambient) {
        let counts = std::mem::take(&mut *self.counts());
        if counts.by_kind.is_empty() {
            return;
        }
        let window_start = counts
            .since
            .unwrap_or_else(|| ambient.now().minus(INTERVAL));
        let mut rest = counts.by_kind.into_iter().peekable();
        while rest.peek().is_some() {
            let some: Vec<_> = rest.by_ref().take(KINDS_A_RECORD).collect();
            let window = Window {
                window_start,
                counts: some
                    .iter()
                    .map(|((reason, client_ip, subject), count)| RefusalCount {
                        reason: (*reason).to_owned(),
                        client_ip: client_ip.clone(),
                        subject: subject.clone(),
                        count: *count,
                    })
                    .collect(),
            };
            if audit_log.append(Event::Refusals(window)).await.is_err() {
                let mut current = self.counts();
                current.since = Some(window_start);
                for (kind, count) in some.into_iter().chain(rest) {
                    current.add(kind, count);
                }
                return;
            }
        }
    }
}

/// Maximum number of kinds in one record. With the longest subjects they still fit into its 65,535 bytes.
const KINDS_A_RECORD: usize = 64;

/// Length of a counting window.
pub(crate) const INTERVAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use wardgate_domain::CallId;

    use super::*;

    fn call(subject: &str) -> CallFacts {
        let caller = wardgate_testkit::caller(subject, &[]);
        let id = CallId::new(&Ambient::system());
        CallFacts::without_tool(id, &caller, "192.0.2.7".to_owned(), "2026-07-28", b"{}")
    }

    #[tokio::test(start_paused = true)]
    async fn of_a_caller_who_is_refused_again_and_again_one_call_a_second_is_recorded_by_itself() {
        let refusals = Refusals::default();
        let recorded = |calls: u32, subject: &str| {
            let call = call(subject);
            let folded = (0..calls).filter(|_| refusals.folds(&call, Status::Denied));
            calls - u32::try_from(folded.count()).unwrap()
        };
        assert_eq!(recorded(1_000, "mallory"), RECORDED_PER_MINUTE);
        assert_eq!(recorded(5, "ada"), 5, "others are not concerned");
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(recorded(1_000, "mallory"), 10);
        let mallory = call("mallory");
        assert!(
            !refusals.folds(&mallory, Status::Ok),
            "what ran is recorded"
        );
        assert!(!refusals.folds(&mallory, Status::Error));

        let counted: u64 = refusals.counts().by_kind.values().sum();
        assert_eq!(counted, 2_000 - 70, "none is lost");
        let kind = ("denied", "192.0.2.7".to_owned(), "mallory".to_owned());
        assert_eq!(refusals.counts().by_kind.keys().next(), Some(&kind));
    }
}
