//! Exports the record to one security tool while the service runs.
//!
//! ```text
//!   claim ──▶ page ──▶ events ──▶ send ──taken──▶ advance ──▶ next page, or wait for records
//!     ▲                             └ not taken: retry after a pause, renewing the claim
//!     └── claimed by another replica: try again after a pause
//! ```

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use metrics::{counter, gauge};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use wardgate_domain::{Ambient, Timestamp};
use wardgate_resilience::RetrySettings;
use wardgate_telemetry::{as_float, names};

use crate::Error;
use crate::conversion::convert;
use crate::event::ExportEvent;
use crate::feed::{CursorClaim, FeedError, FeedPage, RecordFeed};
use crate::settings::ExportSettings;
use crate::transport::{ExportTransport, SEND_LIMIT};

/// Duration of a claim that is not renewed. Longer than reading, sending and confirming a batch may take.
const CLAIM: Duration = Duration::from_secs(3 * SEND_LIMIT.as_secs());

/// Interval between two renewals of a claim while there is nothing to send, and between two attempts to take a claim of another
/// replica.
const RENEWAL: Duration = Duration::from_secs(5);

/// How long new records are gathered before they are sent.
const GATHER: Duration = Duration::from_millis(500);

/// Maximum number of records of one page.
const PAGE: u64 = 256;

/// Maximum size of a batch in bytes, unless a single event is larger.
const MAX_BATCH: usize = 512 * 1_024;

/// The log whose records are exported.
#[derive(Debug, Clone)]
pub struct ExportLog {
    /// The name of the log, with which the id of each event begins.
    pub origin: String,
    /// Whether no other process uses the store.
    pub is_alone: bool,
}

/// An exporter of the record to one security tool.
#[derive(Debug)]
pub struct RecordExporter<F> {
    settings: ExportSettings,
    transport: ExportTransport,
    feed: Arc<F>,
    log: ExportLog,
    claim: CursorClaim,
    retry: RetrySettings,
    /// What is left to export, or `None` if another process has the claim or no claim was attempted yet.
    left: Option<RecordsLeft>,
    ambient: Ambient,
    stop: CancellationToken,
}

/// What is known to be left to export.
#[derive(Debug)]
struct RecordsLeft {
    /// The position of the next record.
    first: u64,
    /// The number of records in the log.
    size: u64,
    /// The time of the next record, or when the last record was sent or none was left.
    since: Timestamp,
}

/// The reason why an export pauses.
enum ExportInterruption {
    /// Another process has the claim.
    Claimed,
    /// The record cannot be read, or the position cannot be stored.
    Feed(FeedError),
    /// The service shuts down.
    Stopped,
}

impl From<FeedError> for ExportInterruption {
    fn from(error: FeedError) -> Self {
        Self::Feed(error)
    }
}

/// A batch of events, and the position after its last record.
struct EventBatch {
    events: Vec<ExportEvent>,
    end: u64,
    /// The time of the first record.
    oldest: Option<Timestamp>,
}

impl<F: RecordFeed> RecordExporter<F> {
    /// Creates an exporter without connecting to the tool.
    pub fn open(
        settings: ExportSettings,
        feed: Arc<F>,
        log: ExportLog,
        ambient: Ambient,
        stop: CancellationToken,
    ) -> Result<Self, Error> {
        Ok(Self {
            transport: ExportTransport::open(&settings)?,
            claim: CursorClaim {
                export: settings.name.clone(),
                holder: ambient.random_text(),
                lasting: CLAIM,
                start: settings.start,
                is_alone: log.is_alone,
            },
            retry: RetrySettings {
                attempts: u32::MAX,
                first: Duration::from_secs(1),
                longest: SEND_LIMIT,
            },
            settings,
            feed,
            log,
            left: None,
            ambient,
            stop,
        })
    }

