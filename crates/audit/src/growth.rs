//! Measurement of the size of the audit log, its rate of growth, and the time until its store is full.

use std::path::{Path, PathBuf};
use std::time::Duration;

use metrics::gauge;
use tokio::time::{MissedTickBehavior, interval};
use wardgate_domain::{Ambient, Timestamp};
use wardgate_telemetry::{as_float, names};

use crate::Error;
use crate::store::{Address, StoreReader, StoreSize};

/// Interval between measurements.
const INTERVAL: Duration = Duration::from_mins(1);

/// Period whose records determine the rate of growth. It is a day, to include both busy and quiet hours.
const WINDOW: Duration = Duration::from_hours(24);

/// Minimum age that is assumed for the oldest record, so that an initial burst does not count as the rate of a whole day.
const LEAST_AGE: Duration = Duration::from_hours(1);

/// The size of the audit log in its store, its rate of growth, and the space that is left.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StoreGrowth {
    /// Size of the audit log in bytes.
    pub bytes: u64,
    /// Bytes by which the audit log can grow: the least of what is left of the capacity and what is free in the file systems of
    /// a SQLite file and of the second copy. `None` for a database server without a capacity and without a second copy.
    pub free: Option<u64>,
    /// Growth in bytes per day: the number of records of the last day, multiplied by the mean size of a record.
    pub bytes_per_day: f64,
}

impl StoreGrowth {
    /// Measures the store at `address`, whose size is limited by `room`.
    pub(crate) async fn measure(
        reader: &StoreReader,
        address: &Address,
        room: &StoreRoom,
        now: Timestamp,
    ) -> Result<Self, Error> {
        let size = reader.size_since(now.minus(WINDOW)).await?;
        Ok(Self {
            bytes: size.bytes,
            free: free(&size, address, room),
            bytes_per_day: bytes_per_day(&size, now),
        })
    }

    /// Returns the days until the store is full at this rate, infinite if it does not grow, or `None` if the free space is
    /// unknown.
    pub fn days_left(&self) -> Option<f64> {
        let free = as_float(self.free?);
        Some(if self.bytes_per_day > 0.0 {
            free / self.bytes_per_day
        } else {
            f64::INFINITY
        })
    }
}

fn bytes_per_day(size: &StoreSize, now: Timestamp) -> f64 {
    let age = size
        .oldest
        .map_or(Duration::ZERO, |oldest| now.since(oldest));
    let days = age.clamp(LEAST_AGE, WINDOW).as_secs_f64() / WINDOW.as_secs_f64();
    let per_record = as_float(size.bytes) / as_float(size.records.max(1));
    per_record * as_float(size.recent) / days
}

fn free(size: &StoreSize, address: &Address, room: &StoreRoom) -> Option<u64> {
    let capacity = room.capacity;
    let left = capacity.map(|capacity| capacity.saturating_sub(size.bytes));
    let of_the_disk = match address {
        Address::Sqlite(path) => free_beside(path).map(|free| free + size.reusable),
        Address::Postgres(_) => None,
    };
    let of_the_copy = room.second_copy.as_deref().and_then(free_beside);
    [left, of_the_disk, of_the_copy].into_iter().flatten().min()
}

/// Returns the free bytes of the file system of `path`, or `None` if they are unknown.
#[cfg(unix)]
fn free_beside(path: &Path) -> Option<u64> {
    let disk = nix::sys::statvfs::statvfs(path).ok()?;
    // The types of both numbers depend on the system.
    let bytes = u128::from(disk.blocks_available()) * u128::from(disk.fragment_size());
    u64::try_from(bytes).ok()
}

#[cfg(not(unix))]
fn free_beside(_path: &Path) -> Option<u64> {
    None
}

/// The limits on the size of the audit log besides the disk of its file.
#[derive(Debug, Clone, Default)]
pub struct StoreRoom {
    /// Maximum size of the store in bytes, or `None` if no capacity is configured.
    pub capacity: Option<u64>,
    /// The directory of the second copy. When its disk is full, nothing can be recorded.
    pub second_copy: Option<PathBuf>,
}

