//! Labels with external values, which are bounded: only a limited number of values is distinguished.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};

use metrics::SharedString;

/// Tool names from the catalogue, which upstream servers influence.
pub static TOOLS: BoundedLabel = BoundedLabel::new(256);
/// Source names from the configuration, which may change while the process runs.
pub static SOURCES: BoundedLabel = BoundedLabel::new(64);
/// Paths of files with secrets from the configuration, which may change while the process runs.
pub static SECRET_FILES: BoundedLabel = BoundedLabel::new(256);

/// The label of a value without a known name. A tool name in a request is not used as a label before the catalogue
/// confirms it.
pub const UNKNOWN: &str = "unknown";
/// The label of all values beyond the maximum number.
pub const OTHER: &str = "other";

/// A label that keeps its first distinct values, up to a maximum number.
#[derive(Debug)]
pub struct BoundedLabel {
    known: RwLock<BTreeSet<Arc<str>>>,
    most: usize,
}

impl BoundedLabel {
    const fn new(most: usize) -> Self {
        Self {
            known: RwLock::new(BTreeSet::new()),
            most,
        }
    }

    /// Returns `value` as a label if it is one of the first values, or else [`OTHER`].
    pub fn label(&self, value: &str) -> SharedString {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = known.get(value) {
            return Arc::clone(value).into();
        }
        let is_full = known.len() >= self.most;
        drop(known);
        if is_full {
            return OTHER.into();
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have added values in the meantime.
        if known.len() >= self.most && !known.contains(value) {
            return OTHER.into();
        }
        let value: Arc<str> = value.into();
        known.insert(Arc::clone(&value));
        value.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_values_become_labels() {
        let labels = BoundedLabel::new(2);
        let labels: Vec<_> = ["a", "b", "c", "a", "d"]
            .map(|value| labels.label(value).into_owned())
            .to_vec();
        assert_eq!(labels, ["a", "b", OTHER, "a", OTHER]);
    }
}
