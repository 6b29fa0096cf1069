use futures::FutureExt;

use super::*;

fn limiter(limit: usize, queue: usize) -> Limiter {
    let config = Config {
        min: limit,
        max: limit,
        initial: limit,
        queue,
        ..Config::default()
    };
    Limiter::new("test", config)
}

/// Starts a call of a tenant's caller that has no slot yet.
fn waits(
    limiter: &Limiter,
    tenant: &'static str,
) -> tokio::task::JoinHandle<Result<Slot, OverloadRefusal>> {
    let limiter = limiter.clone();
    tokio::spawn(async move { limiter.enter(tenant, "a").await })
}

async fn settle() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_finds_no_place_waits_a_short_while_and_is_then_turned_away() {
    let limiter = limiter(1, 10);
    let _first = limiter.enter("t", "a").await.unwrap();
    let began = Instant::now();
    let refused = limiter.enter("t", "a").await.unwrap_err();
    assert_eq!(began.elapsed(), Config::default().wait());
    assert!(!refused.is_over_share, "nobody else is there");
    assert!(refused.retry_after >= Config::default().wait());
}

#[tokio::test(start_paused = true)]
async fn what_waits_gets_the_place_of_what_ends() {
    let limiter = limiter(1, 10);
    let first = limiter.enter("t", "a").await.unwrap();
    let second = waits(&limiter, "t");
    settle().await;
    first.end_call("tool");
    let slot = second.await.unwrap().unwrap();
    assert_eq!(limiter.0.state().queue.under_way(), 1);
    drop(slot);
    assert_eq!(limiter.0.state().queue.under_way(), 0);
}

