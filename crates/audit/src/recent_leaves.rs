//! A cache of the leaf hashes of the newest records, so that the tree can grow without reading them back from the store.

use std::collections::VecDeque;
use std::ops::Range;

use wardgate_transparency::Hash;

/// Maximum number of hashes that are kept while the tree does not grow. Beyond that, they are read from the store.
const MAX: usize = 65_536;

/// The leaf hashes of consecutive records that this process stored, up to the newest.
#[derive(Debug, Default)]
pub(crate) struct RecentLeaves {
    /// The sequence number of the first record.
    first: u64,
    hashes: VecDeque<Hash>,
}

impl RecentLeaves {
    /// Adds the hashes of the records from `first` on. Removes the earlier ones if another process stored records in between,
    /// or if there would be too many.
    pub(crate) fn add(&mut self, first: u64, hashes: impl ExactSizeIterator<Item = Hash>) {
        if first != self.end() || self.hashes.len() + hashes.len() > MAX {
            self.first = first;
            self.hashes.clear();
        }
        self.hashes.extend(hashes);
    }

    /// Removes and returns the hashes of `range`, and removes all before them. Returns `None` if not all of them are present.
    pub(crate) fn take_range(&mut self, range: &Range<u64>) -> Option<Vec<Hash>> {
        if range.start < self.first || range.end > self.end() {
            return None;
        }
        let skipped = usize::try_from(range.start - self.first).ok()?;
        let taken = usize::try_from(range.end - self.first).ok()?;
        self.first = range.end;
        Some(self.hashes.drain(..taken).skip(skipped).collect())
    }

    fn end(&self) -> u64 {
        self.first + self.hashes.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaves(of: Range<u8>) -> Vec<Hash> {
        of.map(|leaf| [leaf; 32]).collect()
    }

    #[test]
    fn hashes_are_taken_once_and_in_order() {
        let mut recent = RecentLeaves::default();
        recent.add(0, leaves(0..3).into_iter());
        recent.add(3, leaves(3..5).into_iter());
        assert_eq!(recent.take_range(&(1..4)), Some(leaves(1..4)));
        assert_eq!(recent.take_range(&(1..4)), None, "they are gone");
        assert_eq!(recent.take_range(&(4..6)), None, "one is not here yet");
        assert_eq!(recent.take_range(&(4..5)), Some(leaves(4..5)));
    }

    #[test]
    fn a_record_of_another_process_in_between_leaves_only_those_behind_it() {
        let mut recent = RecentLeaves::default();
        recent.add(0, leaves(0..3).into_iter());
        recent.add(4, leaves(4..6).into_iter());
        assert_eq!(recent.take_range(&(0..6)), None);
        assert_eq!(recent.take_range(&(4..6)), Some(leaves(4..6)));
    }

    #[test]
    fn memory_stays_bounded_while_the_tree_does_not_grow() {
        let mut recent = RecentLeaves::default();
        let mut first = 0;
        for _ in 0..10 {
            let hashes = vec![[0; 32]; MAX / 4];
            recent.add(first, hashes.into_iter());
            first += MAX as u64 / 4;
            assert!(recent.hashes.len() <= MAX);
            assert_eq!(recent.end(), first);
        }
    }
}
