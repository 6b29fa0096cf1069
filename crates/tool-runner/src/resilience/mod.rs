//! What stands between a call and its source, so that neither callers nor a failing source harm one another.
//!
//! ```text
//!   call ─▶ limits ──▶ breaker ──▶ attempt ──▶ done
//!           rate,      open: no      │ ▲
//!           slots      call goes     ▼ │ full jitter, within the retry budget,
//!                      through      retry  for repeatable calls only
//! ```
//!
//! [`guard`] is the page to read: it puts the parts together. Each part knows nothing of the others, and the
//! [`result_cache`] stands before them all.

mod breaker;
mod budget;
mod guard;
pub(crate) mod jitter;
mod limits;
mod rate;
mod result_cache;
mod retry;

pub(crate) use breaker::{BreakerSettings, BreakerState};
pub(crate) use guard::{
    Attempt, Failed, Guard, GuardError, GuardedCall, Health, SourceGuard, Turn,
};
pub(crate) use limits::{Limit, LimitReached, LimitSettings, ToolLimits};
pub(crate) use rate::{ParseRateError, RateLimiter};
pub(crate) use result_cache::ResultCache;
pub(crate) use retry::RetrySettings;

#[cfg(test)]
mod testing;
