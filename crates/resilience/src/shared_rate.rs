//! A rate limit shared by all replicas of a service: each replica takes calls out of a shared bucket in small leases.
//!
//! ```text
//!   call ─▶ leased calls left? ──yes──▶ admitted
//!                │ no
//!                ▼
//!           bucket known to be empty? ──yes──▶ wait
//!                │ no
//!                ▼
//!           lease store ──calls──▶ admitted     (at least one call, at most a hundredth of the rate)
//!                │ unavailable
//!                ▼
//!           this replica's share of the last known bucket; its usage is reported afterwards
//! ```
//!
//! When the store is available again, each replica keeps to its share for a while: other replicas may not have reported
//! their usage yet, so those calls would be given out twice.
//!
//! Without a lease store there is only one replica, and a bucket is a number in its memory.

use std::convert::Infallible;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use quick_cache::sync::Cache;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use wardgate_domain::{Ambient, Digest};

use super::rate::{BUCKETS, Rate};

/// Maximum time for which a call waits for a lease before its replica decides alone.
const LEASE_LIMIT: Duration = Duration::from_millis(250);

/// Time for which an unavailable store is not asked again.
const STORE_PAUSE: Duration = Duration::from_secs(1);

/// Time for which a replica keeps to its share after the store is available again. By then the other replicas have
/// asked the store too: each pauses for [`STORE_PAUSE`], and possibly a second time if a connection broke.
const SHARE_AFTERWARDS: Duration = Duration::from_millis(2_500);

/// Lifetime of leased calls. Calls that are left after it are lost, so that an idle replica does not hoard them.
const LEASE_LIFE: Duration = Duration::from_secs(5);

/// Minimum interval between two announcements of a replica.
const ANNOUNCE_EVERY: Duration = Duration::from_secs(5);

/// Divisor of the rate that gives the size of a lease, unless a single call costs more.
const LEASES_PER_BUCKET: u32 = 100;

/// A request to the lease store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseRequest {
    /// The bucket.
    pub bucket: Digest,
    /// The number of calls to take if the bucket has as many, at most a full bucket. 0 only reports `spent`.
    pub calls: u32,
    /// The smallest useful number of calls. If the bucket has fewer, none is taken.
    pub least: u32,
    /// The time in which one call flows into the bucket.
    pub interval: Duration,
    /// The number of calls of a full bucket.
    pub capacity: u32,
    /// The number of calls that the replica admitted while the store was unavailable. They are taken in any case.
    pub spent: u32,
}

/// The response of the lease store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// The number of calls that the replica may admit, or 0 if the bucket has too few.
    pub calls: u32,
    /// The time after which the bucket is full if nothing more is taken.
    pub full_in: Duration,
}

/// What is left of a bucket, as far as one replica knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateStatus {
    /// The number of calls in the bucket when the replica last asked, plus the rest of its lease. While the store is
    /// unavailable, and for a while after that, the calls of the replica's share.
    pub remaining: u32,
    /// The time until the bucket is full, or until the next call is available if none is left or the last one was
    /// refused.
    pub window: Duration,
}

/// The lease store is unavailable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the store of shared limits did not answer")]
pub struct LeaseStoreUnavailable;

/// The store of the buckets that all replicas share.
pub trait LeaseStore: Send + Sync + 'static {
    /// Takes calls out of a bucket. Takes none if it has fewer than `least`.
    fn lease(&self, request: LeaseRequest) -> BoxFuture<'_, Result<Lease, LeaseStoreUnavailable>>;

    /// Announces that the replica is running, and returns the number of running replicas including it.
    fn announce(&self, replica: [u8; 16]) -> BoxFuture<'_, Result<u32, LeaseStoreUnavailable>>;
}

/// The buckets of all limits and callers. They outlive a reload of the configuration, so that a reload does not fill
/// them.
pub struct SharedRateLimiter {
    started: Instant,
    buckets: Cache<Digest, Arc<Mutex<Bucket>>>,
    store: Option<StoreLink>,
}

/// The lease store and its state.
struct StoreLink {
    leases: Arc<dyn LeaseStore>,
    replica: [u8; 16],
    /// The number of replicas at the last announcement.
    replicas: AtomicU32,
    /// The time of the next announcement, and the end of the pause of an unavailable store, in nanoseconds since the
    /// start.
    announce_at: AtomicU64,
    paused_until: AtomicU64,
    /// The time until which this replica keeps to its share. `u64::MAX` means that the store is unavailable.
    share_until: AtomicU64,
}

