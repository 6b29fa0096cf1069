//! One call, from its turn to its last attempt: limits, then breaker, then attempt, then perhaps a retry.

use std::time::Duration;

use metrics::{counter, histogram};
use tokio::time::{Instant, sleep, timeout_at};
use tower::retry::budget::{Budget, TpsBudget};
use wardgate_domain::{Ambient, Caller, Digest};
use wardgate_telemetry::{labels, names};

use super::breaker::{Breaker, BreakerSettings, BreakerState, FailureCause, OpenCircuit, Trial};
use super::limits::{LimitReached, Slot, ToolLimits};
use super::retry::RetrySettings;

/// Runs the attempts of a tool's calls. A tool without a source has limits only.
pub struct Guard<'a> {
    /// None: what is done is no call of the tool.
    pub limits: Option<&'a ToolLimits>,
    /// That of the source that the call goes to.
    pub source: Option<&'a SourceGuard>,
}

/// A call, as far as it decides on its attempts.
pub struct GuardedCall<'a> {
    /// Whose limits count.
    pub caller: &'a Caller,
    /// To run it twice is as good as once: its tool is read-only or idempotent.
    pub repeatable: bool,
    /// When the tool's own time limit ends. A source that lets it pass has failed, so it must be none that the
    /// caller chose: a caller in a hurry would shut the source for everyone. Such a one drops the future instead.
    pub deadline: Instant,
}

/// The work of a call, to be done once or more often.
///
/// A trait and no async closure: an attempt lends out the call's output, and the compiler cannot yet tell that the
/// future of such a closure may change threads.
pub trait Attempt {
    /// What a successful attempt gives.
    type Success;
    /// What a failed attempt gives.
    type Error;

    /// Does it once, from the start. Dropping the future ends it.
    fn make(
        &mut self,
    ) -> impl Future<Output = Result<Self::Success, FailedAttempt<Self::Error>>> + Send;
}

/// What a failed attempt says about its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// It did not do its work: unreachable, or broken midway.
    Down,
    /// It did not answer in time. The caller may have asked for too much work.
    TimedOut,
    /// It is up, and asks not to be called again before this long.
    Busy(Duration),
    /// It is up: it answered, and would answer the same again.
    Up,
}

/// A failed attempt.
#[derive(Debug)]
pub struct FailedAttempt<E> {
    /// Of the attempt.
    pub error: E,
    /// What it shows of the source.
    pub health: Health,
    /// Some of its output went on already, so that no other attempt may follow.
    pub partial: bool,
}

/// Why a call was not done.
#[derive(Debug, PartialEq, Eq)]
pub enum GuardError<E> {
    /// It came too soon. Nothing was attempted.
    Limited(LimitReached),
    /// Its source has been failing and gets no calls for now. Nothing was attempted.
    SourceUnavailable {
        /// When it may be tried again.
        retry_after: Duration,
    },
    /// Its deadline passed during an attempt.
    TimedOut,
    /// The last attempt failed.
    Failed(E),
}

/// The right to use a source once, until dropped; for work that is more than one attempt can hold.
pub struct SourceUse<'a> {
    slot: Option<Slot<'a>>,
    trial: Option<(Trial<'a>, MeasuredUse<'a>)>,
    /// The caller that the source is used for, if it is for one.
    caller: Option<Digest>,
}

/// One use of a source, under way.
struct MeasuredUse<'a> {
    source: &'a str,
    started: Instant,
}

impl MeasuredUse<'_> {
    fn ended(self, outcome: &'static str) {
        let source = labels::SOURCES.label(self.source);
        histogram!(names::SOURCE_SECONDS, "source" => source, "outcome" => outcome)
            .record(self.started.elapsed());
    }
}

impl SourceUse<'_> {
    /// Gives the place among the tool's running calls to another call.
    pub fn leave(&mut self) {
        self.slot = None;
    }

    /// What the use says about the source. Only the first word counts.
    pub fn shows(&mut self, health: Health) {
        let Some((trial, measured)) = self.trial.take() else {
            return;
        };
        match health {
            Health::Down => {
                measured.ended("down");
                trial.failed(FailureCause::Source);
            }
            Health::TimedOut => {
                measured.ended("timeout");
                trial.failed(FailureCause::timeout(self.caller));
            }
            Health::Up => {
                measured.ended("ok");
                trial.succeeded();
            }
            Health::Busy(_) => measured.ended("busy"),
        }
    }
}

impl<'a> Guard<'a> {
    /// The same for what is no call of the tool.
    #[must_use]
    pub fn without_limits(self) -> Self {
        Self {
            limits: None,
            ..self
        }
    }

    /// Lets a call in that is tried once only.
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

    /// Makes as many attempts as it takes and as are allowed. Dropping the future ends the one under way.
    pub async fn run<A: Attempt>(
        &self,
        call: &GuardedCall<'_>,
        mut attempt: A,
    ) -> Result<A::Success, GuardError<A::Error>> {
        let _slot = self.slot(call.caller, call.deadline).await?;
        match self.source {
            Some(source) => source.run(call, attempt).await,
            None => match timeout_at(call.deadline, attempt.make()).await {
                Ok(outcome) => outcome.map_err(|failed| GuardError::Failed(failed.error)),
                Err(_elapsed) => Err(GuardError::TimedOut),
            },
        }
    }
}

/// What all calls to one source share.
#[derive(Debug)]
pub struct SourceGuard {
    source: String,
    retry: RetrySettings,
    breaker: Breaker,
    /// A fifth of the calls of the last ten seconds, and a hundred in ten seconds besides: callers that retry three times do not turn
    /// a slow source into one with four times its load.
    retry_budget: TpsBudget,
    ambient: Ambient,
}

impl SourceGuard {
    /// Nothing has failed yet. `source` is its name, for logs and metrics.
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

    /// Whether calls go through to the source.
    pub fn breaker_state(&self) -> BreakerState {
        self.breaker.state()
    }

    /// Lets a use of the source in that is no call of a tool.
    pub fn enter<E>(&self, caller: Option<Digest>) -> Result<SourceUse<'_>, GuardError<E>> {
        let trial = self.admit()?;
        Ok(SourceUse {
            slot: None,
            trial: Some((trial, self.measured())),
            caller,
        })
    }

    fn measured(&self) -> MeasuredUse<'_> {
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
            let measured = self.measured();
            let failed = match timeout_at(call.deadline, attempt.make()).await {
                Ok(Ok(done)) => {
                    measured.ended("ok");
                    trial.succeeded();
                    return Ok(done);
                }
                Ok(Err(failed)) => failed,
                Err(_elapsed) => {
                    measured.ended("timeout");
                    trial.failed(timeout());
                    return Err(GuardError::TimedOut);
                }
            };
            made += 1;
            match failed.health {
                Health::Down => {
                    measured.ended("down");
                    trial.failed(FailureCause::Source);
                }
                Health::TimedOut => {
                    measured.ended("timeout");
                    trial.failed(timeout());
                }
                Health::Busy(_) => {
                    measured.ended("busy");
                    drop(trial);
                }
                Health::Up => {
                    measured.ended("failed");
                    trial.succeeded();
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

    /// `None` where the failure is final. The budget is asked last: only retries that are made cost it.
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
