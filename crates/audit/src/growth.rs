//! How large the record is, and by how much it can still grow.

use std::path::Path;
use std::time::Duration;

use metrics::gauge;
use nix::sys::statvfs::statvfs;
use tokio::time::{MissedTickBehavior, interval};
use wardgate_telemetry::names;

use crate::Error;
use crate::store::{Address, StoreReader};

/// How often it is measured.
const INTERVAL: Duration = Duration::from_mins(1);

/// The monitor of the size of the record's store.
pub(crate) struct GrowthMonitor {
    pub(crate) reader: StoreReader,
    pub(crate) address: Address,
    /// The bytes that the store may take, where an operator says so.
    pub(crate) capacity: Option<u64>,
}

impl GrowthMonitor {
    /// Measures until it is dropped.
    pub(crate) async fn run(self) {
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if let Err(error) = self.measure().await {
                let error = &error as &dyn std::error::Error;
                tracing::debug!(error, "the size of the record cannot be measured now");
            }
        }
    }

    async fn measure(&self) -> Result<(), Error> {
        let bytes = self.reader.bytes().await?;
        gauge!(names::AUDIT_STORE_BYTES).set(as_float(bytes));
        if let Some(free) = self.free(bytes) {
            gauge!(names::AUDIT_STORE_FREE_BYTES).set(as_float(free));
        }
        Ok(())
    }

    /// The bytes that are left of the capacity, or of the file system of a file; none at a server whose capacity nobody
    /// said.
    fn free(&self, bytes: u64) -> Option<u64> {
        let left = self.capacity.map(|capacity| capacity.saturating_sub(bytes));
        let of_the_disk = match &self.address {
            Address::Sqlite(path) => free_beside(path),
            Address::Postgres(_) => None,
        };
        left.into_iter().chain(of_the_disk).min()
    }
}

fn free_beside(path: &Path) -> Option<u64> {
    let disk = statvfs(path).ok()?;
    Some(disk.blocks_available() * disk.fragment_size())
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a gauge is a float, and exact to a byte up to 8 PiB"
)]
fn as_float(bytes: u64) -> f64 {
    bytes as f64
}

#[cfg(test)]
mod tests {
    use wardgate_store::DatabaseSettings;

    use super::*;
    use crate::store;

    #[tokio::test]
    async fn what_is_left_is_the_lesser_of_the_capacity_and_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", dir.path().join("audit.sqlite").display());
        let address: Address = url.parse().unwrap();
        let settings = DatabaseSettings::default();
        store::prepare(&address, &settings).await.unwrap();
        let growth = |capacity| GrowthMonitor {
            reader: StoreReader::new(&address, &settings),
            address: address.clone(),
            capacity,
        };
        let bytes = growth(None).reader.bytes().await.unwrap();
        assert!(bytes > 4_096, "{bytes}");
        assert!(growth(None).free(bytes).is_some_and(|free| free > 0));
        assert_eq!(growth(Some(bytes + 7)).free(bytes), Some(7));
        assert_eq!(growth(Some(0)).free(bytes), Some(0));
        let server = GrowthMonitor {
            address: "postgres://h/d".parse().unwrap(),
            ..growth(None)
        };
        assert_eq!(server.free(bytes), None);
    }
}
