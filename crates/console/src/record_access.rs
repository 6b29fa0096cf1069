//! The part of the record that a person may read.

/// The part of the record that a person may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordAccess {
    /// The person may read nothing.
    None,
    /// The person may read their own calls.
    Own,
    /// The person may read everybody's calls, or those of their tenant if they have one.
    All,
}
