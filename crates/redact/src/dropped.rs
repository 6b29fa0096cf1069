//! The columns that were left out of a result, and the reasons.

use std::collections::BTreeMap;
use std::sync::Arc;

use wardgate_domain::ColumnClass;

/// The reason why a column was left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropReason {
    /// The column has no class, and no policy shows the caller columns without one.
    Unclassified,
    /// The column has a class that the caller's tiers do not show.
    NotPermitted,
}

impl DropReason {
    pub(crate) fn for_class(class: &ColumnClass) -> Self {
        if class.is_unclassified() {
            Self::Unclassified
        } else {
            Self::NotPermitted
        }
    }
}

/// The columns that were left out of a result, by name. If rows are JSON objects with arbitrary members, names can be
/// values, so before showing them, make sure that they are column names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DroppedColumns(BTreeMap<Arc<str>, DropReason>);

impl DroppedColumns {
    /// Returns how many columns were left out for `reason`.
    pub fn count(&self, reason: DropReason) -> u64 {
        self.names(reason).count() as u64
    }

    /// Returns the names of the columns that were left out for `reason`, in alphabetical order.
    pub fn names(&self, reason: DropReason) -> impl Iterator<Item = &str> {
        let columns = self.0.iter();
        columns.filter_map(move |(name, why)| (*why == reason).then_some(&**name))
    }

    /// Returns whether no column was left out.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn insert(&mut self, name: &Arc<str>, reason: DropReason) {
        if !self.0.contains_key(name) {
            self.0.insert(Arc::clone(name), reason);
        }
    }
}
