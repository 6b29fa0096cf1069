//! How much of the record a person may read.

/// What of the record a person may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordAccess {
    /// Nothing.
    None,
    /// What they did themselves.
    Own,
    /// What everybody did; for a caller of a tenant, everybody of that tenant.
    All,
}
