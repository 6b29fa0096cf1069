//! The record, as exports read it.

use std::time::Duration;

use wardgate_domain::Digest;

use crate::settings::StartPosition;

/// The record, as an export reads it and remembers how far it is.
pub trait RecordFeed: Send + Sync {
    /// Takes or renews the right to export, which one process has at a time; the position of the next record to send, or
    /// none where another process has the right.
    fn claim(
        &self,
        claim: CursorClaim,
    ) -> impl Future<Output = Result<Option<u64>, FeedError>> + Send;

    /// Remembers that the tool has the records below `to`, which follow those below `from`; false where another process
    /// has the right by now.
    fn advance(
        &self,
        claim: CursorClaim,
        from: u64,
        to: u64,
    ) -> impl Future<Output = Result<bool, FeedError>> + Send;

    /// Gives the right back.
    fn release(&self, claim: CursorClaim) -> impl Future<Output = ()> + Send;

    /// How many records there are now.
    fn size(&self) -> impl Future<Output = Result<u64, FeedError>> + Send;

    /// At most `limit` records from `from` on, in order.
    fn read(
        &self,
        from: u64,
        limit: u64,
    ) -> impl Future<Output = Result<FeedPage, FeedError>> + Send;
}

/// Who claims which export, and for how long.
#[derive(Debug, Clone)]
pub struct CursorClaim {
    /// Its name.
    pub export: String,
    /// The process that claims it: different for each start.
    pub holder: String,
    /// How long the claim holds.
    pub lasting: Duration,
    /// Where it begins if it was never begun.
    pub start: StartPosition,
    /// Nobody else can have it, whatever is stored: of an earlier process that was killed.
    pub is_alone: bool,
}

/// The record cannot be read or its cursor be stored now.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct FeedError(pub String);

/// A part of the record.
#[derive(Debug)]
pub struct FeedPage {
    /// Where it begins: later than asked for where what was before is removed by retention.
    pub first: u64,
    /// In order.
    pub records: Vec<SourceRecord>,
    /// Where the next page begins.
    pub next: u64,
    /// How many records there are in all.
    pub size: u64,
    /// How many in between were changed or removed from outside.
    pub damaged: u64,
}

/// One record.
#[derive(Debug, Clone)]
pub struct SourceRecord {
    /// Its position.
    pub sequence: u64,
    /// Its hash as a leaf of the log.
    pub leaf_hash: Digest,
    /// Its bytes.
    pub canonical: Vec<u8>,
}