/// What a replica knows about one bucket. Instants are in nanoseconds since the limiter was created.
#[derive(Debug, Default)]
struct Bucket {
    /// The last known instant at which the bucket is full.
    full_at: u64,
    leased: u32,
    leased_until: u64,
    /// The number of calls that were admitted while the store was unavailable.
    spent: u32,
}

impl SharedRateLimiter {
    /// Creates a limiter for a single replica, or for all replicas that use `store`.
    pub fn new(store: Option<Arc<dyn LeaseStore>>, ambient: &Ambient) -> Self {
        Self {
            started: Instant::now(),
            buckets: Cache::new(BUCKETS),
            store: store.map(|leases| StoreLink {
                leases,
                replica: ambient.random(),
                replicas: AtomicU32::new(1),
                announce_at: AtomicU64::new(0),
                paused_until: AtomicU64::new(0),
                share_until: AtomicU64::new(0),
            }),
        }
    }

    /// Takes `cost` calls out of a bucket. If it has too few, returns how long to wait as an error. A cost above a full
    /// bucket counts as a full bucket.
    pub async fn try_acquire_calls(
        &self,
        bucket: Digest,
        rate: Rate,
        cost: NonZeroU32,
    ) -> Result<(), Duration> {
        self.take_and_report(bucket, rate, cost).await.0
    }

    /// Like [`Self::try_acquire_calls`], but also returns what is left.
    pub async fn take_and_report(
        &self,
        bucket: Digest,
        rate: Rate,
        cost: NonZeroU32,
    ) -> (Result<(), Duration>, RateStatus) {
        let make = || Ok::<_, Infallible>(Arc::default());
        let Ok(held) = self.buckets.get_or_insert_with(&bucket, make);
        // The lock is fair, so calls that wait for the same lease find its calls when it arrives.
        let mut held = held.lock().await;
        let taken = self.take_from(&mut held, bucket, rate, cost).await;
        (taken, self.status(&held, rate, taken))
    }

    async fn take_from(
        &self,
        held: &mut Bucket,
        bucket: Digest,
        rate: Rate,
        cost: NonZeroU32,
    ) -> Result<(), Duration> {
        let cost = cost.get().min(rate.calls());
        let now = self.now();
        if held.leased >= cost && now < held.leased_until {
            held.leased -= cost;
            return Ok(());
        }
        let Some(store) = &self.store else {
            held.full_at = rate.try_acquire_calls(cost, held.full_at, now)?;
            return Ok(());
        };
        let request = LeaseRequest {
            bucket,
            calls: cost.max(rate.calls() / LEASES_PER_BUCKET),
            least: cost,
            interval: Duration::from_nanos(rate.interval()),
            capacity: rate.calls(),
            spent: held.spent,
        };
        if store.keeps_to_share(now) {
            if held.spent > 0 || store.is_away() {
                let report = LeaseRequest {
                    calls: 0,
                    least: 0,
                    ..request
                };
                if store.lease(report, now).await.is_some() {
                    held.spent = 0;
                }
            }
            return self.take_of_share(store, held, rate, cost);
        }
        // A shared bucket fills no faster than its rate, so a bucket that had too few calls still has.
        rate.try_acquire_calls(cost, held.full_at, now)?;
        let Some(lease) = store.lease(request, now).await else {
            return self.take_of_share(store, held, rate, cost);
        };
        let now = self.now();
        held.full_at = now.saturating_add(nanos(lease.full_in));
        held.spent = 0;
        held.leased = lease.calls.saturating_sub(cost);
        held.leased_until = now + nanos(LEASE_LIFE);
        if lease.calls >= cost {
            return Ok(());
        }
        let wait = rate.try_acquire_calls(cost, held.full_at, now).err();
        Err(wait.unwrap_or(Duration::from_nanos(rate.interval())))
    }

