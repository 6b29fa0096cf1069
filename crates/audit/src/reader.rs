//! The record for a command on the same machine, with the service running or not.

use std::path::Path;

use futures::Stream;
use wardgate_rpc::client::{AuditFilter, QueriedRecord};
use wardgate_store::DatabaseSettings;
use wardgate_transparency::{Checkpoint, SignedNote, TlogProof};

use crate::store::{self, Address};
use crate::{CheckpointKind, Error, export, proof, query};

/// Reads a store and never writes to it.
#[derive(Debug, Clone)]
pub struct RecordReader(store::StoreReader);

impl RecordReader {
    /// Opens the store at `store`, spelt as in the configuration. It must exist and have the schema of
    /// this program.
    pub async fn open(store: &str) -> Result<Self, Error> {
        let address: Address = store.parse()?;
        let reader = store::StoreReader::new(&address, &DatabaseSettings::default());
        reader.check_schema(&address).await?;
        Ok(Self(reader))
    }

    /// The newest checkpoint of a kind.
    pub async fn checkpoint(&self, kind: CheckpointKind) -> Result<SignedNote, Error> {
        proof::newest_checkpoint(&self.0, kind).await
    }

    /// The proof that the record at `sequence` is in the tree of the newest checkpoint of a kind, with the record.
    pub async fn prove(&self, sequence: u64, kind: CheckpointKind) -> Result<TlogProof, Error> {
        proof::prove(&self.0, sequence, kind).await
    }

    /// Writes the records of the newest checkpoint of a kind, their tree and the checkpoint to `directory`, which is empty or not
    /// there. `progress` hears how many records of how many are written.
    pub async fn export(
        &self,
        directory: &Path,
        kind: CheckpointKind,
        progress: impl FnMut(u64, u64),
    ) -> Result<Checkpoint, Error> {
        export::export(&self.0, directory, kind, progress).await
    }

    /// The records that match, as the service would give them.
    pub fn query(
        &self,
        filter: AuditFilter,
    ) -> Result<impl Stream<Item = Result<QueriedRecord, Error>> + Send + use<>, Error> {
        Ok(query::run(self.0.clone(), filter.try_into()?))
    }
}
