use std::future::ready;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use futures::future::{BoxFuture, join_all};
use tokio::time::{advance, timeout};

use super::*;
use crate::limits::{Limit, LimitSettings};
use crate::shared_rate::SharedRateLimiter;
use wardgate_domain::Ambient;
use wardgate_testkit::caller;

const TIME_LIMIT: Duration = Duration::from_secs(30);

/// A source with configured failures, which counts the requests it receives.
struct Upstream {
    failure: Option<Health>,
    latency: Duration,
    reached: AtomicU32,
    at_once: AtomicUsize,
    most_at_once: AtomicUsize,
}

impl Upstream {
    fn new(failure: Option<Health>) -> Self {
        Self {
            failure,
            latency: Duration::from_millis(20),
            reached: AtomicU32::new(0),
            at_once: AtomicUsize::new(0),
            most_at_once: AtomicUsize::new(0),
        }
    }

    fn reached_count(&self) -> u32 {
        self.reached.load(Ordering::Relaxed)
    }

    async fn answer(&self) -> Result<&'static str, FailedAttempt<&'static str>> {
        self.reached.fetch_add(1, Ordering::Relaxed);
        let at_once = self.at_once.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_at_once.fetch_max(at_once, Ordering::Relaxed);
        tokio::time::sleep(self.latency).await;
        self.at_once.fetch_sub(1, Ordering::Relaxed);
        match self.failure {
            None => Ok("rows"),
            Some(health) => Err(failed_attempt(health)),
        }
    }
}

fn failed_attempt(health: Health) -> FailedAttempt<&'static str> {
    FailedAttempt {
        error: "no rows",
        health,
        partial: false,
    }
}

impl<F, T, E, Made> Attempt for F
where
    F: FnMut() -> Made,
    Made: Future<Output = Result<T, FailedAttempt<E>>> + Send,
{
    type Success = T;
    type Error = E;

    fn run_once(&mut self) -> impl Future<Output = Result<T, FailedAttempt<E>>> + Send {
        self()
    }
}

/// A tool and its source.
struct Tool {
    limits: ToolLimits,
    source: SourceGuard,
    caller: Caller,
}

impl Tool {
    fn new(retry: RetrySettings, breaker: BreakerSettings) -> Self {
        Self::with_limits(LimitSettings::default(), retry, breaker)
    }

    fn with_limits(limits: LimitSettings, retry: RetrySettings, breaker: BreakerSettings) -> Self {
        let rates = Arc::new(SharedRateLimiter::new(None, &Ambient::system()));
        let ambient = Ambient::system();
        Self {
            limits: ToolLimits::new("tool".to_owned(), limits, rates),
            source: SourceGuard::new("source".to_owned(), retry, breaker, ambient),
            caller: caller("ada", &[]),
        }
    }

    fn call(&self, repeatable: bool) -> GuardedCall<'_> {
        GuardedCall {
            caller: &self.caller,
            repeatable,
            deadline: Instant::now() + TIME_LIMIT,
        }
    }

    async fn run<A: Attempt>(
        &self,
        call: &GuardedCall<'_>,
        attempt: A,
    ) -> Result<A::Success, GuardError<A::Error>> {
        let guard = Guard {
            limits: Some(&self.limits),
            source: Some(&self.source),
        };
        guard.run(call, attempt).await
    }

    async fn call_upstream(
        &self,
        upstream: &Upstream,
    ) -> Result<&'static str, GuardError<&'static str>> {
        self.run(&self.call(true), || upstream.answer()).await
    }
}

fn default_tool() -> Tool {
    Tool::new(RetrySettings::default(), BreakerSettings::default())
}

/// Creates a tool whose breaker never opens, so that only the budget limits retries.
fn unbroken_tool() -> Tool {
    let breaker = BreakerSettings {
        failures: u32::MAX,
        ..BreakerSettings::default()
    };
    Tool::new(RetrySettings::default(), breaker)
}

