//! Read access to the audit log for a command on the same machine, whether the service runs or not.

use std::path::Path;
use std::sync::Arc;

use futures::Stream;
use wardgate_domain::{Digest, Timestamp};
use wardgate_rpc::client::{AuditFilter, QueriedRecord};
use wardgate_store::DatabaseSettings;
use wardgate_transparency::{Checkpoint, SignedNote, TlogProof};

use crate::details::DetailsVault;
use crate::details_key::DetailsKeys;
use crate::filter::RecordFilter;
use crate::query::{self, IndexCorruption};
use crate::store::{self, Address};
use crate::{
    CheckpointKind, Error, ExportDirectory, StoreGrowth, StoreRoom, export, proof, second_copy,
};

/// Reads a store and never writes to it.
#[derive(Debug, Clone)]
pub struct RecordReader {
    address: Address,
    store: store::StoreReader,
    vault: Option<Arc<DetailsVault>>,
}

impl RecordReader {
    /// Opens the store at the address `store`, in the syntax of the configuration, with the connection `settings`. The store
    /// must exist and have the schema of this program.
    pub async fn open(store: &str, settings: &DatabaseSettings) -> Result<Self, Error> {
        let address = Address::new(store, settings)?;
        let reader = store::StoreReader::new(&address, settings);
        Box::pin(reader.check_schema(&address)).await?;
        Ok(Self {
            address,
            store: reader,
            vault: None,
        })
    }

    /// Returns this reader with the keys that open details and find data subjects. Fails if the master key of the store is none
    /// of them.
    pub async fn with_details_keys(self, keys: DetailsKeys) -> Result<Self, Error> {
        let vault = Box::pin(DetailsVault::open(keys, self.store.clone())).await?;
        Ok(Self {
            vault: Some(Arc::new(vault)),
            ..self
        })
    }

    /// Returns the newest checkpoint of `kind`.
    pub async fn checkpoint(&self, kind: CheckpointKind) -> Result<SignedNote, Error> {
        proof::newest_checkpoint(&self.store, kind).await
    }

    /// Returns the proof that the record at `sequence` is in the tree of the newest checkpoint of `kind`, with the record.
    pub async fn prove(&self, sequence: u64, kind: CheckpointKind) -> Result<TlogProof, Error> {
        proof::prove(&self.store, sequence, kind).await
    }

    /// Returns the sequence number of the last record of the call `call_id`; with `leaf_hash`, of the record with this hash.
    pub async fn find_of_call(
        &self,
        call_id: &str,
        leaf_hash: Option<Digest>,
    ) -> Result<u64, Error> {
        proof::find_of_call(&self.store, call_id, leaf_hash, None).await
    }

    /// Writes the newest checkpoint of `kind`, the records that it covers and their tree to `directory`, which must be empty or
    /// absent. Calls `progress` with the number of records written and the total.
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

    /// Returns the sequence number of the next record of an export to a security tool, and the number of records, or `None` if
    /// the export never started.
    pub async fn export_position(&self, export: &str) -> Result<Option<(u64, u64)>, Error> {
        let size = self.store.head().await?.size;
        let position = self.store.export_position(export).await?;
        Ok(position.map(|position| (position, size)))
    }

    /// Returns the size of the audit log at `now`, its rate of growth and the space that is left.
    pub async fn growth(&self, room: &StoreRoom, now: Timestamp) -> Result<StoreGrowth, Error> {
        StoreGrowth::measure(&self.store, &self.address, room, now).await
    }

    /// Returns how many records the second copy in `directory` and the store have. Fails if the newest records of the copy
    /// differ from those of the store.
    pub async fn compare_second_copy(&self, directory: &Path) -> Result<(u64, u64), Error> {
        let runs = second_copy::read_newest_runs(directory);
        let runs = runs.map_err(|problem| Error::second_copy(directory, problem))?;
        let copied = second_copy::compare_with_store(directory, &runs, &self.store).await?;
        Ok((copied, self.store.head().await?.size))
    }

    /// Returns the records that match, as the service would return them.
    pub fn query(
        &self,
        filter: AuditFilter,
    ) -> Result<impl Stream<Item = Result<QueriedRecord, Error>> + Send + use<>, Error> {
        let tags = self.vault.as_deref().map(DetailsVault::tags);
        let filter = RecordFilter::new(filter, tags)?;
        let (store, vault) = (self.store.clone(), self.vault.clone());
        Ok(query::run(store, vault, filter, IndexCorruption::default()))
    }
}