/// Measures the size of the store at regular intervals.
pub(crate) struct GrowthMonitor {
    pub(crate) reader: StoreReader,
    pub(crate) address: Address,
    pub(crate) room: StoreRoom,
    pub(crate) ambient: Ambient,
}

impl GrowthMonitor {
    /// Measures until the future is dropped.
    pub(crate) async fn run(self) {
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if let Err(error) = self.measure().await {
                let error = &error as &dyn std::error::Error;
                tracing::debug!(error, "the size of the audit log cannot be measured now");
            }
        }
    }

    async fn measure(&self) -> Result<(), Error> {
        let Self {
            reader, address, ..
        } = self;
        let now = self.ambient.now();
        let growth = StoreGrowth::measure(reader, address, &self.room, now).await?;
        gauge!(names::AUDIT_STORE_BYTES).set(as_float(growth.bytes));
        if let Some(free) = growth.free {
            gauge!(names::AUDIT_STORE_FREE_BYTES).set(as_float(free));
        }
        if let Some(days) = growth.days_left() {
            gauge!(names::AUDIT_STORE_DAYS_LEFT).set(days);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use wardgate_store::DatabaseSettings;

    use super::*;

    fn size(records: u64, recent: u64, age: Duration) -> StoreSize {
        StoreSize {
            bytes: 1_000 * records,
            reusable: 7,
            records,
            recent,
            oldest: Some(now().minus(age)),
        }
    }

    fn now() -> Timestamp {
        Timestamp::from_seconds(1_700_000_000)
    }

    fn days_left(size: &StoreSize, free: Option<u64>) -> Option<f64> {
        let growth = StoreGrowth {
            bytes: size.bytes,
            free,
            bytes_per_day: bytes_per_day(size, now()),
        };
        growth.days_left()
    }

    #[test]
    fn the_days_left_follow_the_records_of_the_last_day() {
        let old = size(1_000, 100, Duration::from_hours(24 * 30));
        assert_eq!(days_left(&old, Some(1_000_000)), Some(10.0));
        let young = size(100, 100, Duration::from_hours(6));
        assert_eq!(days_left(&young, Some(1_000_000)), Some(2.5));
        // An age of ten minutes counts as one hour.
        let new = size(10, 10, Duration::from_mins(10));
        assert_eq!(days_left(&new, Some(1_200_000)), Some(5.0));
    }

    #[test]
    fn a_record_that_does_not_grow_lasts_for_ever_and_one_of_unknown_room_as_long_as_nobody_knows()
    {
        let still = size(1_000, 0, Duration::from_hours(24 * 30));
        assert_eq!(days_left(&still, Some(1)), Some(f64::INFINITY));
        let empty = StoreSize {
            oldest: None,
            ..size(0, 0, Duration::ZERO)
        };
        assert_eq!(days_left(&empty, Some(1)), Some(f64::INFINITY));
        assert_eq!(days_left(&size(10, 10, Duration::ZERO), None), None);
    }

    #[test]
    fn what_is_left_is_the_least_of_the_capacity_and_the_disks() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.sqlite");
        std::fs::write(&path, "").unwrap();
        let file = Address::Sqlite(path);
        let size = size(1, 1, Duration::ZERO);
        let of = |capacity| StoreRoom {
            capacity,
            second_copy: None,
        };
        assert!(free(&size, &file, &of(None)).is_some_and(|free| free > 7));
        assert_eq!(free(&size, &file, &of(Some(size.bytes + 7))), Some(7));
        assert_eq!(free(&size, &file, &of(Some(0))), Some(0));
        let server = Address::new("postgres://h/d", &DatabaseSettings::default()).unwrap();
        assert_eq!(free(&size, &server, &of(None)), None);
        assert_eq!(free(&size, &server, &of(Some(size.bytes + 9))), Some(9));
        let copied = StoreRoom {
            capacity: None,
            second_copy: Some(dir.path().to_owned()),
        };
        assert!(free(&size, &server, &copied).is_some());
    }
}
