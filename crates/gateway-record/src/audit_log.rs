//! The client of the audit log, which makes records durable before anything is released.

use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::timeout;
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
        let record = Record {
            time: self.ambient.now(),
            event,
        };
        let started = Instant::now();
        let limit = self.audit.append_limit();
        let mut appended = self.audit.append(&record, false).await;
        if appended.is_err() && started.elapsed() < SOON && self.is_ready() {
            let left = limit.saturating_sub(started.elapsed());
            let again = timeout(left, self.audit.append(&record, true)).await;
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
