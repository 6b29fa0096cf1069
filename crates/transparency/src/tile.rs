//! Tiles of hashes and bundles of entries, which store a tree in immutable files at the paths of tlog-tiles.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::ops::Range;

use crate::Error;
use crate::hash::{Hash, node_hash};
use crate::tree::{Node, nodes_of};

/// Number of levels of the tree that one tile spans.
const TILE_HEIGHT: u8 = 8;

/// Number of hashes in a full tile, and of entries in a full bundle.
pub const TILE_WIDTH: u64 = 1 << TILE_HEIGHT;

/// The identifier of a tile in a tree of some size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TileId {
    level: u8,
    index: u64,
    width: u64,
}

impl TileId {
    /// Returns the id of the tile of `level` at `index` in the tree of `size` entries, or `None` if the tree has no such tile.
    pub fn new(level: u8, index: u64, size: u64) -> Option<Self> {
        let hashes = size.checked_shr(u32::from(level) * u32::from(TILE_HEIGHT))?;
        let first = index.checked_mul(TILE_WIDTH)?;
        let width = hashes.checked_sub(first)?.min(TILE_WIDTH);
        (width > 0).then_some(Self {
            level,
            index,
            width,
        })
    }

    /// Returns the level of the tile, which is 0 for a tile of leaf hashes.
    pub fn level(&self) -> u8 {
        self.level
    }

    /// Returns the hashes in the tile, as a range of the hashes of its level. For level 0, this is the range of its entries.
    pub fn range(&self) -> Range<u64> {
        let first = self.index * TILE_WIDTH;
        first..first + self.width
    }

    /// Returns the path of the tile below the prefix of a log, for example `tile/0/x001/234`, or `tile/1/000.p/17` for a
    /// partial tile.
    pub fn path(&self) -> String {
        self.path_in(&self.level.to_string())
    }

    /// Returns the path of the bundle with the entries of a tile of level 0.
    pub fn bundle_path(&self) -> String {
        self.path_in("entries")
    }

    fn path_in(&self, folder: &str) -> String {
        let mut groups = Vec::new();
        let mut rest = self.index;
        loop {
            groups.push(rest % 1_000);
            rest /= 1_000;
            if rest == 0 {
                break;
            }
        }
        let mut path = format!("tile/{folder}");
        while let Some(group) = groups.pop() {
            let prefix = if groups.is_empty() { "" } else { "x" };
            // Writing to a `String` cannot fail.
            let _ = write!(path, "/{prefix}{group:03}");
        }
        if self.width < TILE_WIDTH {
            let _ = write!(path, ".p/{}", self.width);
        }
        path
    }
}

/// Returns all tiles of the tree of `size` entries, level by level.
pub fn tiles_of_size(size: u64) -> impl Iterator<Item = TileId> {
    let levels = (0..TILE_HEIGHT).take_while(move |level| TileId::new(*level, 0, size).is_some());
    levels.flat_map(move |level| (0..).map_while(move |index| TileId::new(level, index, size)))
}

/// Returns the tiles of the tree of `size` entries from which the roots over `ranges` are computed.
pub fn tiles_of_ranges(
    ranges: impl IntoIterator<Item = Range<u64>>,
    size: u64,
) -> BTreeSet<TileId> {
    let nodes = ranges.into_iter().flat_map(nodes_of);
    nodes
        .filter_map(|node| {
            let hashes = TileHashes::for_node(node)?;
            TileId::new(hashes.level, hashes.tile, size)
        })
        .collect()
}

/// The hashes of a tile from which the root of a node is computed.
struct TileHashes {
    level: u8,
    tile: u64,
    within: Range<usize>,
}

impl TileHashes {
    fn for_node(node: Node) -> Option<Self> {
        let count = 1_u64 << (node.height % TILE_HEIGHT);
        let first = node.index.checked_mul(count)?;
        let start = usize::try_from(first % TILE_WIDTH).ok()?;
        Some(Self {
            level: node.height / TILE_HEIGHT,
            tile: first / TILE_WIDTH,
            within: start..start + usize::try_from(count).ok()?,
        })
    }
}

/// Tiles of one tree, from which the roots of its nodes are computed.
#[derive(Debug, Clone, Default)]
pub struct TileSet(BTreeMap<(u8, u64), Vec<Hash>>);

impl TileSet {
    /// Adds the tile `id`, whose concatenated hashes are `bytes`. Fails if the number of hashes is wrong.
    pub fn insert(&mut self, id: TileId, bytes: &[u8]) -> Result<(), Error> {
        let (hashes, rest) = bytes.as_chunks::<32>();
        if !rest.is_empty() || hashes.len() as u64 != id.width {
            return Err(Error::Tile(id.path()));
        }
        self.0.insert((id.level, id.index), hashes.to_vec());
        Ok(())
    }

    /// Returns the root of the subtree at `node`. Fails if the tile that contains it is missing.
    pub fn node(&self, node: Node) -> Result<Hash, Error> {
        let missing = || Error::MissingTile(format!("of height {}, {}", node.height, node.index));
        let at = TileHashes::for_node(node).ok_or_else(missing)?;
        let tile = self.0.get(&(at.level, at.tile)).ok_or_else(missing)?;
        let hashes = tile.get(at.within).ok_or_else(missing)?;
        perfect_root(hashes).ok_or_else(missing)
    }
}

/// Returns the root of hashes whose number is a power of two, or `None` if there are none.
fn perfect_root(hashes: &[Hash]) -> Option<Hash> {
    match hashes {
        [] => None,
        [one] => Some(*one),
        _ => {
            let (left, right) = hashes.split_at(hashes.len() / 2);
            Some(node_hash(&perfect_root(left)?, &perfect_root(right)?))
        }
    }
}

/// Appends `entry` to `bundle`, after its length in two bytes. Fails if the entry is too long.
pub fn encode_entry(entry: &[u8], bundle: &mut Vec<u8>) -> Result<(), Error> {
    let length = u16::try_from(entry.len()).map_err(|_| Error::EntryLength(entry.len()))?;
    bundle.extend_from_slice(&length.to_be_bytes());
    bundle.extend_from_slice(entry);
    Ok(())
}

/// Returns the entries of `bundle`, in order.
pub fn decode_bundle(bundle: &[u8]) -> Result<Vec<&[u8]>, Error> {
    let mut entries = Vec::new();
    let mut rest = bundle;
    while !rest.is_empty() {
        let (length, behind) = rest.split_first_chunk::<2>().ok_or(Error::Bundle)?;
        let length = usize::from(u16::from_be_bytes(*length));
        let (entry, behind) = behind.split_at_checked(length).ok_or(Error::Bundle)?;
        entries.push(entry);
        rest = behind;
    }
    Ok(entries)
}
