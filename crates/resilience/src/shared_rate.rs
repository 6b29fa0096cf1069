//! One rate for all replicas of a service: each takes calls out of a shared bucket in small leases.
//!
//! ```text
//!   call ─▶ leased calls left? ──yes──▶ through
//!                │ no
//!                ▼
//!           bucket known to be empty? ──yes──▶ wait
//!                │ no
//!                ▼
//!           lease store ──calls──▶ through     (a call at least, at most a hundredth of the rate)
//!                │ does not answer
//!                ▼
//!           this replica's share of the bucket as it was last known; what is used of it is reported afterwards
//! ```
//!
//! Once the store answers again, each replica keeps to its share for a while: others may not have reported yet, and what they
//! used would be given out twice.
//!
//! Without a lease store there is one replica, and a bucket is a number in its memory.

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

/// How long a call waits for a lease before its replica decides alone.
const LEASE_LIMIT: Duration = Duration::from_millis(250);

/// For how long a store that did not answer is not asked again.
const STORE_PAUSE: Duration = Duration::from_secs(1);

/// For how long a replica keeps to its share after the store is back. By then the others have asked it too: each does not for a
/// pause, and possibly once more for one, where a connection broke.
const SHARE_AFTERWARDS: Duration = Duration::from_millis(2_500);

/// How long leased calls can be used. What is left of them then is lost, so that a quiet replica hoards nothing.
const LEASE_LIFE: Duration = Duration::from_secs(5);

/// How often a replica announces itself, at most.
const ANNOUNCE_EVERY: Duration = Duration::from_secs(5);

/// The part of a full bucket that one lease takes, at most.
const LEASES_PER_BUCKET: u32 = 100;

/// What a replica asks the lease store for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseRequest {
    /// Whose calls.
    pub bucket: Digest,
    /// How many calls to take, if the bucket has so many, at most a full bucket. 0 only reports `spent`.
    pub calls: u32,
    /// The fewest that are of use. With fewer in the bucket none is taken.
    pub least: u32,
    /// The time in which one call flows into the bucket.
    pub interval: Duration,
    /// The calls of a full bucket.
    pub capacity: u32,
    /// Calls that the replica let through while the store could not be asked. They are taken in any case.
    pub spent: u32,
}

/// What the lease store answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// The calls that the replica may let through. 0 where the bucket has too few.
    pub calls: u32,
    /// The time after which the bucket is full, if nobody takes more.
    pub full_in: Duration,
}

/// What a bucket has left, as one replica knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateStatus {
    /// The calls that the bucket had when the replica last asked, with those of its lease. While the store does not answer, and
    /// for a while after that, the calls of the replica's share.
    pub remaining: u32,
    /// The time for which there are no more: until the bucket is full, or until the next call where none is left or the last
    /// was refused.
    pub window: Duration,
}

/// The lease store does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the store of shared limits does not answer")]
pub struct LeaseStoreUnavailable;

/// The buckets that all replicas share.
pub trait LeaseStore: Send + Sync + 'static {
    /// Takes calls out of a bucket, all or nothing below `least`.
    fn lease(&self, request: LeaseRequest) -> BoxFuture<'_, Result<Lease, LeaseStoreUnavailable>>;

    /// Says that the replica runs, and learns how many do, itself included.
    fn announce(&self, replica: [u8; 16]) -> BoxFuture<'_, Result<u32, LeaseStoreUnavailable>>;
}

/// The buckets of all limits and callers. Outlives a changed configuration, so that a reload fills no bucket.
pub struct SharedRateLimiter {
    started: Instant,
    buckets: Cache<Digest, Arc<Mutex<Bucket>>>,
    store: Option<StoreLink>,
}

/// The lease store, and what is known of it.
struct StoreLink {
    leases: Arc<dyn LeaseStore>,
    replica: [u8; 16],
    /// The replicas at the last announcement.
    replicas: AtomicU32,
    /// Nanoseconds since the start: the next announcement, and until when the store is not asked.
    announce_at: AtomicU64,
    paused_until: AtomicU64,
    /// Until when this replica keeps to its share. The greatest number: the store is away.
    share_until: AtomicU64,
}

/// What a replica knows of one bucket. Instants are nanoseconds since the limiter was made.
#[derive(Debug, Default)]
struct Bucket {
    /// When the bucket is full, as last known.
    full_at: u64,
    leased: u32,
    leased_until: u64,
    /// Calls let through while the store could not be asked.
    spent: u32,
}

impl SharedRateLimiter {
    /// A limiter for one replica, or for all that have `store`.
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

    /// Takes `cost` calls out of a bucket, or says how long to wait. A cost above a full bucket is a full bucket.
    pub async fn take(&self, bucket: Digest, rate: Rate, cost: NonZeroU32) -> Result<(), Duration> {
        self.take_and_report(bucket, rate, cost).await.0
    }

    /// As [`Self::take`], with what is left afterwards.
    pub async fn take_and_report(
        &self,
        bucket: Digest,
        rate: Rate,
        cost: NonZeroU32,
    ) -> (Result<(), Duration>, RateStatus) {
        let make = || Ok::<_, Infallible>(Arc::default());
        let Ok(held) = self.buckets.get_or_insert_with(&bucket, make);
        // First come, first served: whoever waits for the same lease finds its calls when it is there.
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
            held.full_at = rate.take(cost, held.full_at, now)?;
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
        // A shared bucket fills no faster than its rate, so one that was too empty for this is so still.
        rate.take(cost, held.full_at, now)?;
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
        let wait = rate.take(cost, held.full_at, now).err();
        Err(wait.unwrap_or(Duration::from_nanos(rate.interval())))
    }

    /// Takes calls without the store, which learns of them afterwards.
    fn take_of_share(
        &self,
        store: &StoreLink,
        held: &mut Bucket,
        rate: Rate,
        cost: u32,
    ) -> Result<(), Duration> {
        let share = rate.share(store.replicas.load(Ordering::Relaxed));
        held.full_at = share.take(cost, held.full_at, self.now())?;
        held.spent = held.spent.saturating_add(cost);
        Ok(())
    }

    /// What is left in the bucket that is `held`, of which a call was `taken`.
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
        let remaining = rate.remaining(held.full_at, now).saturating_add(leased);
        let remaining = remaining.min(rate.calls());
        let until_full = rate.interval() * u64::from(rate.calls() - remaining);
        let window = match taken {
            Err(wait) => wait,
            Ok(()) if remaining == 0 => rate.take(1, held.full_at, now).err().unwrap_or_default(),
            Ok(()) => Duration::from_nanos(until_full),
        };
        RateStatus { remaining, window }
    }

    /// The time after which a bucket is full, as this replica knows.
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
    /// Whether this replica lets through its share alone: while the store is away, and for a while after that.
    fn keeps_to_share(&self, now: u64) -> bool {
        now < self.share_until.load(Ordering::Relaxed)
    }

    fn is_away(&self) -> bool {
        self.share_until.load(Ordering::Relaxed) == u64::MAX
    }

    /// A lease, unless the store does not answer in time, or did not a moment ago.
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
        tracing::warn!("shared limits cannot be asked for; this replica uses its share of them");
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
