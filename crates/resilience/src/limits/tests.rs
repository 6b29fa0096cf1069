use std::num::NonZeroU32;
use std::time::Duration;

use futures::future::join_all;

use super::*;
use wardgate_domain::Ambient;
use wardgate_testkit::caller;

fn limits(tool: &str, settings: LimitSettings, rates: &Arc<SharedRateLimiter>) -> ToolLimits {
    ToolLimits::new(tool.to_owned(), settings, Arc::clone(rates))
}

fn concurrency(slots: u32) -> ToolLimits {
    let settings = LimitSettings {
        concurrency: NonZeroU32::new(slots),
        per_caller: None,
    };
    limits(
        "tool",
        settings,
        &Arc::new(SharedRateLimiter::new(None, &Ambient::system())),
    )
}

fn rate(text: &str) -> LimitSettings {
    LimitSettings {
        concurrency: None,
        per_caller: Some(text.parse().unwrap()),
    }
}

fn in_seconds(seconds: u64) -> Instant {
    Instant::now() + Duration::from_secs(seconds)
}

#[tokio::test(start_paused = true)]
async fn a_call_that_finds_all_slots_taken_is_refused_after_a_second() {
    let limits = concurrency(2);
    let caller = caller("ada", &[]);
    let _taken = join_all((0..2).map(|_| limits.enter(&caller, in_seconds(30)))).await;
    let began = Instant::now();
    let refusal = limits.enter(&caller, in_seconds(30)).await.unwrap_err();
    assert_eq!(refusal.limit, Limit::Concurrency);
    assert!(refusal.retry_after >= Duration::from_secs(1));
    assert_eq!(began.elapsed(), Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_slot_beyond_the_deadline() {
    let limits = concurrency(1);
    let caller = caller("ada", &[]);
    let _taken = limits.enter(&caller, in_seconds(30)).await.unwrap();
    let began = Instant::now();
    let soon = began + Duration::from_millis(20);
    limits.enter(&caller, soon).await.unwrap_err();
    assert_eq!(began.elapsed(), Duration::from_millis(20));
}

#[tokio::test(start_paused = true)]
async fn slots_go_to_those_who_waited_longest_and_are_never_more_than_set() {
    let limits = Arc::new(concurrency(3));
    let (order, mut entered) = tokio::sync::mpsc::unbounded_channel();
    let mut calls = Vec::new();
    for call in 0..12 {
        let (limits, order) = (Arc::clone(&limits), order.clone());
        calls.push(tokio::spawn(async move {
            let _slot = limits
                .enter(&caller("ada", &[]), in_seconds(30))
                .await
                .unwrap();
            order
                .send((call, limits.slots.as_ref().unwrap().available_permits()))
                .unwrap();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }));
        tokio::task::yield_now().await;
    }
    for call in calls {
        call.await.unwrap();
    }
    drop(order);
    let mut arrivals = Vec::new();
    while let Some((call, free)) = entered.recv().await {
        arrivals.push(call);
        assert!(free <= 2);
    }
    assert_eq!(arrivals, (0..12).collect::<Vec<_>>());
    assert_eq!(limits.slots.as_ref().unwrap().available_permits(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_rate_counts_each_caller_of_each_tool_alone() {
    let rates = Arc::new(SharedRateLimiter::new(None, &Ambient::system()));
    let (search, count) = (
        limits("search", rate("2/m"), &rates),
        limits("count", rate("2/m"), &rates),
    );
    let (ada, bob) = (caller("ada", &[]), caller("bob", &[]));
    for (limits, caller) in [(&search, &ada), (&search, &bob), (&count, &ada)] {
        for _ in 0..2 {
            drop(limits.enter(caller, in_seconds(30)).await.unwrap());
        }
        let refusal = limits.enter(caller, in_seconds(30)).await.unwrap_err();
        assert_eq!(refusal.limit, Limit::Rate);
        assert_eq!(refusal.retry_after, Duration::from_secs(30));
    }
}

#[tokio::test(start_paused = true)]
async fn a_reloaded_catalogue_fills_no_bucket() {
    let rates = Arc::new(SharedRateLimiter::new(None, &Ambient::system()));
    let before = limits("search", rate("1/m"), &rates);
    drop(
        before
            .enter(&caller("ada", &[]), in_seconds(30))
            .await
            .unwrap(),
    );
    let after = limits("search", rate("1/m"), &rates);
    after
        .enter(&caller("ada", &[]), in_seconds(30))
        .await
        .unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn a_tool_without_limits_lets_everyone_in() {
    let limits = limits(
        "tool",
        LimitSettings::default(),
        &Arc::new(SharedRateLimiter::new(None, &Ambient::system())),
    );
    let ada = caller("ada", &[]);
    let slots = join_all((0..10_000).map(|_| limits.enter(&ada, in_seconds(0)))).await;
    assert!(slots.iter().all(Result::is_ok));
}
