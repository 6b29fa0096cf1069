//! Labels whose values come from outside: only so many are told apart, whatever anyone sends.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};

use metrics::SharedString;

/// Tools, by the names of the catalogue, which upstream servers have a part in.
pub static TOOLS: BoundedLabel = BoundedLabel::new(256);
/// Sources, by the names in the configuration, which may change while the process runs.
pub static SOURCES: BoundedLabel = BoundedLabel::new(64);

/// The label of what there is no name for: what a client asked for is nobody's until the catalogue knows it.
pub const UNKNOWN: &str = "unknown";
/// The label of every value beyond those that are told apart.
pub const OTHER: &str = "other";

/// The first values of a label, up to a number.
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

    /// `value` as a label, if it is one of the first; else [`OTHER`].
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
        // Others were as quick.
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
