//! Checkpoints and proofs from the store.

use futures::{TryStreamExt, pin_mut};
use wardgate_domain::Digest;
use wardgate_rpc::client::QueriedRecord;
use wardgate_transparency::{
    Checkpoint, Hash, SignedNote, TlogProof, consistency_path, consistency_ranges, inclusion_path,
    inclusion_ranges, tiles_of_ranges,
};

use crate::Error;
use crate::filter::{BytesFilter, RecordFilter, parse_call_id};
use crate::query::{self, IndexCorruption};
use crate::store::StoreReader;

/// The kind of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CheckpointKind {
    /// The newest checkpoint that the log signed.
    #[default]
    Signed,
    /// The newest checkpoint that a quorum of witnesses cosigned, which can be slightly older.
    Cosigned,
}

/// Returns the newest checkpoint of `kind`.
pub(crate) async fn newest_checkpoint(
    reader: &StoreReader,
    kind: CheckpointKind,
) -> Result<SignedNote, Error> {
    let tree = reader.tree().await?;
    let stored = match kind {
        CheckpointKind::Signed => tree.checkpoint.ok_or(Error::NoCheckpoint)?,
        CheckpointKind::Cosigned => tree.cosigned.ok_or(Error::NotCosigned)?,
    };
    Ok(stored.parse()?)
}

/// Returns the number of records that a checkpoint covers.
pub(crate) fn size_of(note: &SignedNote) -> Result<u64, Error> {
    Ok(note.text().parse::<Checkpoint>()?.head.size)
}

/// Returns the proof that the tree of the first `old` records is a prefix of the tree of the first `new` records (RFC 6962,
/// section 2.1.2).
pub(crate) async fn prove_consistency(
    reader: &StoreReader,
    old: u64,
    new: u64,
) -> Result<Vec<Hash>, Error> {
    let ids = tiles_of_ranges(consistency_ranges(old, new), new);
    let tiles = reader.tiles(ids).await?;
    Ok(consistency_path(old, new, |node| tiles.node(node))?)
}

/// Returns the proof that the record at `sequence` is in the tree of the newest checkpoint of `kind`. The proof contains the
/// record as extra data.
pub(crate) async fn prove(
    reader: &StoreReader,
    sequence: u64,
    kind: CheckpointKind,
) -> Result<TlogProof, Error> {
    let note = newest_checkpoint(reader, kind).await?;
    let size = size_of(&note)?;
    if sequence >= size {
        return Err(Error::NotCovered { sequence, size });
    }
    let minimum_index = reader.head().await?.minimum_index;
    if sequence < minimum_index {
        return Err(Error::Pruned {
            sequence,
            minimum_index,
        });
    }
    let ids = tiles_of_ranges(inclusion_ranges(sequence, size), size);
    let tiles = reader.tiles(ids).await?;
    let path = inclusion_path(sequence, size, |node| tiles.node(node))?;
    let record = reader.records(sequence..sequence + 1).await?.pop();
    Ok(TlogProof {
        extra: record.map(|record| record.canonical),
        index: sequence,
        path,
        checkpoint: note,
    })
}

/// Returns the sequence number of the last record of the call `call_id`; with `leaf_hash`, of the record with this hash. With
/// `tenant`, only records of that tenant are considered.
pub(crate) async fn find_of_call(
    reader: &StoreReader,
    call_id: &str,
    leaf_hash: Option<Digest>,
    tenant: Option<String>,
) -> Result<u64, Error> {
    let filter = RecordFilter {
        call_id: Some(parse_call_id(call_id)?),
        newest_first: true,
        bytes: BytesFilter {
            tenant,
            ..BytesFilter::default()
        },
        ..RecordFilter::default()
    };
    let records = query::pages(reader.clone(), None, filter, IndexCorruption::default());
    pin_mut!(records);
    let mut damaged = None;
    while let Some(found) = records.try_next().await? {
        match found {
            QueriedRecord::Intact(stored) => {
                if leaf_hash.is_none_or(|wanted| wanted == stored.leaf_hash) {
                    return Ok(stored.sequence);
                }
            }
            QueriedRecord::Damaged(damage) if damage.is_warning => {}
            QueriedRecord::Damaged(damage) => damaged = damaged.or(Some(damage)),
        }
    }
    let call_id = call_id.to_owned();
    Err(match (damaged, leaf_hash) {
        (Some(damage), _) => Error::Damaged(damage),
        (None, Some(_)) => Error::NoSuchReceipt { call_id },
        (None, None) => Error::NoSuchCall { call_id },
    })
}
