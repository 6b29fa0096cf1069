//! Rate limits that all tool-runners share if the store is PostgreSQL.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use wardgate_resilience::{Lease, LeaseRequest, LeaseStore, LeaseStoreUnavailable};
use wardgate_store::{RateStatements, rate_statements};

use super::{ToolRunnerStore, within};

const STATEMENTS: RateStatements = rate_statements!("tool_runner");

pub(super) const SWEEP: &str = STATEMENTS.sweep;
pub(super) const SWEEP_REPLICAS: &str = STATEMENTS.sweep_replicas;

impl ToolRunnerStore {
    /// Returns the store of shared rates, or `None` if the store is a file, which only one tool-runner uses.
    pub(crate) fn shared_rates(&self) -> Option<Arc<dyn LeaseStore>> {
        (!self.is_a_file()).then(|| Arc::new(self.clone()) as Arc<dyn LeaseStore>)
    }
}

impl LeaseStore for ToolRunnerStore {
    fn lease(&self, request: LeaseRequest) -> BoxFuture<'_, Result<Lease, LeaseStoreUnavailable>> {
        let lease = within(self.database.lease_calls(STATEMENTS, request));
        lease
            .map(|lease| lease.map_err(|_| LeaseStoreUnavailable))
            .boxed()
    }

    fn announce(&self, replica: [u8; 16]) -> BoxFuture<'_, Result<u32, LeaseStoreUnavailable>> {
        let announced = within(self.database.announce_replica(STATEMENTS, replica));
        announced
            .map(|announced| announced.map_err(|_| LeaseStoreUnavailable))
            .boxed()
    }
}
