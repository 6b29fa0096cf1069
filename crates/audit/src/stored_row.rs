//! A record as the store holds it.

use wardgate_domain::Digest;
use wardgate_rpc::client::StoredRecord;

/// One stored record.
#[derive(Debug, Clone)]
pub(crate) struct StoredRow {
    pub(crate) sequence: u64,
    pub(crate) leaf_hash: Digest,
    pub(crate) canonical: Vec<u8>,
    /// Sealed; none where there are none, or they were not asked for.
    pub(crate) details: Option<Vec<u8>>,
}

impl From<StoredRow> for StoredRecord {
    fn from(stored: StoredRow) -> Self {
        Self {
            sequence: stored.sequence,
            leaf_hash: stored.leaf_hash,
            record: stored.canonical.into(),
            details: None,
        }
    }
}
