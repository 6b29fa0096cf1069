//! What stands between a call and its source, so that neither callers nor a failing source harm one another.
//!
//! ```text
//!   call ─▶ limits ──▶ breaker ──▶ attempt ──▶ done
//!           rate,      open: no      │ ▲
//!           slots      call goes     ▼ │ full jitter, within the retry budget,
//!                      through      retry  for repeatable calls only
//! ```
//!
//! `guard.rs` puts these parts together; each part knows nothing of the others, and the result cache stands before them
//! all. [`quota`] limits what callers use over all replicas. [`concurrency`] is how many calls a service works on at once, whoever they are for.

mod attached_work;
mod breaker;
pub mod concurrency;
mod guard;
pub mod jitter;
mod limit_report;
mod limit_state;
mod limit_uses;
mod limits;
pub mod quota;
mod rate;
mod result_cache;
mod retry;
mod shared_rate;

pub use attached_work::AttachedWork;
pub use breaker::{BreakerSettings, BreakerState};
pub use guard::{
    Attempt, FailedAttempt, Guard, GuardError, GuardedCall, Health, SourceGuard, SourceUse,
};
pub use limit_report::{LimitReport, REQUESTS_PER_MINUTE};
pub use limit_state::{BucketOwner, BucketUse, LimitOverview, LimitState};
pub use limit_uses::{LimitUses, OwnerStore};
pub use limits::{Limit, LimitReached, LimitSettings, ToolLimits};
pub use rate::{ParseRateError, Rate, RateLimiter};
pub use result_cache::ResultCache;
pub use retry::RetrySettings;
pub use shared_rate::{
    Lease, LeaseRequest, LeaseStore, LeaseStoreUnavailable, RateStatus, SharedRateLimiter,
};
