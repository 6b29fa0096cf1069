//! The record in files: what `verify` checks without the store.
//!
//! ```text
//!   DIR/checkpoint            the signed checkpoint
//!   DIR/tile/LEVEL/…          the hashes of its tree        (c2sp.org/tlog-tiles)
//!   DIR/tile/entries/…        the records, 256 to a file
//!   DIR/records.jsonl         the records, one to a line: {"sequence":0,"record":{…}}
//! ```

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use wardgate_transparency::{Checkpoint, CompactTree, encode_entry, tiles_of_size};

use crate::store::StoreReader;
use crate::{CheckpointKind, Error, proof};

/// The checkpoint's place in a directory.
pub(crate) const CHECKPOINT: &str = "checkpoint";

/// The records' place in a directory, one to a line.
pub(crate) const RECORDS: &str = "records.jsonl";

/// The line of `record` in [`RECORDS`].
pub(crate) fn line(sequence: u64, record: &[u8], line: &mut Vec<u8>) {
    line.extend_from_slice(format!("{{\"sequence\":{sequence},\"record\":").as_bytes());
    line.extend_from_slice(record);
    line.extend_from_slice(b"}\n");
}

/// Writes the records of the newest checkpoint of a kind, its tree and itself to the empty or absent directory `directory`.
/// `progress` hears how many records of how many are written.
pub(crate) async fn export(
    reader: &StoreReader,
    directory: &Path,
    kind: CheckpointKind,
    mut progress: impl FnMut(u64, u64),
) -> Result<Checkpoint, Error> {
    let at = |source| Error::Export {
        directory: directory.display().to_string(),
        source,
    };
    fs::create_dir_all(directory).map_err(at)?;
    if fs::read_dir(directory).map_err(at)?.next().is_some() {
        return Err(at(std::io::ErrorKind::DirectoryNotEmpty.into()));
    }
    let note = proof::newest_checkpoint(reader, kind).await?;
    let checkpoint: Checkpoint = note.text().parse()?;
    let size = checkpoint.head.size;
    let mut lines = BufWriter::new(File::create(directory.join(RECORDS)).map_err(at)?);
    let mut tree = CompactTree::default();
    for id in tiles_of_size(size) {
        let hashes = if id.level() == 0 {
            let (mut hashes, mut bundle, mut text) = (Vec::new(), Vec::new(), Vec::new());
            for record in proof::records(reader, id.range()).await? {
                let hash = record.leaf_hash.as_bytes();
                tree.append(*hash, |_, _| ());
                hashes.extend_from_slice(hash);
                encode_entry(&record.canonical, &mut bundle)?;
                line(record.sequence, &record.canonical, &mut text);
            }
            lines.write_all(&text).map_err(at)?;
            write(directory, &id.bundle_path(), &bundle).map_err(at)?;
            progress(tree.size(), size);
            hashes
        } else {
            reader.tile(id).await?
        };
        write(directory, &id.path(), &hashes).map_err(at)?;
    }
    if tree.head() != checkpoint.head {
        let problem = format!("the records below {size} do not have the root of the checkpoint");
        return Err(Error::DamagedTree(problem));
    }
    lines.flush().map_err(at)?;
    write(directory, CHECKPOINT, note.to_string().as_bytes()).map_err(at)?;
    Ok(checkpoint)
}

fn write(directory: &Path, path: &str, bytes: &[u8]) -> std::io::Result<()> {
    let path = directory.join(path);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(path, bytes)
}
