//! Checkpoints and proofs, of what the store holds.

use std::ops::Range;

use wardgate_rpc::client::RecordDamage;
use wardgate_transparency::{
    Checkpoint, SignedNote, TlogProof, inclusion_path, inclusion_ranges, tiles_of_ranges,
};

use crate::Error;
use crate::filter::RecordFilter;
use crate::store::{PageBounds, StoreReader};
use crate::stored_row::StoredRow;

/// The newest checkpoint that was signed.
pub(crate) async fn newest_checkpoint(reader: &StoreReader) -> Result<SignedNote, Error> {
    let stored = reader.tree().await?.checkpoint;
    Ok(stored.ok_or(Error::NoCheckpoint)?.parse()?)
}

/// The proof that the record at `sequence` is in the tree of the newest checkpoint; the record is its extra data.
pub(crate) async fn prove(reader: &StoreReader, sequence: u64) -> Result<TlogProof, Error> {
    let note = newest_checkpoint(reader).await?;
    let size = note.text().parse::<Checkpoint>()?.head.size;
    if sequence >= size {
        return Err(Error::NotCovered { sequence, size });
    }
    let ids = tiles_of_ranges(inclusion_ranges(sequence, size), size);
    let tiles = reader.tiles(ids).await?;
    let path = inclusion_path(sequence, size, |node| tiles.node(node))?;
    let record = records(reader, sequence..sequence + 1).await?.pop();
    Ok(TlogProof {
        extra: record.map(|record| record.canonical),
        index: sequence,
        path,
        checkpoint: note,
    })
}

/// All records of `range`, in order; an error where one was changed or is missing.
pub(crate) async fn records(
    reader: &StoreReader,
    range: Range<u64>,
) -> Result<Vec<StoredRow>, Error> {
    let page = PageBounds {
        limit: range.end - range.start,
        range,
        after: None,
        newest_first: false,
    };
    let read = reader.page(&RecordFilter::default(), &page).await?;
    let records = read.records.into_iter();
    let records = records.collect::<Result<Vec<_>, _>>();
    let records = records.map_err(Error::Damaged)?;
    let missing = page.range.clone().zip(
        records
            .iter()
            .map(|record| Some(record.sequence))
            .chain(std::iter::repeat(None)),
    );
    for (sequence, found) in missing {
        if found != Some(sequence) {
            let problem = "is missing".to_owned();
            return Err(Error::Damaged(RecordDamage { sequence, problem }));
        }
    }
    Ok(records)
}
