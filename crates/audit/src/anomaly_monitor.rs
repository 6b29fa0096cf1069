//! The background task that searches the audit log for anomalies. With several replicas, one of them searches at a time.
//!
//! ```text
//!   claim ──▶ earlier records ──▶ page ──▶ detector ──anomalies──▶ record, metric, log ──▶ advance ──▶ next page
//!             (as far back as the longest window)
//! ```
//!
//! The anomalies depend on the records alone, and the record of an anomaly contains the time and the sequence number of the
//! record that revealed it. A page that is read again after an interruption therefore adds no duplicates. Records that were
//! modified outside the audit service are logged, and the search continues after them.

use std::borrow::Cow;
use std::time::Duration;

use metrics::counter;
use serde::Deserialize;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use wardgate_audit_export::{
    CursorClaim, FeedError, FeedPage, RecordFeed, SourceRecord, StartPosition,
};
use wardgate_domain::{Ambient, Timestamp};
use wardgate_telemetry::names;

use crate::Error;
use crate::anomaly::{Anomaly, AnomalyDetector, AnomalyKind, AnomalySettings};
use crate::canonical::RecordEntry;
use crate::exports::StoreFeed;

/// Name of the cursor that stores how far the audit log was searched. An export cannot have this name.
const CURSOR: &str = "anomaly_detection";

/// Duration of a claim that is not renewed.
const CLAIM: Duration = Duration::from_secs(30);

/// Interval between renewals of the claim while there are no new records, and between attempts to take a claim that another
/// replica holds.
const RENEWAL: Duration = Duration::from_secs(5);

/// Interval during which new records are gathered before they are read.
const GATHER: Duration = Duration::from_millis(500);

/// Number of records of one page.
const PAGE: u64 = 256;

/// Searches the audit log for anomalies.
pub(crate) struct AnomalyMonitor {
    feed: StoreFeed,
    settings: AnomalySettings,
    claim: CursorClaim,
    ambient: Ambient,
    stop: CancellationToken,
}

impl AnomalyMonitor {
    /// Creates the monitor of a store. `is_alone` says that no other process uses the store.
    pub(crate) fn new(
        feed: StoreFeed,
        settings: AnomalySettings,
        is_alone: bool,
        ambient: Ambient,
        stop: CancellationToken,
    ) -> Self {
        Self {
            feed,
            settings,
            claim: CursorClaim {
                export: CURSOR.to_owned(),
                holder: ambient.random_text(),
                lasting: CLAIM,
                start: StartPosition::Now,
                is_alone,
            },
            ambient,
            stop,
        }
    }

    /// Searches until the cancellation token is cancelled. `size` is notified of new records.
    pub(crate) async fn run(mut self, mut size: watch::Receiver<u64>) {
        for kind in AnomalyKind::ALL {
            counter!(names::AUDIT_ANOMALIES, "kind" => kind.as_str()).increment(0);
        }
        let stop = self.stop.clone();
        let mut is_told = false;
        while let Some(searched) = stop.run_until_cancelled(self.search(&mut size)).await {
            match searched {
                Ok(()) => is_told = false,
                Err(error) if is_told => {
                    tracing::debug!(%error, "the anomaly detection failed and will be retried");
                }
                Err(error) => {
                    is_told = true;
                    tracing::warn!(%error, "the anomaly detection waits for the audit store");
                }
            }
            if stop.run_until_cancelled(sleep(RENEWAL)).await.is_none() {
                break;
            }
        }
        self.feed.release(self.claim).await;
    }

    /// Searches until another replica holds the claim.
    async fn search(&mut self, size: &mut watch::Receiver<u64>) -> Result<(), FeedError> {
        let Some(mut position) = self.feed.claim(self.claim.clone()).await? else {
            return Ok(());
        };
        // Another process that holds the claim from now on is alive.
        self.claim.is_alone = false;
        let mut detector = self.detector_at(position).await?;
        loop {
            size.mark_unchanged();
            let page = self.feed.read_records(position, PAGE).await?;
            if page.next == position {
                if let Ok(Ok(())) = timeout(RENEWAL, size.changed()).await {
                    sleep(GATHER).await;
                } else if self.feed.claim(self.claim.clone()).await? != Some(position) {
                    return Ok(());
                }
                continue;
            }
            if let Some(sequence) = page.first_damaged() {
                tracing::error!(
                    sequence,
                    damaged = page.damaged,
                    below = page.next,
                    "records that were modified outside the audit service, or cannot be read, are not searched for anomalies"
                );
            }
            for anomaly in observe(&mut detector, &page) {
                self.put_on_record(&anomaly).await?;
            }
            let claim = self.claim.clone();
            if !self.feed.advance(claim, position, page.next).await? {
                return Ok(());
            }
            position = page.next;
        }
    }

    /// Returns a detector that has seen the records below `position` that can matter. It sees them in the order of their
    /// sequence numbers, as before an interruption, because a clock that was stepped can give their times another order.
    async fn detector_at(&self, position: u64) -> Result<AnomalyDetector, FeedError> {
        let mut detector = AnomalyDetector::new(self.settings.clone());
        let time = match self.feed.read_page(position, 1).await {
            // The search waits for the record, or continues after it.
            Err(error) if error.is_corruption() => None,
            next => next?.records.first().and_then(time_of),
        };
        let time = time.unwrap_or_else(|| self.ambient.now());
        let window = self.settings.longest_window();
        let window = time.minus(window)..time.plus(window);
        let first = match self.feed.reader.first_within(window, position).await {
            Err(error) if error.is_corruption() => {
                tracing::error!(%error, position, "earlier records cannot be found for the anomaly detection, which begins without them");
                None
            }
            first => first?,
        };
        let mut earlier = first.unwrap_or(position);
        let mut renewed = Instant::now();
        while earlier < position {
            let count = PAGE.min(position - earlier);
            match self.feed.read_page(earlier, count).await {
                Err(error) if error.is_corruption() => {
                    tracing::error!(%error, sequence = earlier, count, "earlier records cannot be read for the anomaly detection");
                    earlier += count;
                }
                page => {
                    let page = page?;
                    observe(&mut detector, &page);
                    earlier = page.next;
                }
            }
            if renewed.elapsed() >= RENEWAL {
                renewed = Instant::now();
                self.feed.claim(self.claim.clone()).await?;
            }
        }
        Ok(detector)
    }

    async fn put_on_record(&self, anomaly: &Anomaly) -> Result<(), FeedError> {
        let entry = RecordEntry::of_anomaly(anomaly).map_err(Error::from)?;
        self.feed.appends.append(entry, true).await?;
        let kind = anomaly.kind.as_str();
        counter!(names::AUDIT_ANOMALIES, "kind" => kind).increment(1);
        tracing::warn!(
            anomaly = kind,
            count = anomaly.count,
            sequence = anomaly.last_sequence,
            "unusual behaviour of a caller was recorded"
        );
        Ok(())
    }
}

/// Returns the time of a record.
fn time_of(record: &SourceRecord) -> Option<Timestamp> {
    #[derive(Deserialize)]
    struct RecordTime<'a> {
        #[serde(borrow)]
        time: Cow<'a, str>,
    }
    let made: RecordTime<'_> = serde_json::from_slice(&record.canonical).ok()?;
    made.time.parse().ok()
}

fn observe(detector: &mut AnomalyDetector, page: &FeedPage) -> Vec<Anomaly> {
    let records = page.records.iter();
    let found = records.flat_map(|record| detector.observe(record.sequence, &record.canonical));
    found.collect()
}
