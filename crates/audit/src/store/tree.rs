//! The Merkle tree in a store.

use std::ops::Range;

use wardgate_rpc::client::RecordDamage;
use wardgate_transparency::{TileId, TileSet, TreeHead};

use super::{ReadPool, StoreReader, postgres, sqlite, to_i64, to_u64};
use crate::Error;

/// The head of the stored tree, and its newest checkpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredTree {
    pub(crate) head: TreeHead,
    /// The newest checkpoint, a signed note. It may be of a smaller tree, and is `None` if no checkpoint was signed yet.
    pub(crate) checkpoint: Option<String>,
    /// The newest checkpoint that a quorum of witnesses cosigned.
    pub(crate) cosigned: Option<String>,
}

/// A row of the tree, as both drivers return it.
type TreeRow = (i64, Vec<u8>, Option<String>, Option<String>);

/// The number of rows, and the concatenation of their hashes.
type JoinedHashes = (i64, Vec<u8>);

impl StoreReader {
    pub(crate) async fn tree(&self) -> Result<StoredTree, Error> {
        let (size, root, checkpoint, cosigned): TreeRow = match &self.pool {
            ReadPool::Sqlite(pool) => sqlx::query_as(sqlite::TREE).fetch_one(pool).await?,
            ReadPool::Postgres(pool) => {
                sqlx::query_as(postgres::TREE)
                    .fetch_one(&mut *pool.acquire().await?)
                    .await?
            }
        };
        let damaged = |_| Error::DamagedTree("its root is not a hash".to_owned());
        let root = root.try_into().map_err(damaged)?;
        let size = to_u64(size);
        let head = TreeHead { size, root };
        Ok(StoredTree {
            head,
            checkpoint,
            cosigned,
        })
    }

    /// Returns the concatenated leaf hashes of the records in `range`.
    pub(crate) async fn leaf_hashes(&self, range: Range<u64>) -> Result<Vec<u8>, Error> {
        let (from, to) = (to_i64(range.start), to_i64(range.end));
        let joined: JoinedHashes = match &self.pool {
            ReadPool::Sqlite(pool) => {
                let joined = sqlx::query_as(sqlite::LEAF_HASHES).bind(from).bind(to);
                joined.fetch_one(pool).await?
            }
            ReadPool::Postgres(pool) => {
                let joined = sqlx::query_as(postgres::LEAF_HASHES).bind(from).bind(to);
                joined.fetch_one(&mut *pool.acquire().await?).await?
            }
        };
        let damage = || RecordDamage {
            sequence: Some(range.start),
            problem: format!("or one up to {} is missing", range.end - 1),
            is_warning: false,
        };
        let (count, mut hashes) = joined;
        let wanted = range.end - range.start;
        let mut pruned = Vec::new();
        if to_u64(count) < wanted {
            // The hashes of records that retention removed are stored separately, and precede those of the kept records.
            let minimum = self.head().await?.minimum_index;
            let before = range.start..range.end.min(minimum);
            if !before.is_empty() {
                pruned = self.pruned_hashes(&before).await?;
            }
        }
        let found = to_i64(pruned.len() as u64 / 32) + count;
        pruned.append(&mut hashes);
        complete((found, pruned), &range).ok_or_else(|| Error::Damaged(damage()))
    }

    /// Returns the concatenated hashes of a tile.
    pub(crate) async fn tile(&self, id: TileId) -> Result<Vec<u8>, Error> {
        let range = id.range();
        if id.level() == 0 {
            return self.leaf_hashes(range).await;
        }
        self.tile_roots(id.level(), range)
            .await?
            .ok_or_else(|| Error::DamagedTree(format!("the tile {} is not complete", id.path())))
    }

    /// Returns the root of the full tile of leaf hashes at `position`.
    pub(crate) async fn leaf_tile_root(&self, position: u64) -> Result<Vec<u8>, Error> {
        let missing = || Error::DamagedTree(format!("the root of the tile {position} is missing"));
        let root = self.tile_roots(1, position..position + 1).await?;
        root.ok_or_else(missing)
    }

    /// Returns the concatenated hashes of `level` in `range`, or `None` if one is missing.
    async fn tile_roots(&self, level: u8, range: Range<u64>) -> Result<Option<Vec<u8>>, Error> {
        let (level, from, to) = (i32::from(level), to_i64(range.start), to_i64(range.end));
        let joined: JoinedHashes = match &self.pool {
            ReadPool::Sqlite(pool) => {
                let joined = sqlx::query_as(sqlite::TILE).bind(level).bind(from).bind(to);
                joined.fetch_one(pool).await?
            }
            ReadPool::Postgres(pool) => {
                let joined = sqlx::query_as(postgres::TILE)
                    .bind(level)
                    .bind(from)
                    .bind(to);
                joined.fetch_one(&mut *pool.acquire().await?).await?
            }
        };
        Ok(complete(joined, &range))
    }

    /// Returns the tiles with these ids.
    pub(crate) async fn tiles(
        &self,
        ids: impl IntoIterator<Item = TileId>,
    ) -> Result<TileSet, Error> {
        let mut tiles = TileSet::default();
        for id in ids {
            let hashes = self.tile(id).await?;
            tiles.insert(id, &hashes)?;
        }
        Ok(tiles)
    }
}

/// Returns the hashes of all rows of `range`, or `None` if one is missing or is not a hash.
fn complete((count, hashes): JoinedHashes, range: &Range<u64>) -> Option<Vec<u8>> {
    let wanted = range.end - range.start;
    let is_complete = to_u64(count) == wanted && hashes.len() as u64 == wanted * 32;
    is_complete.then_some(hashes)
}
