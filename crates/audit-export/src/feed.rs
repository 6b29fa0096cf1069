//! Access of exports to the record.

use std::time::Duration;

use wardgate_domain::Digest;

use crate::settings::StartPosition;

/// The record from which an export reads, and which stores the export's position.
pub trait RecordFeed: Send + Sync {
    /// Takes or renews the claim to export, which only one process has at a time. Returns the position of the next record to
    /// send, or `None` if another process has the claim.
    fn claim(
        &self,
        claim: CursorClaim,
    ) -> impl Future<Output = Result<Option<u64>, FeedError>> + Send;

    /// Stores `to` as the position of the export, which was `from` before: the tool has received all records below `to`. Returns
    /// `false` if another process has the claim by now.
    fn advance(
        &self,
        claim: CursorClaim,
        from: u64,
        to: u64,
    ) -> impl Future<Output = Result<bool, FeedError>> + Send;

    /// Releases the claim.
    fn release(&self, claim: CursorClaim) -> impl Future<Output = ()> + Send;

    /// Returns the current number of records.
    fn size(&self) -> impl Future<Output = Result<u64, FeedError>> + Send;

    /// Returns at most `limit` records from `from` on, in order.
    fn read_records(
        &self,
        from: u64,
        limit: u64,
    ) -> impl Future<Output = Result<FeedPage, FeedError>> + Send;
}

/// A claim to an export for a limited time.
#[derive(Debug, Clone)]
pub struct CursorClaim {
    /// The name of the export.
    pub export: String,
    /// The process that claims the export. It has a different value after each start.
    pub holder: String,
    /// The duration of the claim.
    pub lasting: Duration,
    /// The position at which an export starts that was never started before.
    pub start: StartPosition,
    /// Whether no other process can have the claim, so that a stored claim must be from an earlier process that was killed.
    pub is_alone: bool,
}

/// An error that prevents reading the record or storing a position at the moment.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct FeedError(pub String);

/// A page of the record.
#[derive(Debug)]
pub struct FeedPage {
    /// The position of the page. It is later than requested if retention has removed earlier records.
    pub first: u64,
    /// The records, in order.
    pub records: Vec<SourceRecord>,
    /// The position of the next page.
    pub next: u64,
    /// The total number of records.
    pub size: u64,
    /// The number of records in the page's range that were modified or removed from outside, or that cannot be read.
    pub damaged: u64,
}

impl FeedPage {
    /// Returns the sequence number of the first record in the page's range that was modified or removed from outside, or that
    /// cannot be read.
    pub fn first_damaged(&self) -> Option<u64> {
        let records = self.records.iter();
        let mut intact = records.map(|record| record.sequence).peekable();
        (self.first..self.next).find(|sequence| intact.next_if_eq(sequence).is_none())
    }
}

/// A record.
#[derive(Debug, Clone)]
pub struct SourceRecord {
    /// The position of the record.
    pub sequence: u64,
    /// The hash of the record as a leaf of the log.
    pub leaf_hash: Digest,
    /// The canonical bytes of the record.
    pub canonical: Vec<u8>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_damaged_record_of_a_page_is_named() {
        let page = |intact: &[u64]| FeedPage {
            first: 4,
            records: intact.iter().map(|&sequence| record(sequence)).collect(),
            next: 7,
            size: 9,
            damaged: 3 - intact.len() as u64,
        };
        for (intact, damaged) in [
            (&[4, 5, 6][..], None),
            (&[5, 6][..], Some(4)),
            (&[4, 6][..], Some(5)),
            (&[4, 5][..], Some(6)),
            (&[][..], Some(4)),
        ] {
            assert_eq!(page(intact).first_damaged(), damaged, "{intact:?}");
        }
    }

    fn record(sequence: u64) -> SourceRecord {
        SourceRecord {
            sequence,
            leaf_hash: Digest::compute(b"leaf"),
            canonical: Vec::new(),
        }
    }
}
