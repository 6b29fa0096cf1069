//! Resilience between callers and sources: limits, circuit breakers, retries and a cache protect both from overload and
//! failures.
//!
//! ```text
//!   call ─▶ limits ──▶ breaker ──▶ attempt ──▶ done
//!           rate,      open: no      │ ▲
//!           slots      call goes     ▼ │ full jitter, within the retry budget,
//!                      through      retry  for repeatable calls only
//! ```
//!
//! `guard.rs` combines these parts, which are independent of each other. The result cache is in front of all of them.
//! [`quota`] limits the usage of callers over all replicas. [`concurrency`] limits the number of calls a service works
//! on at once, regardless of their callers.

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
mod time_step;

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
pub use time_step::next_step;
