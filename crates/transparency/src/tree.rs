//! Merkle trees that grow by appending entries, and the positions of their subtrees.

use std::ops::Range;

use crate::Error;
use crate::hash::{EMPTY_ROOT, Hash, node_hash};

/// The size and the root of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeHead {
    /// Number of entries.
    pub size: u64,
    /// Merkle tree hash over the entries.
    pub root: Hash,
}

/// The position of a complete subtree, which covers the entries from `index << height` to `(index + 1) << height`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Node {
    /// Number of levels above the leaves, at most 63.
    pub height: u8,
    /// Number of subtrees of this height to the left.
    pub index: u64,
}

/// A growing tree that stores only the roots of the complete subtrees that make it up, at most 64. Entries can be appended, and
/// the root can be computed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CompactTree {
    size: u64,
    /// The roots of the subtrees, from the left, which is from the largest.
    subtrees: Vec<Hash>,
}

impl CompactTree {
    /// Creates the tree of `size` entries from the roots of its complete subtrees, from the left: those at
    /// [`CompactTree::nodes`].
    pub fn new(size: u64, subtrees: Vec<Hash>) -> Result<Self, Error> {
        if subtrees.len() != size.count_ones() as usize {
            let subtrees = subtrees.len();
            return Err(Error::Subtrees { size, subtrees });
        }
        Ok(Self { size, subtrees })
    }

    /// Returns the complete subtrees that make up a tree of `size` entries, from the left.
    pub fn nodes(size: u64) -> impl Iterator<Item = Node> {
        nodes_of(0..size).into_iter()
    }

    /// Returns the number of entries.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Appends the entry with this leaf hash. Calls `on_node` with each subtree above the leaves that becomes complete.
    pub fn append(&mut self, leaf: Hash, mut on_node: impl FnMut(Node, &Hash)) {
        let mut hash = leaf;
        let mut node = Node {
            height: 0,
            index: self.size,
        };
        while node.index & 1 == 1
            && let Some(left) = self.subtrees.pop()
        {
            hash = node_hash(&left, &hash);
            node.height += 1;
            node.index >>= 1;
            on_node(node, &hash);
        }
        self.subtrees.push(hash);
        self.size += 1;
    }

    /// Returns the size and the root.
    pub fn head(&self) -> TreeHead {
        let joined = self.subtrees.iter().rev().copied();
        TreeHead {
            size: self.size,
            root: joined
                .reduce(|right, left| node_hash(&left, &right))
                .unwrap_or(EMPTY_ROOT),
        }
    }
}

/// Returns the largest power of two that is less than `count`, which must be at least 2.
pub(crate) fn split(count: u64) -> u64 {
    1 << (count - 1).ilog2()
}

/// Returns the complete subtrees whose roots make up the root over the entries of `range`, from the left. As in proofs, `range`
/// must cover a complete subtree or the right edge of a tree.
pub(crate) fn nodes_of(range: Range<u64>) -> Vec<Node> {
    let mut nodes = Vec::new();
    let mut start = range.start;
    while start < range.end {
        let height = (range.end - start).ilog2();
        nodes.push(Node {
            height: u8::try_from(height).unwrap_or(u8::MAX),
            index: start >> height,
        });
        start += 1 << height;
    }
    nodes
}

/// Returns the root over the entries of `range`, computed from the roots of its complete subtrees.
pub(crate) fn root_of<E>(
    range: Range<u64>,
    mut node: impl FnMut(Node) -> Result<Hash, E>,
) -> Result<Hash, E> {
    let mut root = None;
    for at in nodes_of(range).into_iter().rev() {
        let left = node(at)?;
        root = Some(root.map_or(left, |right| node_hash(&left, &right)));
    }
    Ok(root.unwrap_or(EMPTY_ROOT))
}
