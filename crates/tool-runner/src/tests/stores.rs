//! Stores of the tool-runner, all with the same key.

use wardgate_domain::Ambient;
use wardgate_store::DatabaseSettings;
use wardgate_testkit::{TestDatabase, until};

use crate::store::{SealingKey, StoreError, ToolRunnerStore};
use crate::tests::database;

/// Opens the store at `url` without preparing it.
pub(crate) fn store(url: &str, ambient: Ambient) -> Result<ToolRunnerStore, StoreError> {
    let key = SealingKey::derive(&[7; 32]);
    ToolRunnerStore::open(url, &DatabaseSettings::default(), key, ambient)
}

/// Opens the store at `url` and prepares its schema. A busy machine may ask to try again later, so the call is
/// repeated.
pub(crate) async fn open_prepared(url: &str, ambient: Ambient) -> ToolRunnerStore {
    let store = store(url, ambient).unwrap();
    until("the store is prepared", async || {
        match store.prepare().await {
            Ok(()) => Some(()),
            Err(StoreError::Late | StoreError::Database(_)) => None,
            Err(error) => panic!("{error}"),
        }
    })
    .await;
    store
}

/// Returns a store of each kind that is available, with its schema.
pub(crate) async fn each_store() -> Vec<(TestDatabase, ToolRunnerStore)> {
    let mut stores = Vec::new();
    for database in database::each_store().await {
        let store = open_prepared(&database.url(), Ambient::system()).await;
        stores.push((database, store));
    }
    stores
}
