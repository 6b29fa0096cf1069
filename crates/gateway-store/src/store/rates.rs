//! Rates that gateways share if the store is PostgreSQL.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use wardgate_resilience::{Lease, LeaseRequest, LeaseStore, LeaseStoreUnavailable};
use wardgate_store::{Address, RateStatements, rate_statements};

use super::{Store, StoreError, within_limit};

const STATEMENTS: RateStatements = rate_statements!("gateway");

pub(crate) const SWEEP: &str = STATEMENTS.sweep;
pub(crate) const SWEEP_REPLICAS: &str = STATEMENTS.sweep_replicas;

impl Store {
    /// Returns the store of shared rates, or `None` if the store is a file, which belongs to one gateway.
    pub fn shared_rates(self: &Arc<Self>) -> Option<Arc<dyn LeaseStore>> {
        match self.address {
            Address::Postgres(_) => Some(Arc::clone(self) as Arc<dyn LeaseStore>),
            Address::Sqlite(_) => None,
        }
    }
}

impl LeaseStore for Store {
    fn lease(&self, request: LeaseRequest) -> BoxFuture<'_, Result<Lease, LeaseStoreUnavailable>> {
        async move {
            let database = self.database().await?;
            let lease = database.lease_calls(STATEMENTS, request);
            self.log_failure_of(within_limit(lease.boxed()).await)
        }
        .map(|lease: Result<Lease, StoreError>| lease.map_err(|_| LeaseStoreUnavailable))
        .boxed()
    }

    fn announce(&self, replica: [u8; 16]) -> BoxFuture<'_, Result<u32, LeaseStoreUnavailable>> {
        async move {
            let database = self.database().await?;
            let announced = database.announce_replica(STATEMENTS, replica);
            self.log_failure_of(within_limit(announced.boxed()).await)
        }
        .map(|announced: Result<u32, StoreError>| announced.map_err(|_| LeaseStoreUnavailable))
        .boxed()
    }
}
