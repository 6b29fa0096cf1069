//! Which columns a result lost, and why.

use std::collections::BTreeMap;
use std::sync::Arc;

use wardgate_domain::ColumnClass;

/// Why a column does not leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropReason {
    /// Its author gave it no class, and no policy shows the caller columns without one.
    Unclassified,
    /// It has a class that the caller's tiers do not show.
    NotPermitted,
}

impl DropReason {
    pub(crate) fn of(class: &ColumnClass) -> Self {
        if class.is_unclassified() {
            Self::Unclassified
        } else {
            Self::NotPermitted
        }
    }
}

/// The columns that were left out of a result, by name. Names can be values where rows are JSON objects with
/// arbitrary members, so whoever shows them has to know where they come from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DroppedColumns(BTreeMap<Arc<str>, DropReason>);

impl DroppedColumns {
    /// How many columns were left out for `reason`.
    pub fn count(&self, reason: DropReason) -> u64 {
        self.names(reason).count() as u64
    }

    /// The names of the columns that were left out for `reason`, in alphabetical order.
    pub fn names(&self, reason: DropReason) -> impl Iterator<Item = &str> {
        let columns = self.0.iter();
        columns.filter_map(move |(name, why)| (*why == reason).then_some(&**name))
    }

    /// Whether nothing was left out.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn insert(&mut self, name: &Arc<str>, reason: DropReason) {
        if !self.0.contains_key(name) {
            self.0.insert(Arc::clone(name), reason);
        }
    }
}
