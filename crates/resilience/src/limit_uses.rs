//! The usage of limits and its owners, for operators.
//!
//! ```text
//!   request ─▶ bucket, a digest ──▶ LimitUses::note: its owner ──▶ memory, or the store that replicas share
//!   operator ─▶ LimitUses::list ◀── buckets that are not full, with their owners
//! ```
//!
//! The counts are those of the buckets themselves. Noting an owner does not delay the request.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use quick_cache::sync::Cache;
use tokio::time::Instant;
use wardgate_domain::Digest;

use super::limit_state::{BucketOwner, BucketUse, LimitOverview, LimitState};
use super::quota::{Quota, QuotaUse};
use super::rate::BUCKETS;
use super::shared_rate::{LeaseStoreUnavailable, SharedRateLimiter};

/// Interval after which an owner is noted again, so that the store can tell which owners are still in use.
const NOTE_AGAIN: Duration = Duration::from_mins(10);

/// Maximum number of buckets in a list.
const MOST_USES: u32 = 1_000;

/// The store of bucket owners for replicas that share buckets.
pub trait OwnerStore: Send + Sync + 'static {
    /// Stores the owner of a bucket.
    fn note(
        &self,
        bucket: Digest,
        owner: Arc<BucketOwner>,
    ) -> BoxFuture<'_, Result<(), LeaseStoreUnavailable>>;

    /// Returns at most `most` buckets that are not full, those that take longest to fill first. If `tenant` is set,
    /// returns only the buckets of that tenant.
    fn uses(
        &self,
        tenant: Option<&str>,
        most: u32,
    ) -> BoxFuture<'_, Result<Vec<BucketUse>, LeaseStoreUnavailable>>;
}

/// The owners of buckets and their usage.
pub struct LimitUses {
    rates: Arc<SharedRateLimiter>,
    /// The owner by bucket, and when it was last noted in the store.
    owners: Cache<Digest, (Arc<BucketOwner>, Instant)>,
    store: Option<Arc<dyn OwnerStore>>,
}

impl LimitUses {
    /// Creates the usage of the buckets of `rates`, which are shared by the replicas that use `store`.
    pub fn new(rates: Arc<SharedRateLimiter>, store: Option<Arc<dyn OwnerStore>>) -> Self {
        Self {
            rates,
            owners: Cache::new(BUCKETS),
            store,
        }
    }

    /// Notes the owner of a bucket, unless it is known.
    pub fn note(&self, bucket: Digest, owner: impl FnOnce() -> BucketOwner) {
        let known = self.owners.get(&bucket);
        let owner = match known {
            Some((_, at)) if self.store.is_none() || at.elapsed() < NOTE_AGAIN => return,
            Some((owner, _)) => owner,
            None => Arc::new(owner()),
        };
        let noted = (Arc::clone(&owner), Instant::now());
        self.owners.insert(bucket, noted);
        if let Some(store) = &self.store {
            let store = Arc::clone(store);
            // The request does not wait. A failure is logged by the store, and the owner is noted again later.
            tokio::spawn(async move { store.note(bucket, owner).await });
        }
    }

    /// Notes the owners of the buckets that a request uses.
    pub fn note_quotas(&self, quotas: &[Quota], request: QuotaUse<'_>) {
        for quota in quotas.iter().filter(|quota| quota.counts(request)) {
            self.note(quota.bucket(request), || quota.owner(request));
        }
    }

    /// Returns the usage of `limits`. If `tenant` is set, returns only what that tenant used of limits that count it
    /// separately. An unused limit is listed without an owner.
    pub async fn list(
        &self,
        limits: &[LimitOverview],
        tenant: Option<&str>,
    ) -> Result<Vec<LimitState>, LeaseStoreUnavailable> {
        let uses = match &self.store {
            Some(store) => store.uses(tenant, MOST_USES).await?,
            None => self.own_uses(tenant).await,
        };
        let mut states = Vec::new();
        for limit in limits {
            let of_limit = uses.iter().filter(|it| it.owner.limit == limit.name);
            let mut of_limit: Vec<_> = of_limit.map(|it| limit.state(Some(it))).collect();
            of_limit.sort_by_key(|state| std::cmp::Reverse(state.used));
            if of_limit.is_empty() {
                of_limit.push(limit.state(None));
            }
            states.append(&mut of_limit);
        }
        Ok(states)
    }

    async fn own_uses(&self, tenant: Option<&str>) -> Vec<BucketUse> {
        let mut uses = Vec::new();
        for (bucket, (owner, _)) in self.owners.iter() {
            if tenant.is_some() && owner.tenant.as_deref() != tenant {
                continue;
            }
            let full_in = self.rates.full_in(bucket).await;
            if full_in > Duration::ZERO {
                let owner = BucketOwner::clone(&owner);
                uses.push(BucketUse { owner, full_in });
            }
        }
        uses.sort_by_key(|it| std::cmp::Reverse(it.full_in));
        uses.truncate(MOST_USES as usize);
        uses
    }
}

#[cfg(test)]
mod tests;