    /// Takes calls without the store, which receives a report afterwards.
    fn take_of_share(
        &self,
        store: &StoreLink,
        held: &mut Bucket,
        rate: Rate,
        cost: u32,
    ) -> Result<(), Duration> {
        let share = rate.share(store.replicas.load(Ordering::Relaxed));
        held.full_at = share.try_acquire_calls(cost, held.full_at, self.now())?;
        held.spent = held.spent.saturating_add(cost);
        Ok(())
    }

    /// Returns what is left of the bucket `held` after the result `taken`.
    fn status(&self, held: &Bucket, rate: Rate, taken: Result<(), Duration>) -> RateStatus {
        let now = self.now();
        let store = self.store.as_ref();
        let sharing = store.filter(|store| store.keeps_to_share(now));
        let rate = sharing.map_or(rate, |store| {
            rate.share(store.replicas.load(Ordering::Relaxed))
        });
        let leased = if now < held.leased_until {
            held.leased
        } else {
            0
        };
        let remaining = rate
            .remaining_calls(held.full_at, now)
            .saturating_add(leased);
        let remaining = remaining.min(rate.calls());
        let until_full = rate.interval() * u64::from(rate.calls() - remaining);
        let window = match taken {
            Err(wait) => wait,
            Ok(()) if remaining == 0 => rate
                .try_acquire_calls(1, held.full_at, now)
                .err()
                .unwrap_or_default(),
            Ok(()) => Duration::from_nanos(until_full),
        };
        RateStatus { remaining, window }
    }

    /// Returns the time after which a bucket is full, as far as this replica knows.
    pub(crate) async fn full_in(&self, bucket: Digest) -> Duration {
        match self.buckets.get(&bucket) {
            Some(held) => {
                let full_at = held.lock().await.full_at;
                Duration::from_nanos(full_at.saturating_sub(self.now()))
            }
            None => Duration::ZERO,
        }
    }

    /// Gives back what was taken for a call that another limit refused.
    pub(crate) async fn give_back(&self, bucket: Digest, rate: Rate, cost: NonZeroU32) {
        let cost = cost.get().min(rate.calls());
        let Some(held) = self.buckets.get(&bucket) else {
            return;
        };
        let mut held = held.lock().await;
        if self.store.is_some() {
            held.leased = held.leased.saturating_add(cost);
            held.leased_until = self.now() + nanos(LEASE_LIFE);
        } else {
            let returned = rate.interval() * u64::from(cost);
            held.full_at = held.full_at.saturating_sub(returned);
        }
    }

    fn now(&self) -> u64 {
        nanos(self.started.elapsed())
    }
}

impl StoreLink {
    /// Returns whether this replica admits only its share: while the store is unavailable, and for a while after that.
    fn keeps_to_share(&self, now: u64) -> bool {
        now < self.share_until.load(Ordering::Relaxed)
    }

    fn is_away(&self) -> bool {
        self.share_until.load(Ordering::Relaxed) == u64::MAX
    }

    /// Requests a lease. Returns `None` if the store does not answer in time, or did not a moment ago.
    async fn lease(&self, request: LeaseRequest, now: u64) -> Option<Lease> {
        if now < self.paused_until.load(Ordering::Relaxed) {
            return None;
        }
        let asked = async {
            if self.announce_at.load(Ordering::Relaxed) <= now {
                self.announce_at
                    .store(now + nanos(ANNOUNCE_EVERY), Ordering::Relaxed);
                let replicas = self.leases.announce(self.replica).await?;
                self.replicas.store(replicas.max(1), Ordering::Relaxed);
            }
            self.leases.lease(request).await
        };
        let lease = timeout(LEASE_LIMIT, asked).await;
        if let Ok(Ok(lease)) = lease {
            if self.is_away() {
                self.share_until
                    .store(now + nanos(SHARE_AFTERWARDS), Ordering::Relaxed);
            }
            return Some(lease);
        }
        tracing::warn!(
            "the store of shared limits is not available; this replica applies its share of the limits"
        );
        self.announce_at.store(0, Ordering::Relaxed);
        self.share_until.store(u64::MAX, Ordering::Relaxed);
        self.paused_until
            .store(now + nanos(STORE_PAUSE), Ordering::Relaxed);
        None
    }
}

impl std::fmt::Debug for SharedRateLimiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedRateLimiter")
            .field("buckets", &self.buckets.len())
            .field("is_shared", &self.store.is_some())
            .finish_non_exhaustive()
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
