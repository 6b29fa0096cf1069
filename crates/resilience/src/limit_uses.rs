//! What is used of limits, and by whom: for operators who look.
//!
//! ```text
//!   request ─▶ bucket, a digest ──▶ LimitUses::note: whose it is ──▶ memory, or the store that replicas share
//!   operator ─▶ LimitUses::list ◀── buckets that are not full, with their owners
//! ```
//!
//! The counts are those of the buckets themselves. Noting an owner delays no request.

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

/// How often an owner is noted again, so that the store knows which are of use.
const NOTE_AGAIN: Duration = Duration::from_mins(10);

/// Buckets that one look shows, at most.
const MOST_USES: u32 = 1_000;

/// What replicas that share buckets know of their owners.
pub trait OwnerStore: Send + Sync + 'static {
    /// Notes whose bucket it is.
    fn note(
        &self,
        bucket: Digest,
        owner: Arc<BucketOwner>,
    ) -> BoxFuture<'_, Result<(), LeaseStoreUnavailable>>;

    /// At most `most` buckets that are not full, those that take the longest first; with a tenant, only its own.
    fn uses(
        &self,
        tenant: Option<&str>,
        most: u32,
    ) -> BoxFuture<'_, Result<Vec<BucketUse>, LeaseStoreUnavailable>>;
}

/// The owners of buckets, and what they used.
pub struct LimitUses {
    rates: Arc<SharedRateLimiter>,
    /// With the instant at which each was noted in the store.
    owners: Cache<Digest, (Arc<BucketOwner>, Instant)>,
    store: Option<Arc<dyn OwnerStore>>,
}

impl LimitUses {
    /// The uses of the buckets of `rates`, which replicas with `store` share.
    pub fn new(rates: Arc<SharedRateLimiter>, store: Option<Arc<dyn OwnerStore>>) -> Self {
        Self {
            rates,
            owners: Cache::new(BUCKETS),
            store,
        }
    }

    /// Notes whose bucket it is, unless that is known.
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
            // The request does not wait for it. A failure is told by the store, and what is missing is noted the next time.
            tokio::spawn(async move { store.note(bucket, owner).await });
        }
    }

    /// Notes whose buckets a request takes from.
    pub fn note_quotas(&self, quotas: &[Quota], request: QuotaUse<'_>) {
        for quota in quotas.iter().filter(|quota| quota.counts(request)) {
            self.note(quota.bucket(request), || quota.owner(request));
        }
    }

    /// What is used of `limits`, or with a tenant, what that tenant used of those that count it alone. A limit of which
    /// nothing is used is in the list too, without an owner.
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
