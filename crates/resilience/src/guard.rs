//! One call from its admission to its last attempt: limits, then circuit breaker, then attempt, then possibly a retry.

use std::time::Duration;

use metrics::{counter, histogram};
use tokio::time::{Instant, sleep, timeout_at};
use tower::retry::budget::{Budget, TpsBudget};
use wardgate_domain::{Ambient, Caller, Digest};
use wardgate_telemetry::{labels, names};

use super::breaker::{Breaker, BreakerSettings, BreakerState, FailureCause, OpenCircuit, Trial};
use super::limits::{LimitReached, Slot, ToolLimits};
use super::retry::RetrySettings;

/// Runs the attempts of a tool's calls. For a tool without a source only the limits apply.
pub struct Guard<'a> {
    /// The limits of the tool, or `None` for work that is not a call of the tool.
    pub limits: Option<&'a ToolLimits>,
    /// The guard of the source to which the call goes.
    pub source: Option<&'a SourceGuard>,
}

/// The properties of a call that decide on its attempts.
pub struct GuardedCall<'a> {
    /// The caller to whom the limits apply.
    pub caller: &'a Caller,
    /// Whether the call may run twice, because its tool is read-only or idempotent.
    pub repeatable: bool,
    /// The end of the tool's own time limit. A source that misses it counts as failed, so it must not be a deadline of
    /// the caller's choice: a caller in a hurry would make the source unavailable to everyone. For a caller's own
    /// deadline, drop the future instead.
    pub deadline: Instant,
}

/// The work of a call, which may be done several times.
///
/// This is a trait and not an async closure, because an attempt lends out the call's output, and the compiler cannot
/// yet prove that the future of such a closure is `Send`.
pub trait Attempt {
    /// The result of a successful attempt.
    type Success;
    /// The error of a failed attempt.
    type Error;

    /// Makes one attempt from the start. Dropping the future cancels it.
    fn run_once(
        &mut self,
    ) -> impl Future<Output = Result<Self::Success, FailedAttempt<Self::Error>>> + Send;
}

/// What a failed attempt shows about its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// The source did not do its work: it was unreachable, or the connection broke.
    Down,
    /// The source did not answer in time. The caller may have requested too much work.
    TimedOut,
    /// The source works, and asks not to be called again for this long.
    Busy(Duration),
    /// The source works: it answered, and a retry would get the same response.
    Up,
}

/// A failed attempt.
#[derive(Debug)]
pub struct FailedAttempt<E> {
    /// The error of the attempt.
    pub error: E,
    /// What the attempt shows about the source.
    pub health: Health,
    /// Whether some of the output has been passed on already, so that there must be no retry.
    pub partial: bool,
}

/// The reason why a call failed.
#[derive(Debug, PartialEq, Eq)]
pub enum GuardError<E> {
    /// A limit was reached. Nothing was attempted.
    Limited(LimitReached),
    /// The circuit breaker of the source is open. Nothing was attempted.
    SourceUnavailable {
        /// The time after which the caller may retry.
        retry_after: Duration,
    },
    /// The deadline passed during an attempt.
    TimedOut,
    /// The last attempt failed.
    Failed(E),
}

/// The right to use a source once, until it is dropped, for work that does not fit an [`Attempt`].
pub struct SourceUse<'a> {
    slot: Option<Slot<'a>>,
    trial: Option<(Trial<'a>, MeasuredUse<'a>)>,
    /// The caller for whom the source is used, if there is one.
    caller: Option<Digest>,
}

/// The measurement of one use of a source in progress.
struct MeasuredUse<'a> {
    source: &'a str,
    started: Instant,
}

impl MeasuredUse<'_> {
    fn record_outcome(self, outcome: &'static str) {
        let source = labels::SOURCES.label(self.source);
        histogram!(names::SOURCE_SECONDS, "source" => source, "outcome" => outcome)
            .record(self.started.elapsed());
    }
}

impl SourceUse<'_> {
    /// Releases the concurrency slot of the tool.
    pub fn leave(&mut self) {
        self.slot = None;
    }

    /// Reports the health of the source. Only the first report counts.
    pub fn shows(&mut self, health: Health) {
        let Some((trial, measured)) = self.trial.take() else {
            return;
        };
        match health {
            Health::Down => {
                measured.record_outcome("down");
                trial.record_failure(FailureCause::Source);
            }
            Health::TimedOut => {
                measured.record_outcome("timeout");
                trial.record_failure(FailureCause::timeout(self.caller));
            }
            Health::Up => {
                measured.record_outcome("ok");
                trial.record_success();
            }
            Health::Busy(_) => measured.record_outcome("busy"),
        }
    }
}

impl<'a> Guard<'a> {
    /// Returns this guard without limits, for work that is not a call of the tool.
    #[must_use]
    pub fn without_limits(self) -> Self {
        Self {
            limits: None,
            ..self
        }
    }