#[tokio::test(start_paused = true)]
async fn while_a_call_is_recorded_the_next_has_its_place_but_no_more_wait_so_than_there_are_places()
{
    let limiter = limiter(1, 10);
    let first = limiter.enter("t", "a").await.unwrap();
    let second = waits(&limiter, "t");
    settle().await;
    let first = first.end_call("tool");
    let second = second.await.unwrap().unwrap();
    let third = waits(&limiter, "t");
    settle().await;
    let second = second.end_call("tool");
    settle().await;
    assert!(!third.is_finished(), "one call is being recorded already");
    drop(second);
    let third = third.await.unwrap().unwrap();
    drop(first);
    let third = third.end_call("tool");
    assert_eq!(limiter.0.state().queue.under_way(), 0);
    drop(third);
    assert_eq!(limiter.0.state().recording, 0);
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_turns_away_at_once_whoever_waits_with_most() {
    let limiter = limiter(1, 2);
    let _first = limiter.enter("busy", "a").await.unwrap();
    let (oldest, second) = (waits(&limiter, "busy"), waits(&limiter, "busy"));
    settle().await;
    // The tenant has no call in progress, but the overdraft is used up.
    let _other = limiter.enter("other", "a").await.unwrap();
    let quiet = waits(&limiter, "quiet");
    settle().await;
    let refused = oldest.now_or_never().unwrap().unwrap().unwrap_err();
    assert!(refused.is_over_share, "three share two places");
    assert!(second.now_or_never().is_none());
    assert!(quiet.now_or_never().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_tenant_at_ten_times_its_share_starves_no_other() {
    let limiter = limiter(8, 64);
    let served = Arc::new(Mutex::new([0_u32; 2]));
    let mut callers = tokio::task::JoinSet::new();
    for (tenant, name, callers_of) in [(0, "busy", 100), (1, "quiet", 4)] {
        for _ in 0..callers_of {
            let (limiter, served) = (limiter.clone(), Arc::clone(&served));
            callers.spawn(async move {
                loop {
                    match limiter.enter(name, "a").await {
                        Ok(slot) => {
                            tokio::time::sleep(Duration::from_millis(20)).await;
                            slot.end_call("tool");
                            served.lock().unwrap()[tenant] += 1;
                        }
                        Err(refused) => tokio::time::sleep(refused.retry_after).await,
                    }
                }
            });
        }
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    callers.shutdown().await;
    let [busy, quiet] = *served.lock().unwrap();
    // Four callers get half of the eight slots, except for the moments between their calls.
    assert!(quiet > 1_600, "{quiet} of quiet, {busy} of busy");
    assert!(busy > 1_800, "nor does it lie idle: {busy}");
}

#[tokio::test(start_paused = true)]
async fn whoever_has_nothing_under_way_gets_in_past_calls_that_take_long() {
    let limiter = limiter(4, 10);
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(limiter.enter("busy", "a").await.unwrap());
    }
    let _quiet = limiter.enter("quiet", "a").now_or_never().unwrap().unwrap();
    assert!(limiter.enter("third", "a").now_or_never().is_none());
    let refused = limiter.enter("busy", "a").await.unwrap_err();
    assert!(refused.is_over_share);
}

#[tokio::test(start_paused = true)]
async fn calls_go_in_the_order_they_came() {
    let limiter = limiter(1, 10);
    let first = limiter.enter("t", "a").await.unwrap();
    let old = waits(&limiter, "t");
    tokio::time::sleep(Config::default().wait() * 9 / 10).await;
    let new = waits(&limiter, "t");
    settle().await;
    drop(first);
    settle().await;
    let _next = old.now_or_never().unwrap().unwrap().unwrap();
    assert!(new.now_or_never().is_none());
}

#[tokio::test(start_paused = true)]
async fn while_calls_are_turned_away_the_newest_is_next_and_waits_are_short() {
    let limiter = limiter(1, 2);
    let first = limiter.enter("t", "a").await.unwrap();
    let mut crowd: Vec<_> = (0..3).map(|_| waits(&limiter, "t")).collect();
    settle().await;
    let turned_away = crowd.remove(0).now_or_never().unwrap().unwrap();
    assert!(turned_away.is_err());

    let began = Instant::now();
    let refused = limiter.enter("t", "a").await;
    assert!(refused.is_err());
    assert_eq!(began.elapsed(), Config::default().wait() / SHORT);

    let newest = waits(&limiter, "t");
    settle().await;
    drop(first);
    settle().await;
    let place = newest.now_or_never().unwrap().unwrap().unwrap();

    // Once no call waits, the maximum wait is the normal one again.
    for waiting in crowd {
        waiting.abort();
    }
    settle().await;
    drop(place);
    let _held = limiter.enter("t", "a").await.unwrap();
    let began = Instant::now();
    assert!(limiter.enter("t", "a").await.is_err());
    assert_eq!(began.elapsed(), Config::default().wait());
}

#[tokio::test(start_paused = true)]
async fn while_calls_are_turned_away_few_wait_and_the_oldest_makes_room_at_once() {
    let limiter = limiter(1, 512);
    let _held = limiter.enter("t", "a").await.unwrap();
    let before: Vec<_> = (0..20).map(|_| waits(&limiter, "t")).collect();
    settle().await;
    assert_eq!(limiter.0.state().queue.waiting_count(), 20, "there is room");
    // A call waits too long, which begins the overload.
    tokio::time::sleep(Config::default().wait()).await;
    settle().await;
    drop(before);

    let mut crowd: Vec<_> = (0..FEW).map(|_| waits(&limiter, "t")).collect();
    settle().await;
    assert_eq!(limiter.0.state().queue.waiting_count(), FEW);
    crowd.push(waits(&limiter, "t"));
    settle().await;
    let oldest = crowd.remove(0).now_or_never().unwrap().unwrap();
    assert!(oldest.is_err(), "no time has passed");
    assert!(crowd.iter().all(|waiting| !waiting.is_finished()));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_a_person_holds_no_place() {
    let limiter = limiter(1, 10);
    let mut asks = limiter.enter("t", "a").await.unwrap();
    asks.pause();
    let other = limiter.enter("t", "a").now_or_never().unwrap().unwrap();
    asks.resume();
    assert_eq!(limiter.0.state().queue.under_way(), 2);
    drop(other);
    drop(asks);
    assert_eq!(limiter.0.state().queue.under_way(), 0);
}

#[tokio::test(start_paused = true)]
async fn whoever_stops_waiting_leaves_nothing_behind() {
    let limiter = limiter(1, 10);
    let first = limiter.enter("t", "a").await.unwrap();
    let gone = waits(&limiter, "t");
    settle().await;
    gone.abort();
    settle().await;
    assert_eq!(limiter.0.state().queue.waiting_count(), 0);
    drop(first);
    assert_eq!(limiter.0.state().queue.under_way(), 0);
}
