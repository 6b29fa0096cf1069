//! The gateway's end of the record: no answer without a receipt.

use std::time::{Duration, Instant};

use tokio::sync::watch;
use wardgate_concurrency::Limiter;
use wardgate_domain::{Ambient, Event, Receipt, Record};
use wardgate_rpc::client::{AuditClient, CallError};
use wardgate_rpc::{Neighbour, Readiness};

use crate::stages::stage;

/// An append that took longer has failed: with no durable record a call ends within a second. Where appends were measured
/// to be slower, [`AuditClient`] waits longer.
const LIMIT: Duration = Duration::from_millis(800);
/// A failure that came sooner leaves time for one more attempt within that second.
const SOON: Duration = Duration::from_millis(100);
const _: () = assert!(LIMIT.as_millis() + SOON.as_millis() < 1_000);

/// Appends to the record.
#[derive(Debug)]
pub(crate) struct Trail {
    audit: AuditClient,
    readiness: watch::Receiver<Readiness>,
    /// What the record can take is part of what the gateway can.
    limiter: Limiter,
    ambient: Ambient,
}

impl Trail {
    pub(crate) fn new(audit: Neighbour, limiter: Limiter, ambient: Ambient) -> Self {
        Self {
            audit: AuditClient::new(audit.link, LIMIT),
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
        let mut appended = self.audit.append(&record, false).await;
        if appended.is_err() && started.elapsed() < SOON && self.is_ready() {
            appended = self.audit.append(&record, true).await;
        }
        stage("record", started.elapsed());
        self.limiter.observe(started.elapsed());
        if let Err(error) = &appended {
            tracing::error!(%error, "a record could not be made durable");
        }
        appended
    }
}
