//! Keeps calls away from a replica that only fails, and lets one at a time try whether it works again.

use std::time::Duration;

use tokio::time::Instant;

/// So many failures in a row eject.
const FAILURES: u32 = 5;
/// For how long the first time; it doubles with every probe that fails.
const FIRST: Duration = Duration::from_secs(1);
/// And never longer than this.
const LONGEST: Duration = Duration::from_secs(30);

/// How the calls of one replica go.
#[derive(Debug, Default)]
pub(super) struct Ejection {
    /// In a row.
    failures: u32,
    /// Probes that failed.
    failed_probes: u32,
    until: Option<Instant>,
    probing: bool,
}

impl Ejection {
    /// Whether calls are kept away.
    pub(super) fn is_ejected(&self) -> bool {
        self.until.is_some()
    }

    /// Whether this call is the one that tries whether the replica works again.
    pub(super) fn probe(&mut self, now: Instant) -> bool {
        let due = !self.probing && self.until.is_some_and(|until| until <= now);
        self.probing |= due;
        due
    }

    /// A call was answered; true if that ends an ejection. Any answer will do: also one that began before the ejection
    /// shows that it works.
    pub(super) fn succeeded(&mut self) -> bool {
        std::mem::take(self).is_ejected()
    }

    /// A call failed; true if that ejects. Of an ejected replica only the failure of the `probe` counts.
    pub(super) fn failed(&mut self, now: Instant, probe: bool) -> bool {
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

    /// The probe ended without an answer and without a failure.
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

    fn ejected(now: Instant) -> Ejection {
        let mut ejection = Ejection::default();
        for _ in 1..FAILURES {
            assert!(!ejection.failed(now, false));
        }
        assert!(!ejection.is_ejected());
        assert!(ejection.failed(now, false));
        ejection
    }

    #[test]
    fn failures_in_a_row_eject_and_an_answer_between_them_does_not() {
        let now = Instant::now();
        assert!(ejected(now).is_ejected());
        let mut ejection = Ejection::default();
        for _ in 0..10 {
            for _ in 1..FAILURES {
                ejection.failed(now, false);
            }
            ejection.succeeded();
        }
        assert!(!ejection.is_ejected());
    }

    #[test]
    fn one_call_at_a_time_probes_and_each_that_fails_doubles_the_pause() {
        let mut now = Instant::now();
        let mut ejection = ejected(now);
        for seconds in [1, 2, 4, 8, 16, 30, 30] {
            let pause = Duration::from_secs(seconds);
            assert!(!ejection.probe(now + pause - Duration::from_millis(1)));
            now += pause;
            assert!(ejection.probe(now), "after {seconds} s");
            assert!(!ejection.probe(now), "a second probe at once");
            // Calls from before the ejection say nothing new.
            ejection.failed(now, false);
            ejection.failed(now, true);
        }
        now += LONGEST;
        assert!(ejection.probe(now));
        ejection.gave_up();
        assert!(ejection.probe(now));
        assert!(ejection.succeeded());
        assert!(!ejection.is_ejected());
    }
}
