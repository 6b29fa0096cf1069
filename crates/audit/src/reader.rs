//! The record for a command on the same machine, with the service running or not.

use futures::Stream;
use wardgate_rpc::client::{AuditFilter, QueriedRecord};
use wardgate_store::DatabaseSettings;
use wardgate_transparency::{SignedNote, TlogProof};

use crate::store::{self, Address};
use crate::{Error, proof, query};

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

    /// The newest signed checkpoint.
    pub async fn checkpoint(&self) -> Result<SignedNote, Error> {
        proof::newest_checkpoint(&self.0).await
    }

    /// The proof that the record at `sequence` is in the tree of the newest checkpoint, with the record.
    pub async fn prove(&self, sequence: u64) -> Result<TlogProof, Error> {
        proof::prove(&self.0, sequence).await
    }

    /// The records that match, as the service would give them.
    pub fn query(
        &self,
        filter: AuditFilter,
    ) -> Result<impl Stream<Item = Result<QueriedRecord, Error>> + Send + use<>, Error> {
        Ok(query::run(self.0.clone(), filter.try_into()?))
    }
}
