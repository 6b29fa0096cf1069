//! Inclusion and consistency paths: the subtrees that they consist of, and their verification.

use std::ops::Range;

use crate::Error;
use crate::hash::{EMPTY_ROOT, Hash, node_hash};
use crate::tree::{Node, TreeHead, root_of, split};

/// Returns the ranges of entries whose roots prove that the entry at `index` is in the tree of `size` entries: `PATH` of RFC
/// 6962, section 2.1.1. The result is empty if the tree has no such entry.
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

/// Returns the ranges of entries whose roots prove that the tree of `new` entries begins with that of `old`: `PROOF` of RFC
/// 6962, section 2.1.2. The result is empty for trees of the same size and for an empty old tree, which need no proof.
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
    // If the old tree is a subtree of the new one, the verifier knows its root already.
    if rest.start > 0 {
        ranges.push(rest);
    }
    ranges.reverse();
    ranges
}

/// Returns the path from the entry at `index` to the root of the tree of `size` entries. `node` returns the roots of subtrees.
pub fn inclusion_path<E>(
    index: u64,
    size: u64,
    node: impl FnMut(Node) -> Result<Hash, E>,
) -> Result<Vec<Hash>, E> {
    roots_of(inclusion_ranges(index, size), node)
}

/// Returns the path that proves that the tree of `new` entries begins with that of `old` entries. `node` returns the roots of
/// subtrees of the new tree.
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

/// Fails unless `path` proves that the entry with the hash `leaf` is at `index` of the tree `head` (RFC 9162, section 2.1.3.2).
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

/// Returns the roots of the old and of the new tree to which `path` leads, or `None` if its length is wrong.
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

/// The side on which the sibling of a node is.
enum Side {
    Left,
    Right,
}

/// The way from a subtree up to the root.
struct Climb {
    /// The index of the current node in its level.
    index: u64,
    /// The index of the last node of the level.
    last: u64,
}

impl Climb {
    /// Moves up to the next node that has a sibling, and returns the side of the sibling. Returns `None` at the root.
    fn step(&mut self) -> Option<Side> {
        if self.last == 0 {
            return None;
        }
        let side = if self.index & 1 == 1 {
            Side::Left
        } else if self.index == self.last {
            // A node without a sibling on its right is on the right edge, so it moves up until it is a right child.
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
