//! The record for a command on the same machine, with the service running or not.

use std::path::Path;

use futures::Stream;
use wardgate_domain::{Digest, Timestamp};
use wardgate_rpc::client::{AuditFilter, QueriedRecord};
use wardgate_store::DatabaseSettings;
use wardgate_transparency::{Checkpoint, SignedNote, TlogProof};

use crate::details::DetailsVault;
use crate::details_key::DetailsKey;
use crate::filter::RecordFilter;
use crate::store::{self, Address};
use crate::{
    CheckpointKind, Error, ExportDirectory, StoreGrowth, StoreRoom, export, proof, query,
    second_copy,
};

/// Reads a store and never writes to it.
#[derive(Debug, Clone)]
pub struct RecordReader {
    address: Address,
    store: store::StoreReader,
    vault: Option<DetailsVault>,
}

impl RecordReader {
    /// Opens the store at `store`, spelt as in the configuration, as `settings` say. It must exist and have the schema of
    /// this program.
    pub async fn open(store: &str, settings: &DatabaseSettings) -> Result<Self, Error> {
        let address = Address::new(store, settings)?;
        let reader = store::StoreReader::new(&address, settings);
        reader.check_schema(&address).await?;
        Ok(Self {
            address,
            store: reader,
            vault: None,
        })
    }

    /// The same reader with the key that opens details and finds data subjects.
    #[must_use]
    pub fn with_details_key(self, key: DetailsKey) -> Self {
        let vault = Some(DetailsVault::new(key, self.store.clone()));
        Self { vault, ..self }
    }

    /// The newest checkpoint of a kind.
    pub async fn checkpoint(&self, kind: CheckpointKind) -> Result<SignedNote, Error> {
        proof::newest_checkpoint(&self.store, kind).await
    }

    /// The proof that the record at `sequence` is in the tree of the newest checkpoint of a kind, with the record.
    pub async fn prove(&self, sequence: u64, kind: CheckpointKind) -> Result<TlogProof, Error> {
        proof::prove(&self.store, sequence, kind).await
    }

    /// The position of the last record of the call `call_id`; with a leaf hash, of the one that has it.
    pub async fn find_of_call(
        &self,
        call_id: &str,
        leaf_hash: Option<Digest>,
    ) -> Result<u64, Error> {
        proof::find_of_call(&self.store, call_id, leaf_hash, None).await
    }

    /// Writes the records of the newest checkpoint of a kind, their tree and the checkpoint to `directory`, which is empty or not
    /// there. `progress` hears how many records of how many are written.
    pub async fn export(
        &self,
        directory: &Path,
        kind: CheckpointKind,
        progress: impl FnMut(u64, u64),
    ) -> Result<Checkpoint, Error> {
        let directory = ExportDirectory::create(directory)?;
        let checkpoint = self.checkpoint(kind).await?;
        let parts = export::parts(self.store.clone(), &checkpoint).await?;
        directory.write(&checkpoint, parts, progress).await
    }

    /// The position of the next record that goes to a security tool, and how many records there are; none where the export
    /// never began.
    pub async fn export_position(&self, export: &str) -> Result<Option<(u64, u64)>, Error> {
        let size = self.store.head().await?.size;
        let position = self.store.export_position(export).await?;
        Ok(position.map(|position| (position, size)))
    }

    /// The size of the record at `now`, its pace and its `room`.
    pub async fn growth(&self, room: &StoreRoom, now: Timestamp) -> Result<StoreGrowth, Error> {
        StoreGrowth::measure(&self.store, &self.address, room, now).await
    }

    /// How many records the second copy in `directory` has, and how many the store; an error where the newest of the copy are
    /// not those of the store.
    pub async fn compare_second_copy(&self, directory: &Path) -> Result<(u64, u64), Error> {
        let runs = second_copy::read_newest_runs(directory);
        let runs = runs.map_err(|problem| Error::second_copy(directory, problem))?;
        let copied = second_copy::compare_with_store(directory, &runs, &self.store).await?;
        Ok((copied, self.store.head().await?.size))
    }

    /// The records that match, as the service would give them.
    pub fn query(
        &self,
        filter: AuditFilter,
    ) -> Result<impl Stream<Item = Result<QueriedRecord, Error>> + Send + use<>, Error> {
        let key = self.vault.as_ref().map(DetailsVault::key);
        let filter = RecordFilter::of(filter, key)?;
        Ok(query::run(self.store.clone(), self.vault.clone(), filter))
    }
}
