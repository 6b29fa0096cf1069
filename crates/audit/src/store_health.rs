//! Supervision of writes: tracks whether the store accepts records in time.

use std::fmt::Display;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use metrics::{counter, gauge};
use tokio::sync::watch;
use tokio::time::timeout;
use wardgate_rpc::{LatencyLimit, Readiness};
use wardgate_telemetry::names;

use crate::store::{Address, LONGEST_WRITE};

/// The readiness of the store, and the time limit of its writes.
pub(crate) struct StoreHealth {
    pub(crate) address: Address,
    pub(crate) limit: Arc<LatencyLimit>,
    pub(crate) readiness: watch::Sender<Readiness>,
}

impl StoreHealth {
    /// Returns the result of `write`, or `None` if it failed. A write that takes longer than the measured limit makes the store
    /// not ready, but continues: when it succeeds, a slow store is ready again and has a longer limit. A write is abandoned
    /// after [`LONGEST_WRITE`].
    pub(crate) async fn supervise<T, E: Display>(
        &self,
        write: impl Future<Output = Result<T, E>>,
    ) -> Option<T> {
        let started = Instant::now();
        let mut write = pin!(write);
        let limit = self.limit.current();
        let ended = if let Ok(ended) = timeout(limit, &mut write).await {
            Some(ended)
        } else {
            if self.readiness.borrow().is_ready() {
                self.report_failure(&format!("a write has taken {} ms", limit.as_millis()));
            }
            timeout(LONGEST_WRITE.saturating_sub(limit), write)
                .await
                .ok()
        };
        match ended {
            Some(Ok(written)) => {
                let took = started.elapsed();
                self.limit.observe(took);
                gauge!(names::AUDIT_WRITE_LIMIT).set(self.limit.current());
                self.report_success(took);
                return Some(written);
            }
            Some(Err(error)) => self.report_failure(&error.to_string()),
            None => self.report_failure("a write exceeded its time limit"),
        }
        None
    }

    fn report_success(&self, took: Duration) {
        if !self.readiness.borrow().is_ready() {
            let took_ms = took.as_millis();
            let limit_ms = self.limit.current().as_millis();
            tracing::info!(took_ms, limit_ms, "the audit store accepts records again");
            self.readiness.send_replace(Readiness::Ready);
        }
    }

    pub(crate) fn report_failure(&self, cause: &str) {
        counter!(names::AUDIT_STORE_FAILURES).increment(1);
        let failed = Readiness::NotReady(format!(
            "the audit store {} does not accept records: {cause}",
            self.address
        ));
        // Each cause is logged once. The cause changes when a write that hangs is finally abandoned.
        if *self.readiness.borrow() != failed {
            tracing::error!(
                cause,
                "the audit store does not accept records; calls are refused until it does"
            );
        }
        self.readiness.send_replace(failed);
    }
}
