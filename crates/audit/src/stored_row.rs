//! A record as it is stored.

use wardgate_domain::Digest;
use wardgate_rpc::client::StoredRecord;

/// A record as it is stored.
#[derive(Debug, Clone)]
pub(crate) struct StoredRow {
    pub(crate) sequence: u64,
    pub(crate) leaf_hash: Digest,
    pub(crate) canonical: Vec<u8>,
    /// The sealed details, or `None` if there are none or they were not requested.
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