    /// Exports until the exporter is stopped. `size` announces new records.
    pub async fn run(mut self, mut size: watch::Receiver<u64>) {
        let name = self.settings.name.clone();
        let mut is_told = false;
        loop {
            match self.export(&mut size).await {
                ExportInterruption::Stopped => break,
                ExportInterruption::Claimed => {
                    self.left = None;
                    self.show_lag(0, self.ambient.now());
                }
                ExportInterruption::Feed(error) => {
                    self.count_failures("store", 1);
                    let announced = *size.borrow();
                    if let Some(left) = &self.left {
                        let known = left.size.max(announced);
                        self.show_lag(known.saturating_sub(left.first), left.since);
                    }
                    if is_told {
                        tracing::debug!(%error, export = name, "an export failed and will be retried");
                    } else {
                        tracing::warn!(%error, export = name, "an export waits for the audit store");
                    }
                    is_told = true;
                }
            }
            if self.pause(RENEWAL).await.is_err() {
                break;
            }
        }
        self.feed.release(self.claim).await;
    }

    async fn export(&mut self, size: &mut watch::Receiver<u64>) -> ExportInterruption {
        match self.try_export(size).await {
            Ok(never) => match never {},
            Err(interruption) => interruption,
        }
    }

    async fn try_export(
        &mut self,
        size: &mut watch::Receiver<u64>,
    ) -> Result<Infallible, ExportInterruption> {
        let mut position = self.renew().await?;
        // From now on, a claim of another process belongs to a live process.
        self.claim.is_alone = false;
        let announced = *size.borrow();
        if self.left.is_none() {
            self.left = Some(self.left_from(position, announced, None));
        }
        loop {
            size.mark_unchanged();
            let page = self.feed.read_records(position, PAGE).await?;
            if let Some(sequence) = page.first_damaged() {
                self.count_failures("damaged", page.damaged);
                tracing::error!(
                    export = self.settings.name,
                    sequence,
                    below = page.next,
                    damaged = page.damaged,
                    "records that were modified outside the audit service, or cannot be read, are not exported"
                );
            }
            if page.next == position {
                self.show_left(position, position, None);
                self.wait_for_records(size).await?;
                position = self.renew().await?;
                continue;
            }
            let mut first = page.first;
            for batch in self.batches(&page) {
                if self.stop.is_cancelled() {
                    return Err(ExportInterruption::Stopped);
                }
                self.show_left(first, page.size, batch.oldest);
                self.deliver(&batch, first).await?;
                first = batch.end;
                if !self
                    .feed
                    .advance(self.claim.clone(), position, batch.end)
                    .await?
                {
                    return Err(ExportInterruption::Claimed);
                }
                position = batch.end;
                self.left = Some(self.left_from(position, page.size, None));
            }
        }
    }

    /// Sends a batch, whose first record is `first`, and retries until the tool takes it.
    async fn deliver(&mut self, batch: &EventBatch, first: u64) -> Result<(), ExportInterruption> {
        if batch.events.is_empty() {
            return Ok(());
        }
        let name = self.settings.name.clone();
        let mut made = 0_u32;
        loop {
            // Sending a batch is not interrupted, because the tool may already have received it.
            let error = match self.transport.send(&batch.events, &self.ambient).await {
                Ok(rejected) => {
                    let count = (batch.events.len() as u64).saturating_sub(rejected);
                    counter!(names::AUDIT_EXPORT_SENT, "export" => name.clone()).increment(count);
                    if rejected > 0 {
                        self.count_failures("rejected", rejected);
                        tracing::warn!(
                            export = name,
                            rejected,
                            "a security tool rejected some of the records that it received"
                        );
                    }
                    if made > 0 {
                        tracing::info!(export = name, "an export works again");
                    }
                    return Ok(());
                }
                Err(error) => error,
            };
            self.count_failures(error.reason(), 1);
            if made == 0 {
                tracing::warn!(%error, export = name, "a security tool did not accept a batch of records; the batch is sent again");
            }
            made = made.saturating_add(1);
            let pause = self.retry.pause(made, error.asked_for(), &self.ambient);
            self.wait(pause.unwrap_or(SEND_LIMIT)).await?;
            let size = self.feed.size().await?;
            self.show_left(first, size, batch.oldest);
        }
    }