    /// Admits a call that has only one attempt.
    pub async fn enter<E>(
        &self,
        caller: &Caller,
        deadline: Instant,
    ) -> Result<SourceUse<'a>, GuardError<E>> {
        let slot = self.slot(caller, deadline).await?;
        let turn = self
            .source
            .map(|source| source.enter(Some(caller.digest())));
        let turn = turn.transpose()?;
        Ok(SourceUse {
            slot,
            trial: turn.and_then(|turn| turn.trial),
            caller: Some(caller.digest()),
        })
    }

    async fn slot<E>(
        &self,
        caller: &Caller,
        deadline: Instant,
    ) -> Result<Option<Slot<'a>>, GuardError<E>> {
        let Some(limits) = self.limits else {
            return Ok(None);
        };
        let slot = limits.enter(caller, deadline).await;
        slot.map(Some).map_err(GuardError::Limited)
    }

    /// Makes as many attempts as are necessary and allowed. Dropping the future cancels the current attempt.
    pub async fn run<A: Attempt>(
        &self,
        call: &GuardedCall<'_>,
        mut attempt: A,
    ) -> Result<A::Success, GuardError<A::Error>> {
        let _slot = self.slot(call.caller, call.deadline).await?;
        match self.source {
            Some(source) => source.run(call, attempt).await,
            None => match timeout_at(call.deadline, attempt.run_once()).await {
                Ok(outcome) => outcome.map_err(|failed| GuardError::Failed(failed.error)),
                Err(_elapsed) => Err(GuardError::TimedOut),
            },
        }
    }
}

/// The state that all calls to one source share.
#[derive(Debug)]
pub struct SourceGuard {
    source: String,
    retry: RetrySettings,
    breaker: Breaker,
    /// The budget of retries: a fifth of the calls of the last ten seconds, plus a hundred in ten seconds. Without it,
    /// callers that retry three times would multiply the load of a slow source by four.
    retry_budget: TpsBudget,
    ambient: Ambient,
}

impl SourceGuard {
    /// Creates a guard with a closed breaker. `source` is the name of the source in logs and metrics.
    pub fn new(
        source: String,
        retry: RetrySettings,
        breaker: BreakerSettings,
        ambient: Ambient,
    ) -> Self {
        Self {
            retry,
            breaker: Breaker::new(source.clone(), breaker, ambient.clone()),
            retry_budget: TpsBudget::default(),
            source,
            ambient,
        }
    }

    /// Returns the state of the circuit breaker.
    pub fn breaker_state(&self) -> BreakerState {
        self.breaker.state()
    }

    /// Admits a use of the source that is not a call of a tool.
    pub fn enter<E>(&self, caller: Option<Digest>) -> Result<SourceUse<'_>, GuardError<E>> {
        let trial = self.admit()?;
        Ok(SourceUse {
            slot: None,
            trial: Some((trial, self.start_measurement())),
            caller,
        })
    }

    fn start_measurement(&self) -> MeasuredUse<'_> {
        MeasuredUse {
            source: &self.source,
            started: Instant::now(),
        }
    }

    fn admit<E>(&self) -> Result<Trial<'_>, GuardError<E>> {
        let unavailable = |open: OpenCircuit| GuardError::SourceUnavailable {
            retry_after: open.retry_after,
        };
        let trial = self.breaker.admit().map_err(unavailable)?;
        self.retry_budget.deposit();
        Ok(trial)
    }

    async fn run<A: Attempt>(
        &self,
        call: &GuardedCall<'_>,
        mut attempt: A,
    ) -> Result<A::Success, GuardError<A::Error>> {
        let mut trial = self.admit()?;
        let timeout = || FailureCause::timeout(Some(call.caller.digest()));
        let mut made = 0;
        loop {
            let measured = self.start_measurement();
            let failed = match timeout_at(call.deadline, attempt.run_once()).await {
                Ok(Ok(done)) => {
                    measured.record_outcome("ok");
                    trial.record_success();
                    return Ok(done);
                }
                Ok(Err(failed)) => failed,
                Err(_elapsed) => {
                    measured.record_outcome("timeout");
                    trial.record_failure(timeout());
                    return Err(GuardError::TimedOut);
                }
            };
            made += 1;
            match failed.health {
                Health::Down => {
                    measured.record_outcome("down");
                    trial.record_failure(FailureCause::Source);
                }
                Health::TimedOut => {
                    measured.record_outcome("timeout");
                    trial.record_failure(timeout());
                }
                Health::Busy(_) => {
                    measured.record_outcome("busy");
                    drop(trial);
                }
                Health::Up => {
                    measured.record_outcome("failed");
                    trial.record_success();
                }
            }
            let Some(pause) = self.pause_before_retry(call, made, &failed) else {
                return Err(GuardError::Failed(failed.error));
            };
            sleep(pause).await;
            trial = match self.breaker.admit() {
                Ok(trial) => trial,
                Err(_open) => return Err(GuardError::Failed(failed.error)),
            };
        }
    }

    /// Returns the time to wait before a retry, or `None` if the failure is final. The budget is checked last, because
    /// only retries that are made may count.
    fn pause_before_retry<E>(
        &self,
        call: &GuardedCall<'_>,
        made: u32,
        failed: &FailedAttempt<E>,
    ) -> Option<Duration> {
        let asked_for = match failed.health {
            Health::Down | Health::TimedOut => Duration::ZERO,
            Health::Busy(asked_for) => asked_for,
            Health::Up => return None,
        };
        if !call.repeatable || failed.partial || self.breaker.state() != BreakerState::Closed {
            return None;
        }
        let pause = self.retry.pause(made, asked_for, &self.ambient)?;
        if pause >= call.deadline.saturating_duration_since(Instant::now()) {
            return None;
        }
        let within = self.retry_budget.withdraw();
        let outcome = if within { "made" } else { "over_budget" };
        counter!(names::RETRIES, "source" => self.source.clone(), "outcome" => outcome)
            .increment(1);
        within.then_some(pause)
    }
}

#[cfg(test)]
mod tests;
