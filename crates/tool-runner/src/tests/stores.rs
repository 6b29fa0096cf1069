//! Stores of the tool-runner, all under one key.

use wardgate_domain::Ambient;
use wardgate_store::DatabaseSettings;

use super::database::Database;
use crate::store::{SealingKey, Store, StoreError};

/// The store at `url`, as it is.
pub(crate) fn store(url: &str, ambient: Ambient) -> Result<Store, StoreError> {
    let key = SealingKey::derive(&[7; 32]);
    Store::open(url, &DatabaseSettings::default(), key, ambient)
}

/// A store of each kind that is there, with its schema.
pub(crate) async fn each_store() -> Vec<(Database, Store)> {
    let mut stores = Vec::new();
    for database in Database::each_store().await {
        let store = store(&database.url(), Ambient::system()).unwrap();
        store.prepare().await.unwrap();
        stores.push((database, store));
    }
    stores
}
