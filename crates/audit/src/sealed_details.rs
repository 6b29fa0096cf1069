//! Sealed details of a call.

use wardgate_domain::Digest;

/// The details of one call as the store keeps them, with the values that are put into the record.
#[derive(Debug, Clone)]
pub(crate) struct SealedDetails {
    /// The keyed digest of the details.
    pub(crate) commitment: Digest,
    pub(crate) sealed: Vec<u8>,
    /// The tags of the data subjects whose rows were released, in order, each with the number of its rows.
    pub(crate) subjects: Vec<(Digest, u64)>,
    pub(crate) rows_of_others: u64,
}
