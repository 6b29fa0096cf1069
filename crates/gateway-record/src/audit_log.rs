//! The client of the audit log, which makes records durable before anything is released.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use wardgate_domain::{Ambient, Event, Receipt, Record};
use wardgate_resilience::concurrency::Limiter;
use wardgate_rpc::client::{AuditClient, CallError, LocalAudit};
use wardgate_rpc::{LinkedService, Readiness};

use crate::stages::stage;

/// Default time limit of an append, after which it counts as failed, so that a call that cannot be recorded ends within
/// a second. If appends were measured to be slower, [`AuditClient`] waits longer.
pub const APPEND_LIMIT: Duration = Duration::from_millis(800);
/// Time within which a failed append is repeated once. The repetition fits into the limit of the append.
const SOON: Duration = Duration::from_millis(400);
const _: () =
    assert!(SOON.as_millis() < APPEND_LIMIT.as_millis() && APPEND_LIMIT.as_millis() < 1_000);

/// Appends records to the audit log.
#[derive(Debug)]
pub struct AuditLog {
    audit: AuditClient,
    readiness: watch::Receiver<Readiness>,
    /// The concurrency limiter, which adapts to the latency of the audit log.
    limiter: Limiter,
    ambient: Ambient,
}

impl AuditLog {
    /// Creates a log that appends to `audit`. `limit` is the time limit of an append, unless appends were measured to
    /// be slower.
    pub fn new(
        audit: LinkedService<LocalAudit>,
        limit: Duration,
        limiter: Limiter,
        ambient: Ambient,
    ) -> Self {
        Self {
            audit: AuditClient::new(audit.link, limit),
            readiness: audit.readiness,
            limiter,
            ambient,
        }
    }

    /// Returns whether the audit service could make a record durable, according to its last report.
    pub fn is_ready(&self) -> bool {
        self.readiness.borrow().is_ready()
    }

    /// Appends `event`, and returns its receipt once it is durable.
    pub async fn append(&self, event: Event) -> Result<Receipt, CallError> {
        let record = Arc::new(Record {
            time: self.ambient.now(),
            event,
        });
        let started = Instant::now();
        let limit = self.audit.append_limit();
        let mut appended = self.audit.append_shared(&record, false).await;
        if appended.is_err() && started.elapsed() < SOON && self.is_ready() {
            let left = limit.saturating_sub(started.elapsed());
            let again = timeout(left, self.audit.append_shared(&record, true)).await;
            appended = again.unwrap_or(appended);
        }
        stage("record", started.elapsed());
        self.limiter.observe(started.elapsed());
        if let Err(error) = &appended {
            tracing::error!(%error, "a record could not be made durable");
        }
        appended
    }
}

#[cfg(test)]
mod tests {
    use wardgate_domain::{CallFacts, CallId};
    use wardgate_resilience::concurrency::Config;
    use wardgate_rpc::Peer;
    use wardgate_testkit::{AppendBehavior, FakeAudit};

    use super::*;

    fn intent() -> Event {
        let caller = wardgate_testkit::caller("ada", &[]);
        let (id, address) = (CallId::new(&Ambient::system()), "192.0.2.7".to_owned());
        let call = CallFacts::without_tool(id, &caller, address, "2026-07-28", b"{}");
        Event::Intent(call)
    }

    #[tokio::test(start_paused = true)]
    async fn a5_an_append_that_cannot_be_made_durable_ends_within_a_second() {
        let audit = FakeAudit::new(Peer::Gateway);
        let limiter = Limiter::new("gateway", Config::default());
        let log = AuditLog::new(audit.link(), APPEND_LIMIT, limiter, Ambient::system());
        let fail_after = |millis| AppendBehavior::FailAfter(Duration::from_millis(millis));
        for attempts in [
            vec![AppendBehavior::Hang],
            vec![AppendBehavior::Fail, AppendBehavior::Hang],
            vec![fail_after(300), AppendBehavior::Hang],
            // There is no time for a second attempt.
            vec![fail_after(600)],
        ] {
            let before = audit.attempts.count();
            let expected = attempts.len();
            audit.next(attempts);
            let started = Instant::now();
            assert!(log.append(intent()).await.is_err());
            assert!(
                started.elapsed() <= Duration::from_secs(1),
                "{:?}",
                started.elapsed()
            );
            assert_eq!(audit.attempts.count() - before, expected);
        }
    }
}
