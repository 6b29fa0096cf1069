//! The client of the audit log: no answer without a receipt.

use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::timeout;
use wardgate_domain::{Ambient, Event, Receipt, Record};
use wardgate_resilience::concurrency::Limiter;
use wardgate_rpc::client::{AuditClient, CallError, LocalAudit};
use wardgate_rpc::{LinkedService, Readiness};

use crate::stages::stage;

/// An append that took longer has failed, unless the configuration says otherwise: with no durable record a call ends
/// within a second. Where appends were measured to be slower, [`AuditClient`] waits longer.
pub(crate) const APPEND_LIMIT: Duration = Duration::from_millis(800);
/// A failure that came sooner leaves time for one more attempt within the same limit.
const SOON: Duration = Duration::from_millis(400);
const _: () =
    assert!(SOON.as_millis() < APPEND_LIMIT.as_millis() && APPEND_LIMIT.as_millis() < 1_000);

/// Appends records to the audit log.
#[derive(Debug)]
pub(crate) struct AuditLog {
    audit: AuditClient,
    readiness: watch::Receiver<Readiness>,
    /// The limiter learns from the latency of the audit log.
    limiter: Limiter,
    ambient: Ambient,
}

impl AuditLog {
    pub(crate) fn new(
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

    /// Whether a record could be made durable now, as last heard.
    pub(crate) fn is_ready(&self) -> bool {
        self.readiness.borrow().is_ready()
    }

    /// Makes `event` durable.
    pub(crate) async fn append(&self, event: Event) -> Result<Receipt, CallError> {
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
