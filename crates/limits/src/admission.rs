//! Admission of requests: each request gets a slot or is refused with a time to retry, before any work on it begins or
//! is recorded.
//!
//! Probes, sessions, cancellations, responses of clients and change streams need no slot.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use wardgate_domain::{Ambient, Caller};
use wardgate_gateway_store::Store;
use wardgate_mcp_server::RpcError;
use wardgate_resilience::concurrency::{Limiter, Slot};
use wardgate_resilience::quota::{self, Quota, QuotaUse};
use wardgate_resilience::{
    BucketOwner, LeaseStoreUnavailable, LimitOverview, LimitReport, LimitState, LimitUses,
    REQUESTS_PER_MINUTE, Rate, SharedRateLimiter,
};

/// The `Retry-After` if a neighbouring service is overloaded.
pub const NEIGHBOUR_PAUSE: Duration = Duration::from_secs(1);

/// The default maximum number of requests per minute of one caller.
const DEFAULT_REQUESTS_PER_MINUTE: u32 = 6_000;

/// Admits requests within the concurrency limit, the rate limit of callers and the quotas.
pub struct RequestAdmission {
    limiter: Limiter,
    /// The remaining requests of callers, over all gateways.
    rates: Arc<SharedRateLimiter>,
    uses: LimitUses,
    rate: Rate,
    /// Whether responses report what is left of the rate limit, which they do only if it is configured.
    is_rate_reported: bool,
    quotas: Vec<Quota>,
}

impl RequestAdmission {
    /// Creates the admission. Each caller may make `requests_per_minute` at once and per minute, within `quotas`.
    /// Requests are counted over all gateways that share `store`.
    pub fn new(
        limiter: Limiter,
        requests_per_minute: Option<NonZeroU32>,
        quotas: Vec<Quota>,
        store: &Arc<Store>,
        ambient: &Ambient,
    ) -> Arc<Self> {
        let per_minute = requests_per_minute.map_or(DEFAULT_REQUESTS_PER_MINUTE, NonZeroU32::get);
        let rates = Arc::new(SharedRateLimiter::new(store.shared_rates(), ambient));
        Arc::new(Self {
            limiter,
            uses: LimitUses::new(Arc::clone(&rates), store.shared_owners()),
            rates,
            rate: Rate::per_minute(per_minute),
            is_rate_reported: requests_per_minute.is_some(),
            quotas,
        })
    }

    /// Returns the usage of every limit. If `tenant` is set, returns only the usage of that tenant.
    pub(crate) async fn uses(
        &self,
        tenant: Option<&str>,
    ) -> Result<Vec<LimitState>, LeaseStoreUnavailable> {
        let own = LimitOverview {
            name: REQUESTS_PER_MINUTE.to_owned(),
            rate: self.rate,
            per: vec!["caller".to_owned()],
        };
        let quotas = self.quotas.iter().map(Quota::overview);
        let limits: Vec<_> = std::iter::once(own).chain(quotas).collect();
        self.uses.list(&limits, tenant).await
    }

    /// Creates a report of what is left of the limits that apply to a request, or returns `None` if no limit is
    /// configured.
    pub fn open_report(&self) -> Option<Arc<LimitReport>> {
        (self.is_rate_reported || !self.quotas.is_empty()).then(Arc::default)
    }

    /// Takes the cost of a request from the quotas that count it.
    pub async fn charge(
        &self,
        request: QuotaUse<'_>,
        report: Option<&LimitReport>,
    ) -> Result<(), RpcError> {
        self.uses.note_quotas(&self.quotas, request);
        let charged = quota::charge(&self.quotas, &self.rates, request, report);
        charged
            .await
            .map_err(|reached| RpcError::quota_reached(&reached.quota, reached.retry_after))
    }

    /// Takes a slot for a request of `caller`, within the rate limit of the caller. Waits for the slot for a short time
    /// at most.
    pub async fn admit(
        &self,
        caller: &Caller,
        report: Option<&LimitReport>,
    ) -> Result<Slot, RpcError> {
        let bucket = caller.person();
        self.uses.note(bucket, || {
            let mut owner = BucketOwner {
                limit: REQUESTS_PER_MINUTE.to_owned(),
                ..BucketOwner::default()
            };
            owner.set_person(caller);
            owner
        });
        let spent = (self.rates).take_and_report(bucket, self.rate, NonZeroU32::MIN);
        let (spent, status) = spent.await;
        if let Some(report) = report.filter(|_| self.is_rate_reported) {
            report.add(REQUESTS_PER_MINUTE, self.rate, status);
        }
        spent.map_err(RpcError::too_many_requests)?;
        self.wait_for_slot(caller).await
    }

    /// Takes a slot for work of the gateway on behalf of `caller`, without the rate limit. Waits for a short time at
    /// most.
    pub async fn wait_for_slot(&self, caller: &Caller) -> Result<Slot, RpcError> {
        let entered = self.limiter.enter(caller.tenant(), caller.subject());
        entered
            .await
            .map_err(|refused| RpcError::for_overload(refused.is_over_share, refused.retry_after))
    }

    /// Takes a slot for a call that another replica admitted.
    pub fn admit_resumed(&self, caller: &Caller) -> Slot {
        self.limiter
            .enter_unchecked(caller.tenant(), caller.subject())
    }

    /// Returns the error for a request that a neighbouring service refused because of overload.
    pub fn neighbour_overloaded(&self) -> RpcError {
        neighbour_overloaded(&self.limiter)
    }
}

/// Returns the error for a request that a neighbouring service refused because of overload, and reports the refusal to
/// `limiter`.
pub fn neighbour_overloaded(limiter: &Limiter) -> RpcError {
    limiter.turned_away();
    RpcError::for_overload(false, NEIGHBOUR_PAUSE)
}
