//! Exports of records to security tools: access to the store for reading records and for storing cursors.

use std::ops::Range;
use std::sync::Arc;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use wardgate_audit_export::{
    CursorClaim, ExportLog, ExportSettings, FeedError, FeedPage, RecordExporter, RecordFeed,
    SourceRecord, StartPosition,
};
use wardgate_domain::Ambient;
use wardgate_rpc::client::RecordDamage;

use crate::Error;
use crate::filter::RecordFilter;
use crate::store::{PageBounds, StoreReader, StoreUpkeep};
use crate::stored_row::StoredRow;
use crate::writer::AppendQueue;

/// The store, as exports access it.
#[derive(Clone)]
pub(crate) struct StoreFeed {
    pub(crate) reader: StoreReader,
    pub(crate) appends: AppendQueue,
}

/// Starts the exports of `settings`.
pub(crate) fn start(
    settings: &[ExportSettings],
    feed: StoreFeed,
    log: &ExportLog,
    ambient: &Ambient,
    stop: &CancellationToken,
) -> Result<Vec<JoinHandle<()>>, Error> {
    let size = feed.appends.size();
    let feed = Arc::new(feed);
    let exporters = settings.iter().map(|settings| {
        let exporter = RecordExporter::open(
            settings.clone(),
            Arc::clone(&feed),
            log.clone(),
            ambient.clone(),
            stop.clone(),
        )?;
        Ok(tokio::spawn(exporter.run(size.clone())))
    });
    exporters.collect()
}

impl StoreFeed {
    /// Returns the records of `range`, read one by one, without those that are at a corrupt place of the store. Fails if none of
    /// the reads succeeds, because the whole table may then be unreadable only for a time.
    async fn read_each(
        &self,
        range: Range<u64>,
    ) -> Result<Vec<Result<StoredRow, RecordDamage>>, Error> {
        let (mut found, mut corruption, mut is_any_read) = (Vec::new(), None, false);
        for sequence in range {
            match self.reader.single(&RecordFilter::default(), sequence).await {
                Err(error) if error.is_corruption() => {
                    self.reader.note_corruption(&error);
                    corruption = Some(error);
                }
                page => {
                    found.extend(page?.records);
                    is_any_read = true;
                }
            }
        }
        match corruption {
            Some(error) if !is_any_read => Err(error),
            _ => Ok(found),
        }
    }

    /// Returns at most `limit` records from `from` on, without those that were modified or cannot be read. Fails if none of
    /// them can be read.
    pub(crate) async fn read_page(&self, from: u64, limit: u64) -> Result<FeedPage, Error> {
        let head = self.reader.head().await?;
        let size = head.size;
        // Records that retention removed do not count as missing.
        let kept = from.max(head.minimum_index);
        let next = size.min(kept.saturating_add(limit)).max(kept);
        let bounds = PageBounds {
            range: kept..next,
            after: None,
            limit,
            newest_first: false,
        };
        let found = match self.reader.page(&RecordFilter::default(), &bounds).await {
            Err(error) if error.is_corruption() => self.read_each(kept..next).await?,
            page => page?.records,
        };
        // Nor do records that retention removed during the read.
        let kept = kept.max(self.reader.head().await?.minimum_index).min(next);
        let intact = found.into_iter().filter_map(Result::ok);
        let records: Vec<_> = intact
            .filter(|row| row.sequence >= kept)
            .map(|row| SourceRecord {
                sequence: row.sequence,
                leaf_hash: row.leaf_hash,
                canonical: row.canonical,
            })
            .collect();
        Ok(FeedPage {
            damaged: (next - kept).saturating_sub(records.len() as u64),
            first: kept,
            records,
            next,
            size,
        })
    }
}

impl RecordFeed for StoreFeed {
    async fn claim(&self, claim: CursorClaim) -> Result<Option<u64>, FeedError> {
        let head = self.reader.head().await?;
        let first = match claim.start {
            StartPosition::First => head.minimum_index,
            StartPosition::Now => head.size,
        };
        let export = claim.export.clone();
        let upkeep = StoreUpkeep::ClaimExport(claim, first);
        if !self.appends.keep_up(upkeep).await? {
            return Ok(None);
        }
        let position = self.reader.export_position(&export).await;
        Ok(position?)
    }

    async fn advance(&self, claim: CursorClaim, from: u64, to: u64) -> Result<bool, FeedError> {
        let upkeep = StoreUpkeep::AdvanceExport { claim, from, to };
        Ok(self.appends.keep_up(upkeep).await?)
    }

    async fn release(&self, claim: CursorClaim) {
        let upkeep = StoreUpkeep::ReleaseExport(claim);
        if let Err(error) = self.appends.keep_up(upkeep).await {
            tracing::debug!(%error, "the claim of an export could not be released; it expires");
        }
    }

    async fn size(&self) -> Result<u64, FeedError> {
        Ok(self.reader.head().await?.size)
    }

    async fn read_records(&self, from: u64, limit: u64) -> Result<FeedPage, FeedError> {
        Ok(self.read_page(from, limit).await?)
    }
}

impl From<Error> for FeedError {
    fn from(error: Error) -> Self {
        Self(error.to_string())
    }
}