    /// Waits for the duration `rest` and renews the claim in the meantime.
    async fn wait(&self, mut rest: Duration) -> Result<(), ExportInterruption> {
        loop {
            let step = rest.min(RENEWAL);
            self.pause(step).await?;
            self.renew().await?;
            rest -= step;
            if rest.is_zero() {
                return Ok(());
            }
        }
    }

    async fn pause(&self, time: Duration) -> Result<(), ExportInterruption> {
        let paused = self.stop.run_until_cancelled(sleep(time)).await;
        paused.ok_or(ExportInterruption::Stopped)
    }

    async fn wait_for_records(
        &self,
        size: &mut watch::Receiver<u64>,
    ) -> Result<(), ExportInterruption> {
        let grown = timeout(RENEWAL, size.changed());
        match self.stop.run_until_cancelled(grown).await {
            None | Some(Ok(Err(_))) => Err(ExportInterruption::Stopped),
            Some(Ok(Ok(()))) => self.pause(GATHER).await,
            Some(Err(_)) => Ok(()),
        }
    }

    /// Renews the claim and returns the position of the next record.
    async fn renew(&self) -> Result<u64, ExportInterruption> {
        let claimed = self.feed.claim(self.claim.clone()).await?;
        claimed.ok_or(ExportInterruption::Claimed)
    }

    fn batches(&self, page: &FeedPage) -> Vec<EventBatch> {
        let mut batches = Vec::new();
        let mut open = EventBatch {
            events: Vec::new(),
            end: page.next,
            oldest: None,
        };
        let mut bytes = 0;
        for record in &page.records {
            let now = self.ambient.now();
            let conversion = convert(&self.settings, &self.log.origin, record, now);
            if conversion.is_unreadable {
                self.count_failures("unreadable", 1);
                tracing::error!(
                    export = self.settings.name,
                    sequence = record.sequence,
                    "an export cannot convert a record, and sends only its bytes"
                );
            }
            let events = conversion.events;
            let length: usize = events.iter().map(|event| event.text.len()).sum();
            if bytes + length > MAX_BATCH && !open.events.is_empty() {
                open.end = record.sequence;
                batches.push(open);
                open = EventBatch {
                    events: Vec::new(),
                    end: page.next,
                    oldest: None,
                };
                bytes = 0;
            }
            bytes += length;
            open.oldest = open.oldest.or(events.first().map(|event| event.time));
            open.events.extend(events);
        }
        batches.push(open);
        batches
    }

    fn count_failures(&self, reason: &'static str, count: u64) {
        let export = self.settings.name.clone();
        counter!(names::AUDIT_EXPORT_FAILURES, "export" => export, "reason" => reason)
            .increment(count);
    }

    /// Shows how far the export is behind, and stores it for the time during which the record cannot be read.
    fn show_left(&mut self, first: u64, size: u64, oldest: Option<Timestamp>) {
        let left = self.left_from(first, size, oldest);
        self.show_lag(size.saturating_sub(first), left.since);
        self.left = Some(left);
    }

    fn left_from(&self, first: u64, size: u64, oldest: Option<Timestamp>) -> RecordsLeft {
        RecordsLeft {
            first,
            size,
            since: oldest.unwrap_or_else(|| self.ambient.now()),
        }
    }

    fn show_lag(&self, records: u64, since: Timestamp) {
        let export = self.settings.name.clone();
        gauge!(names::AUDIT_EXPORT_LAG_RECORDS, "export" => export).set(as_float(records));
        let age = self.ambient.now().since(since);
        let export = self.settings.name.clone();
        gauge!(names::AUDIT_EXPORT_LAG_SECONDS, "export" => export).set(age);
    }
}

#[cfg(test)]
mod tests;