/// Makes this number of calls per second, evenly spread, for that number of seconds, and ignores their results.
async fn offer(tool: &Tool, upstream: &Upstream, per_second: u32, seconds: u32) {
    let calls = (0..per_second * seconds).map(|call| async move {
        tokio::time::sleep(Duration::from_secs(1) * call / per_second).await;
        let _ = tool.call_upstream(upstream).await;
    });
    join_all(calls).await;
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_always_fails_gets_at_most_a_fifth_and_a_hundred_in_ten_seconds_on_top() {
    for (per_second, seconds) in [(1, 30), (10, 30), (50, 20), (1_000, 12)] {
        let (tool, upstream) = (unbroken_tool(), Upstream::new(Some(Health::Down)));
        let began = Instant::now();
        offer(&tool, &upstream, per_second, seconds).await;
        let offered = per_second * seconds;
        let passed = u32::try_from(began.elapsed().as_secs()).unwrap() + 1;
        let most = offered + offered / 5 + 100 * passed.div_ceil(10);
        assert!(
            upstream.reached_count() <= most,
            "{} > {most}",
            upstream.reached_count()
        );
        // The budget is actually used.
        let wished = 3 * offered;
        assert!(
            upstream.reached_count() >= wished.min((offered + offered / 5 + 10 * passed) * 9 / 10)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_always_fails_is_left_alone_by_the_breaker() {
    let (tool, upstream) = (default_tool(), Upstream::new(Some(Health::Down)));
    offer(&tool, &upstream, 100, 60).await;
    // These are the calls in progress when the breaker opened, and then a probe every 4 to 5 seconds.
    assert!(
        (19..=35).contains(&upstream.reached_count()),
        "{}",
        upstream.reached_count()
    );
}

#[tokio::test(start_paused = true)]
async fn recovery_is_seen_within_one_probe_interval() {
    let (tool, mut upstream) = (default_tool(), Upstream::new(Some(Health::Down)));
    offer(&tool, &upstream, 100, 7).await;
    assert_ne!(tool.source.breaker_state(), BreakerState::Closed);
    upstream.failure = None;
    let recovered = Instant::now();
    while tool.call_upstream(&upstream).await.is_err() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let probe_after = BreakerSettings::default().probe_after;
    assert!(recovered.elapsed() <= probe_after + upstream.latency + Duration::from_millis(10));
    assert_eq!(tool.source.breaker_state(), BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn a_hundred_callers_of_a_failing_source_send_one_probe_at_a_time_and_none_waits() {
    let (tool, mut upstream) = (default_tool(), Upstream::new(Some(Health::Down)));
    for _ in 0..7 {
        tool.call_upstream(&upstream).await.unwrap_err();
    }
    let before = upstream.reached_count();
    upstream.latency = Duration::from_secs(1);
    upstream.most_at_once = AtomicUsize::new(0);
    for _ in 0..3 {
        advance(BreakerSettings::default().probe_after).await;
        let began = Instant::now();
        let refused = join_all((0..100).map(|_| async {
            let outcome = tool.call_upstream(&upstream).await;
            (outcome, began.elapsed())
        }))
        .await
        .into_iter()
        .filter(|(outcome, waited)| {
            matches!(outcome, Err(GuardError::SourceUnavailable { .. })) && waited.is_zero()
        })
        .count();
        assert_eq!(refused, 99);
    }
    assert_eq!(upstream.most_at_once.into_inner(), 1);
    assert_eq!(upstream.reached.into_inner() - before, 3);
}

#[tokio::test(start_paused = true)]
async fn a_client_who_leaves_during_the_probe_lets_the_next_one_probe() {
    let (tool, mut upstream) = (default_tool(), Upstream::new(Some(Health::Down)));
    for _ in 0..7 {
        tool.call_upstream(&upstream).await.unwrap_err();
    }
    upstream.failure = None;
    advance(BreakerSettings::default().probe_after).await;
    timeout(upstream.latency / 2, tool.call_upstream(&upstream))
        .await
        .unwrap_err();
    assert_eq!(tool.call_upstream(&upstream).await, Ok("rows"));
}

#[tokio::test(start_paused = true)]
async fn a_source_that_recovers_is_reached_by_a_retry() {
    let (tool, calls) = (default_tool(), AtomicU32::new(0));
    let outcome = tool
        .run(&tool.call(true), || {
            ready(match calls.fetch_add(1, Ordering::Relaxed) {
                0 | 1 => Err(failed_attempt(Health::Down)),
                _ => Ok("rows"),
            })
        })
        .await;
    assert_eq!((outcome, calls.into_inner()), (Ok("rows"), 3));
}

#[tokio::test(start_paused = true)]
async fn a_writing_tool_is_never_run_twice() {
    for health in [Health::Down, Health::Busy(Duration::ZERO), Health::Up] {
        let (tool, upstream) = (default_tool(), Upstream::new(Some(health)));
        let outcome = tool.run(&tool.call(false), || upstream.answer()).await;
        assert_eq!(
            (outcome, upstream.reached_count()),
            (Err(GuardError::Failed("no rows")), 1)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_run_again_once_some_of_it_came_out() {
    let (tool, calls) = (default_tool(), AtomicU32::new(0));
    let outcome = tool
        .run(&tool.call(true), || {
            calls.fetch_add(1, Ordering::Relaxed);
            ready(Err::<(), _>(FailedAttempt {
                partial: true,
                ..failed_attempt(Health::Down)
            }))
        })
        .await;
    assert_eq!(
        (outcome, calls.into_inner()),
        (Err(GuardError::Failed("no rows")), 1)
    );
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_final_and_opens_no_breaker() {
    let (tool, upstream) = (default_tool(), Upstream::new(Some(Health::Up)));
    for _ in 0..100 {
        assert_eq!(
            tool.call_upstream(&upstream).await,
            Err(GuardError::Failed("no rows"))
        );
    }
    assert_eq!(upstream.reached_count(), 100);
    assert_eq!(tool.source.breaker_state(), BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn a_busy_source_is_not_asked_before_the_time_it_named_and_opens_no_breaker() {
    let asked_for = Duration::from_secs(3);
    let (tool, upstream) = (default_tool(), Upstream::new(Some(Health::Busy(asked_for))));
    let began = Instant::now();
    for _ in 0..4 {
        tool.call_upstream(&upstream).await.unwrap_err();
    }
    assert_eq!(upstream.reached_count(), 12);
    assert!(began.elapsed() >= asked_for * 8);
    assert_eq!(tool.source.breaker_state(), BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn who_asks_for_more_time_than_is_left_is_not_waited_for() {
    let (tool, upstream) = (
        default_tool(),
        Upstream::new(Some(Health::Busy(TIME_LIMIT))),
    );
    let began = Instant::now();
    tool.call_upstream(&upstream).await.unwrap_err();
    assert_eq!(
        (upstream.reached_count(), began.elapsed()),
        (1, upstream.latency)
    );
}

#[tokio::test(start_paused = true)]
async fn no_retry_outlives_the_deadline() {
    let retry = RetrySettings {
        attempts: 1_000,
        first: Duration::from_millis(400),
        longest: Duration::from_mins(1),
    };
    for latency in [1, 90, 700, 2_500, 40_000] {
        let breaker = BreakerSettings {
            failures: u32::MAX,
            ..BreakerSettings::default()
        };
        let tool = Tool::new(retry.clone(), breaker);
        let mut upstream = Upstream::new(Some(Health::Down));
        upstream.latency = Duration::from_millis(latency);
        let began = Instant::now();
        tool.call_upstream(&upstream).await.unwrap_err();
        assert!(began.elapsed() <= TIME_LIMIT, "{latency} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn a_source_that_hangs_is_left_at_the_deadline_and_opens_the_breaker() {
    let (tool, mut upstream) = (default_tool(), Upstream::new(None));
    upstream.latency = Duration::from_hours(1);
    let callers = ["ada", "bob"].map(|subject| caller(subject, &[]));
    for caller in callers.iter().cycle().take(7) {
        let began = Instant::now();
        let call = GuardedCall {
            caller,
            ..tool.call(true)
        };
        let outcome = tool.run(&call, || upstream.answer()).await;
        assert_eq!(outcome, Err(GuardError::TimedOut));
        assert_eq!(began.elapsed(), TIME_LIMIT);
    }
    let refused = tool.call_upstream(&upstream).await;
    assert!(matches!(refused, Err(GuardError::SourceUnavailable { .. })));
}

#[tokio::test(start_paused = true)]
async fn callers_in_a_hurry_shut_the_source_for_nobody() {
    let (tool, upstream) = (default_tool(), Upstream::new(None));
    for _ in 0..100 {
        timeout(upstream.latency / 2, tool.call_upstream(&upstream))
            .await
            .unwrap_err();
    }
    assert_eq!(tool.call_upstream(&upstream).await, Ok("rows"));
}

#[tokio::test(start_paused = true)]
async fn one_failing_source_touches_no_other() {
    let (failing, healthy) = (default_tool(), default_tool());
    offer(&failing, &Upstream::new(Some(Health::Down)), 100, 3).await;
    let upstream = Upstream::new(None);
    for _ in 0..100 {
        assert_eq!(healthy.call_upstream(&upstream).await, Ok("rows"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_call_never_reaches_the_source() {
    let limits = LimitSettings {
        concurrency: NonZeroU32::new(1),
        per_caller: Some("3/m".parse().unwrap()),
    };
    let tool = Tool::with_limits(limits, RetrySettings::default(), BreakerSettings::default());
    let upstream = Upstream::new(None);
    let mut limited = Vec::new();
    for _ in 0..5 {
        if let Err(GuardError::Limited(reached)) = tool.call_upstream(&upstream).await {
            limited.push(reached.limit);
        }
    }
    assert_eq!(limited, [Limit::Rate, Limit::Rate]);
    assert_eq!(upstream.reached_count(), 3);
}

#[tokio::test(start_paused = true)]
async fn timeouts_of_one_caller_leave_a_healthy_source_open_to_others() {
    let tool = default_tool();
    let mut upstream = Upstream::new(None);
    upstream.latency = TIME_LIMIT * 2;
    for _ in 0..20 {
        let outcome = tool.call_upstream(&upstream).await;
        assert_eq!(outcome, Err(GuardError::TimedOut));
    }
    upstream.latency = Duration::from_millis(20);
    let other = caller("bob", &[]);
    let call = GuardedCall {
        caller: &other,
        ..tool.call(true)
    };
    assert_eq!(
        tool.run(&call, || upstream.answer()).await,
        Ok("rows"),
        "the breaker is open"
    );
}

#[tokio::test(start_paused = true)]
async fn a_tool_without_a_source_is_bounded_by_its_deadline() {
    let tool = default_tool();
    let guard = Guard {
        limits: Some(&tool.limits),
        source: None,
    };
    let mut upstream = Upstream::new(None);
    let call = tool.call(true);
    assert_eq!(guard.run(&call, || upstream.answer()).await, Ok("rows"));
    upstream.latency = TIME_LIMIT * 2;
    let outcome = guard.run(&call, || upstream.answer()).await;
    assert_eq!(outcome, Err(GuardError::TimedOut));
}

/// An attempt like those of executors, which lends out its output.
struct Execution<'a> {
    out: &'a mut Vec<u32>,
}

impl Attempt for Execution<'_> {
    type Success = ();
    type Error = &'static str;

    async fn run_once(&mut self) -> Result<(), FailedAttempt<&'static str>> {
        fn execute(out: &mut Vec<u32>) -> BoxFuture<'_, Result<(), FailedAttempt<&'static str>>> {
            Box::pin(async move {
                out.push(1);
                tokio::task::yield_now().await;
                match out.len() {
                    1 => Err(failed_attempt(Health::Down)),
                    _ => Ok(()),
                }
            })
        }
        execute(self.out).await
    }
}

#[tokio::test]
async fn attempts_share_an_output_and_may_change_threads() {
    let tool = default_tool();
    let call = tokio::spawn(async move {
        let mut out = Vec::new();
        let call = tool.call(true);
        let outcome = tool.run(&call, Execution { out: &mut out }).await;
        (outcome, out)
    });
    assert_eq!(call.await.unwrap(), (Ok(()), vec![1, 1]));
}
