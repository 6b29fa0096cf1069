//! Outlier ejection: keeps calls away from a replica whose calls fail, and probes whether it works again.

use std::time::Duration;

use tokio::time::Instant;

/// Number of consecutive failures that eject a replica.
const FAILURES: u32 = 5;
/// Duration of the first ejection. It doubles with every failed probe.
const FIRST: Duration = Duration::from_secs(1);
/// Maximum duration of an ejection.
const LONGEST: Duration = Duration::from_secs(30);

/// The outcomes of the calls of one replica.
#[derive(Debug, Default)]
pub(super) struct Ejection {
    /// Number of consecutive failures.
    failures: u32,
    /// Number of failed probes.
    failed_probes: u32,
    until: Option<Instant>,
    probing: bool,
}

impl Ejection {
    /// Returns whether the replica is ejected.
    pub(super) fn is_ejected(&self) -> bool {
        self.until.is_some()
    }

    /// Returns whether the current call has to probe the replica.
    pub(super) fn probe(&mut self, now: Instant) -> bool {
        let due = !self.probing && self.until.is_some_and(|until| until <= now);
        self.probing |= due;
        due
    }

    /// Records a successful call, and returns whether it ended an ejection. Any response ends it, even one of a call that began
    /// before the ejection, because it shows that the replica works.
    pub(super) fn record_success(&mut self) -> bool {
        std::mem::take(self).is_ejected()
    }

    /// Records a failed call, and returns whether it ejected the replica. While the replica is ejected, only
    /// failures of probes count.
    pub(super) fn record_failure(&mut self, now: Instant, probe: bool) -> bool {
        if self.is_ejected() {
            if probe {
                self.failed_probes += 1;
                self.eject(now);
            }
            return false;
        }
        self.failures += 1;
        if self.failures < FAILURES {
            return false;
        }
        self.eject(now);
        true
    }

    /// Records that results for many callers are late, and returns whether that ejected the replica.
    pub(super) fn fell_silent(&mut self, now: Instant, probe: bool) -> bool {
        self.failures = FAILURES;
        self.record_failure(now, probe)
    }

    /// Records that the probe ended without a response and without a failure.
    pub(super) fn gave_up(&mut self) {
        self.probing = false;
    }

    fn eject(&mut self, now: Instant) {
        let pause = FIRST * 2_u32.pow(self.failed_probes.min(5));
        self.until = Some(now + pause.min(LONGEST));
        self.probing = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create_ejection(now: Instant) -> Ejection {
        let mut ejection = Ejection::default();
        for _ in 1..FAILURES {
            assert!(!ejection.record_failure(now, false));
        }
        assert!(!ejection.is_ejected());
        assert!(ejection.record_failure(now, false));
        ejection
    }

    #[test]
    fn failures_in_a_row_eject_and_an_answer_between_them_does_not() {
        let now = Instant::now();
        assert!(create_ejection(now).is_ejected());
        let mut ejection = Ejection::default();
        for _ in 0..10 {
            for _ in 1..FAILURES {
                ejection.record_failure(now, false);
            }
            ejection.record_success();
        }
        assert!(!ejection.is_ejected());
    }

    #[test]
    fn one_call_at_a_time_probes_and_each_that_fails_doubles_the_pause() {
        let mut now = Instant::now();
        let mut ejection = create_ejection(now);
        for seconds in [1, 2, 4, 8, 16, 30, 30] {
            let pause = Duration::from_secs(seconds);
            assert!(!ejection.probe(now + pause - Duration::from_millis(1)));
            now += pause;
            assert!(ejection.probe(now), "after {seconds} s");
            assert!(!ejection.probe(now), "a second probe at once");
            // Failures of calls that began before the ejection do not count.
            ejection.record_failure(now, false);
            ejection.record_failure(now, true);
        }
        now += LONGEST;
        assert!(ejection.probe(now));
        ejection.gave_up();
        assert!(ejection.probe(now));
        assert!(ejection.record_success());
        assert!(!ejection.is_ejected());
    }

    #[test]
    fn a_probe_that_falls_silent_is_repeated_later() {
        let start = Instant::now();
        let mut ejection = Ejection::default();
        assert!(ejection.fell_silent(start, false));
        let first = start + FIRST;
        assert!(ejection.probe(first));
        assert!(!ejection.fell_silent(first, true));
        assert!(!ejection.probe(first));
        assert!(ejection.probe(first + 2 * FIRST));
        assert!(ejection.record_success());
        assert!(!ejection.is_ejected());
    }
}
