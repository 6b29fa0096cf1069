//! Export of the audit log to files, which `verify` checks without the store.
//!
//! ```text
//!   DIR/checkpoint            the signed checkpoint
//!   DIR/tile/LEVEL/…          the hashes of its tree        (c2sp.org/tlog-tiles)
//!   DIR/tile/entries/…        the records, 256 per file
//!   DIR/records.jsonl         the records, one per line: {"sequence":0,"record":{…}}
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use futures::{Stream, TryStreamExt, pin_mut, stream};
use wardgate_domain::Digest;
use wardgate_rpc::client::StoredRecord;
use wardgate_transparency::{
    Checkpoint, CompactTree, Hash, SignedNote, TILE_WIDTH, TileId, encode_entry, tiles_of_size,
};

use crate::canonical::leaf_hash;
use crate::record_line::{CHECKPOINT, RECORDS, write_line};
use crate::store::StoreReader;
use crate::{Error, proof};

/// Number of levels of the tree that one tile spans.
const TILE_HEIGHT: u8 = 8;

/// A part of an export.
#[derive(Debug, Clone)]
pub enum ExportPart {
    /// The leaf hashes of the next 256 records, which retention removed. All such parts precede the first record.
    PrunedTile(Vec<u8>),
    /// The next record.
    Record(StoredRecord),
}

/// Returns all parts that the checkpoint `note` covers, in order. Fails if a record was changed or is missing.
pub(crate) async fn parts(
    reader: StoreReader,
    note: &SignedNote,
) -> Result<impl Stream<Item = Result<ExportPart, Error>> + Send + use<>, Error> {
    let size = proof::size_of(note)?;
    let minimum_index = reader.head().await?.minimum_index.min(size);
    let bundles = stream::try_unfold(0, move |start| {
        let reader = reader.clone();
        async move {
            let end = size.min(start + TILE_WIDTH);
            if start == end {
                return Ok::<_, Error>(None);
            }
            if end <= minimum_index {
                let hashes = reader.leaf_hashes(start..end).await?;
                let tile = vec![Ok(ExportPart::PrunedTile(hashes))];
                return Ok(Some((stream::iter(tile), end)));
            }
            let records = reader.records(start..end).await?;
            let records = records
                .into_iter()
                .map(|record| Ok(ExportPart::Record(record.into())));
            Ok(Some((stream::iter(records.collect::<Vec<_>>()), end)))
        }
    });
    Ok(bundles.try_flatten())
}

/// The directory of an export.
#[derive(Debug)]
pub struct ExportDirectory(PathBuf);

impl ExportDirectory {
    /// Creates the directory at `path`, or uses an existing one that is empty.
    pub fn create(path: &Path) -> Result<Self, Error> {
        let directory = Self(path.to_owned());
        let at = |source| directory.error(source);
        fs::create_dir_all(path).map_err(at)?;
        if fs::read_dir(path).map_err(at)?.next().is_some() {
            return Err(at(std::io::ErrorKind::DirectoryNotEmpty.into()));
        }
        Ok(directory)
    }

    /// Writes `parts`, their tree and the checkpoint `note`, which covers exactly these parts. Calls `progress` with the number
    /// of records written and the total.
    pub async fn write<E: From<Error>>(
        &self,
        note: &SignedNote,
        parts: impl Stream<Item = Result<ExportPart, E>>,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<Checkpoint, E> {
        let at = |source| self.error(source);
        let checkpoint: Checkpoint = note.text().parse().map_err(Error::from)?;
        let size = checkpoint.head.size;
        let mut lines = BufWriter::new(File::create(self.0.join(RECORDS)).map_err(at)?);
        let mut tree = CompactTree::default();
        // The hashes of the levels above the leaves, which need few tiles.
        let mut roots = BTreeMap::<u8, Vec<Hash>>::new();
        let mut bundle = Bundle::default();
        let mut grow = |tree: &mut CompactTree, leaf: Hash| {
            tree.append(leaf, |node, root| {
                if node.height % TILE_HEIGHT == 0 {
                    roots
                        .entry(node.height / TILE_HEIGHT)
                        .or_default()
                        .push(*root);
                }
            });
        };
        let mut has_records = false;
        pin_mut!(parts);
        while let Some(part) = parts.try_next().await? {
            let record = match part {
                ExportPart::Record(record) => record,
                ExportPart::PrunedTile(hashes) => {
                    let (leaves, rest) = hashes.as_chunks::<32>();
                    let index = tree.size() / TILE_WIDTH;
                    let is_whole = leaves.len() as u64 == TILE_WIDTH && rest.is_empty();
                    let id = TileId::new(0, index, size).filter(|_| is_whole && !has_records);
                    let problem = || Error::DamagedTree("a tile is out of order".to_owned());
                    self.file(&id.ok_or_else(problem)?.path(), &hashes)?;
                    for leaf in leaves {
                        grow(&mut tree, *leaf);
                    }
                    progress(tree.size(), size);
                    continue;
                }
            };
            has_records = true;
            if record.sequence != tree.size() || record.sequence >= size {
                let problem = format!("record {} is out of order", record.sequence);
                return Err(Error::DamagedTree(problem).into());
            }
            let hash = leaf_hash(&record.record);
            grow(&mut tree, *hash.as_bytes());
            bundle.add(&record, hash)?;
            let is_full = tree.size().is_multiple_of(TILE_WIDTH);
            if is_full || tree.size() == size {
                let written = std::mem::take(&mut bundle);
                lines.write_all(&written.lines).map_err(at)?;
                let index = record.sequence / TILE_WIDTH;
                if let Some(id) = TileId::new(0, index, size) {
                    self.file(&id.bundle_path(), &written.entries)?;
                    self.file(&id.path(), &written.hashes)?;
                }
                progress(tree.size(), size);
            }
        }
        if tree.head() != checkpoint.head {
            let problem =
                format!("the records below {size} do not match the root of the checkpoint");
            return Err(Error::DamagedTree(problem).into());
        }
        for id in tiles_of_size(size).filter(|id| id.level() > 0) {
            let hashes = roots.get(&id.level()).into_iter().flatten();
            let range = id.range();
            let width = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
            let first = usize::try_from(range.start).unwrap_or(usize::MAX);
            let hashes: Vec<_> = hashes.skip(first).take(width).copied().collect();
            self.file(&id.path(), hashes.as_flattened())?;
        }
        lines.flush().map_err(at)?;
        self.file(CHECKPOINT, note.to_string().as_bytes())?;
        Ok(checkpoint)
    }

    fn file(&self, path: &str, bytes: &[u8]) -> Result<(), Error> {
        let path = self.0.join(path);
        let directory = path.parent().map_or(Ok(()), fs::create_dir_all);
        directory
            .and_then(|()| fs::write(&path, bytes))
            .map_err(|source| self.error(source))
    }

    fn error(&self, source: std::io::Error) -> Error {
        Error::ExportDirectory {
            directory: self.0.display().to_string(),
            source,
        }
    }
}

/// The records of one tile, in each of the forms that are written.
#[derive(Default)]
struct Bundle {
    hashes: Vec<u8>,
    entries: Vec<u8>,
    lines: Vec<u8>,
}

impl Bundle {
    fn add(&mut self, record: &StoredRecord, hash: Digest) -> Result<(), Error> {
        self.hashes.extend_from_slice(hash.as_bytes());
        encode_entry(&record.record, &mut self.entries)?;
        write_line(record.sequence, &record.record, &mut self.lines);
        Ok(())
    }
}
