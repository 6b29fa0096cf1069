//! The settings `limits` of a tool: its concurrent calls, and the rate of each caller.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use metrics::counter;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};
use wardgate_domain::{Caller, Digest};
use wardgate_telemetry::{labels, names};

use super::rate::Rate;
use super::shared_rate::SharedRateLimiter;

/// Maximum time for which a call waits for a slot before it is refused. Refused callers are told to retry after the
/// same time.
const PATIENCE: Duration = Duration::from_secs(1);

/// The settings `limits` of a tool in `tools.yaml`. What is not set is not limited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LimitSettings {
    /// Maximum number of concurrent calls of all callers.
    pub concurrency: Option<NonZeroU32>,
    /// Maximum rate of calls of each caller.
    pub per_caller: Option<Rate>,
}

/// The kind of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// The rate of the caller.
    Rate,
    /// The number of concurrent calls.
    Concurrency,
}

/// A limit was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitReached {
    /// The limit that was reached.
    pub limit: Limit,
    /// The time after which the caller may retry.
    pub retry_after: Duration,
}

/// The limits of one tool.
#[derive(Debug)]
pub struct ToolLimits {
    tool: String,
    per_caller: Option<Rate>,
    slots: Option<Semaphore>,
    rates: Arc<SharedRateLimiter>,
}

/// The right to run one call, until it is dropped.
#[derive(Debug)]
#[must_use]
pub(super) struct Slot<'a> {
    _taken: Option<SemaphorePermit<'a>>,
}

impl ToolLimits {
    /// Creates the limits of `tool`. `rates` holds the buckets of all tools.
    pub fn new(tool: String, settings: LimitSettings, rates: Arc<SharedRateLimiter>) -> Self {
        Self {
            tool,
            per_caller: settings.per_caller,
            slots: settings
                .concurrency
                .map(|slots| Semaphore::new((slots.get() as usize).min(Semaphore::MAX_PERMITS))),
            rates,
        }
    }

    /// Admits a call when it is its turn: first come, first served.
    pub(super) async fn enter(
        &self,
        caller: &Caller,
        deadline: Instant,
    ) -> Result<Slot<'_>, LimitReached> {
        if let Some(rate) = self.per_caller {
            self.rates
                .try_acquire_calls(self.bucket(caller), rate, NonZeroU32::MIN)
                .await
                .map_err(|retry_after| self.refuse_call(Limit::Rate, "rate", retry_after))?;
        }
        let Some(slots) = &self.slots else {
            return Ok(Slot { _taken: None });
        };
        let patience = deadline.min(Instant::now() + PATIENCE);
        match timeout_at(patience, slots.acquire()).await {
            Ok(Ok(slot)) => Ok(Slot { _taken: Some(slot) }),
            Ok(Err(_)) | Err(_) => {
                Err(self.refuse_call(Limit::Concurrency, "concurrency", PATIENCE))
            }
        }
    }

    /// Returns the bucket of the caller. It depends on the identity and not on all claims, so that another token of the
    /// same person does not get a new bucket.
    fn bucket(&self, caller: &Caller) -> Digest {
        let (issuer, tenant) = (caller.issuer(), caller.tenant());
        Digest::of_texts(&[&self.tool, issuer, tenant, caller.subject()])
    }

    fn refuse_call(
        &self,
        limit: Limit,
        label: &'static str,
        retry_after: Duration,
    ) -> LimitReached {
        counter!(names::LIMITED_CALLS, "tool" => labels::TOOLS.label(&self.tool), "limit" => label)
            .increment(1);
        LimitReached { limit, retry_after }
    }
}

#[cfg(test)]
mod tests;
