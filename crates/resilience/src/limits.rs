//! `limits` of a tool: how many calls of it run at once, and how often each caller may use it.

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

/// How long a call waits for its turn before it is refused, and is told to stay away.
const PATIENCE: Duration = Duration::from_secs(1);

/// `limits` of a tool in `tools.yaml`; what is not set is not limited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LimitSettings {
    /// Calls at once, of all callers together.
    pub concurrency: Option<NonZeroU32>,
    /// Calls of each caller.
    pub per_caller: Option<Rate>,
}

/// Which limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// The caller's own rate.
    Rate,
    /// Calls at once.
    Concurrency,
}

/// A call came too soon; it may come again after `retry_after`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitReached {
    /// Which one.
    pub limit: Limit,
    /// When it may be tried again.
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

/// The right to run one call, until dropped.
#[derive(Debug)]
#[must_use]
pub(super) struct Slot<'a> {
    _taken: Option<SemaphorePermit<'a>>,
}

impl ToolLimits {
    /// The limits of `tool`, with the rates of all tools.
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

    /// Lets a call in, when it is its turn: first come, first served.
    pub(super) async fn enter(
        &self,
        caller: &Caller,
        deadline: Instant,
    ) -> Result<Slot<'_>, LimitReached> {
        if let Some(rate) = self.per_caller {
            self.rates
                .take(self.bucket(caller), rate, NonZeroU32::MIN)
                .await
                .map_err(|retry_after| self.reached(Limit::Rate, "rate", retry_after))?;
        }
        let Some(slots) = &self.slots else {
            return Ok(Slot { _taken: None });
        };
        let patience = deadline.min(Instant::now() + PATIENCE);
        match timeout_at(patience, slots.acquire()).await {
            Ok(Ok(slot)) => Ok(Slot { _taken: Some(slot) }),
            Ok(Err(_)) | Err(_) => Err(self.reached(Limit::Concurrency, "concurrency", PATIENCE)),
        }
    }

    /// By who the caller is, not by all claims: another token of the same person is no fresh bucket.
    fn bucket(&self, caller: &Caller) -> Digest {
        let (issuer, tenant) = (caller.issuer(), caller.tenant());
        Digest::of_texts(&[&self.tool, issuer, tenant, caller.subject()])
    }

    fn reached(&self, limit: Limit, label: &'static str, retry_after: Duration) -> LimitReached {
        counter!(names::LIMITED_CALLS, "tool" => labels::TOOLS.label(&self.tool), "limit" => label)
            .increment(1);
        LimitReached { limit, retry_after }
    }
}

#[cfg(test)]
mod tests;
