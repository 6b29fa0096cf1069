//! Paths that prove: which subtrees they consist of, and how they are verified.

use std::ops::Range;

use crate::Error;
use crate::hash::{EMPTY_ROOT, Hash, node_hash};
use crate::tree::{Node, TreeHead, root_of, split};

/// The ranges of entries whose roots prove that the entry at `index` is in the tree of `size` entries: `PATH` of RFC 6962,
/// section 2.1.1. None where the tree has no such entry.
pub fn inclusion_ranges(index: u64, size: u64) -> Vec<Range<u64>> {
    let mut ranges = Vec::new();
    if index >= size {
        return ranges;
    }
    let mut rest = 0..size;
    while rest.end - rest.start > 1 {
        let middle = rest.start + split(rest.end - rest.start);
        if index < middle {
            ranges.push(middle..rest.end);
            rest.end = middle;
        } else {
            ranges.push(rest.start..middle);
            rest.start = middle;
        }
    }
    ranges.reverse();
    ranges
}

/// The ranges of entries whose roots prove that the tree of `new` entries begins with that of `old`: `PROOF` of RFC 6962,
/// section 2.1.2. None for trees of one size and for the empty tree, which need no proof.
pub fn consistency_ranges(old: u64, new: u64) -> Vec<Range<u64>> {
    let mut ranges = Vec::new();
    if old == 0 || old >= new {
        return ranges;
    }
    let mut rest = 0..new;
    while old < rest.end {
        let middle = rest.start + split(rest.end - rest.start);
        if old <= middle {
            ranges.push(middle..rest.end);
            rest.end = middle;
        } else {
            ranges.push(rest.start..middle);
            rest.start = middle;
        }
    }
    // Whoever verifies knows the root of the old tree, where that is a subtree of the new one.
    if rest.start > 0 {
        ranges.push(rest);
    }
    ranges.reverse();
    ranges
}

/// The path from the entry at `index` to the root of the tree of `size` entries, whose subtrees `node` gives.
pub fn inclusion_path<E>(
    index: u64,
    size: u64,
    node: impl FnMut(Node) -> Result<Hash, E>,
) -> Result<Vec<Hash>, E> {
    roots_of(inclusion_ranges(index, size), node)
}

/// The path that proves that the tree of `new` entries, whose subtrees `node` gives, begins with that of `old` entries.
pub fn consistency_path<E>(
    old: u64,
    new: u64,
    node: impl FnMut(Node) -> Result<Hash, E>,
) -> Result<Vec<Hash>, E> {
    roots_of(consistency_ranges(old, new), node)
}

fn roots_of<E>(
    ranges: Vec<Range<u64>>,
    mut node: impl FnMut(Node) -> Result<Hash, E>,
) -> Result<Vec<Hash>, E> {
    let roots = ranges.into_iter().map(|range| root_of(range, &mut node));
    roots.collect()
}

/// Fails unless `path` proves that the entry with `leaf` for hash is at `index` of the tree `head` (RFC 9162, section
/// 2.1.3.2).
pub fn verify_inclusion(
    leaf: &Hash,
    index: u64,
    path: &[Hash],
    head: &TreeHead,
) -> Result<(), Error> {
    let size = head.size;
    let refused = Error::NotIncluded { index, size };
    if index >= size {
        return Err(refused);
    }
    let mut climb = Climb {
        index,
        last: size - 1,
    };
    let mut root = *leaf;
    for sibling in path {
        match climb.step() {
            Some(Side::Left) => root = node_hash(sibling, &root),
            Some(Side::Right) => root = node_hash(&root, sibling),
            None => return Err(refused),
        }
    }
    if climb.last == 0 && root == head.root {
        Ok(())
    } else {
        Err(refused)
    }
}

/// Fails unless `path` proves that the tree `new` begins with the tree `old` (RFC 9162, section 2.1.4.2).
pub fn verify_consistency(old: &TreeHead, new: &TreeHead, path: &[Hash]) -> Result<(), Error> {
    let refused = Error::Inconsistent {
        old: old.size,
        new: new.size,
    };
    let agree = if old.size == 0 {
        path.is_empty() && old.root == EMPTY_ROOT && (new.size > 0 || new.root == EMPTY_ROOT)
    } else if old.size == new.size {
        path.is_empty() && old.root == new.root
    } else if old.size > new.size {
        false
    } else {
        consistent_roots(old, new, path) == Some((old.root, new.root))
    };
    if agree { Ok(()) } else { Err(refused) }
}

/// The roots of the old and of the new tree that `path` leads to; none where it is not as long as it must be.
fn consistent_roots(old: &TreeHead, new: &TreeHead, path: &[Hash]) -> Option<(Hash, Hash)> {
    let (first, rest) = if old.size.is_power_of_two() {
        (&old.root, path)
    } else {
        path.split_first()?
    };
    let levels = old.size.trailing_zeros();
    let mut climb = Climb {
        index: (old.size - 1) >> levels,
        last: (new.size - 1) >> levels,
    };
    let (mut old_root, mut new_root) = (*first, *first);
    for sibling in rest {
        match climb.step()? {
            Side::Left => {
                old_root = node_hash(sibling, &old_root);
                new_root = node_hash(sibling, &new_root);
            }
            Side::Right => new_root = node_hash(&new_root, sibling),
        }
    }
    (climb.last == 0).then_some((old_root, new_root))
}

/// On which side of the way up a sibling stands.
enum Side {
    Left,
    Right,
}

/// The way from a subtree up to the root.
struct Climb {
    /// Where it is, in its level.
    index: u64,
    /// The last of the level.
    last: u64,
}

impl Climb {
    /// Goes up to the next node with a sibling; none at the root.
    fn step(&mut self) -> Option<Side> {
        if self.last == 0 {
            return None;
        }
        let side = if self.index & 1 == 1 {
            Side::Left
        } else if self.index == self.last {
            // Without a sibling on its right, it is part of the right edge up to where it is itself a right child.
            let levels = self.index.trailing_zeros();
            self.index >>= levels;
            self.last >>= levels;
            Side::Left
        } else {
            Side::Right
        };
        self.index >>= 1;
        self.last >>= 1;
        Some(side)
    }
}
