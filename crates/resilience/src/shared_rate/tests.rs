use std::collections::HashMap;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;

use futures::FutureExt;

use super::*;

/// A fake store of buckets that uses the paused clock of the test.
struct TestLeases {
    started: Instant,
    full_at: std::sync::Mutex<HashMap<Digest, u64>>,
    is_down: AtomicBool,
    asked: AtomicU32,
    replicas: u32,
}

impl TestLeases {
    fn new(replicas: u32) -> Arc<Self> {
        Arc::new(Self {
            started: Instant::now(),
            full_at: std::sync::Mutex::default(),
            is_down: AtomicBool::new(false),
            asked: AtomicU32::new(0),
            replicas,
        })
    }

    fn limiters(self: &Arc<Self>) -> Vec<SharedRateLimiter> {
        let store = || Arc::clone(self) as Arc<dyn LeaseStore>;
        (0..self.replicas)
            .map(|_| SharedRateLimiter::new(Some(store()), &Ambient::system()))
            .collect()
    }

    fn grant_lease(&self, request: LeaseRequest) -> Lease {
        let now = nanos(self.started.elapsed());
        let interval = nanos(request.interval);
        let mut buckets = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        let full_at = buckets.entry(request.bucket).or_insert(now);
        *full_at = (*full_at).max(now) + interval * u64::from(request.spent);
        let most = now + interval * u64::from(request.capacity);
        let there = u32::try_from(most.saturating_sub(*full_at) / interval).unwrap();
        let calls = if there < request.least {
            0
        } else {
            there.min(request.calls)
        };
        *full_at += interval * u64::from(calls);
        Lease {
            calls,
            full_in: Duration::from_nanos(*full_at - now),
        }
    }
}

impl LeaseStore for TestLeases {
    fn lease(&self, request: LeaseRequest) -> BoxFuture<'_, Result<Lease, LeaseStoreUnavailable>> {
        async move {
            self.asked.fetch_add(1, Ordering::Relaxed);
            if self.is_down.load(Ordering::Relaxed) {
                return Err(LeaseStoreUnavailable);
            }
            Ok(self.grant_lease(request))
        }
        .boxed()
    }

    fn announce(&self, _: [u8; 16]) -> BoxFuture<'_, Result<u32, LeaseStoreUnavailable>> {
        async move {
            if self.is_down.load(Ordering::Relaxed) {
                Err(LeaseStoreUnavailable)
            } else {
                Ok(self.replicas)
            }
        }
        .boxed()
    }
}

const ONE: NonZeroU32 = NonZeroU32::MIN;

fn rate(text: &str) -> Rate {
    text.parse().unwrap()
}

fn caller() -> Digest {
    Digest::compute(b"caller")
}

/// Sends calls to the replicas in turn and returns how many are admitted.
async fn count(limiters: &[SharedRateLimiter], rate: Rate, calls: usize) -> usize {
    let mut through = 0;
    for limiter in limiters.iter().cycle().take(calls) {
        through += usize::from(limiter.try_acquire_calls(caller(), rate, ONE).await.is_ok());
    }
    through
}

#[tokio::test(start_paused = true)]
async fn three_replicas_let_through_what_one_rate_allows() {
    for text in ["100/m", "6000/m", "2/s"] {
        let limiters = TestLeases::new(3).limiters();
        let rate = rate(text);
        let through = count(&limiters, rate, 3 * rate.calls() as usize).await;
        let calls = rate.calls() as usize;
        // Each replica may hold the rest of a lease.
        let leases = 3 * (calls / LEASES_PER_BUCKET as usize);
        assert!(
            (calls - leases..=calls).contains(&through),
            "{text}: {through}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_100_a_minute_holds_while_the_store_restarts() {
    let store = TestLeases::new(3);
    let limiters = store.limiters();
    let mut through = 0;
    // There are 90 calls a second for a minute, and the store is unavailable from second 0.5 to second 5.
    for tenth in 0..600 {
        store
            .is_down
            .store((5..50).contains(&tenth), Ordering::Relaxed);
        through += count(&limiters, rate("100/m"), 9).await;
        tokio::time::advance(Duration::from_millis(100)).await;
    }
    // These are a full bucket and what flows in within the minute.
    assert!((190..=205).contains(&through), "{through}");
}

#[tokio::test(start_paused = true)]
async fn what_a_replica_let_through_alone_is_taken_from_the_bucket_afterwards() {
    let store = TestLeases::new(2);
    let limiters = store.limiters();
    assert_eq!(count(&limiters, rate("100/h"), 10).await, 10);
    store.is_down.store(true, Ordering::Relaxed);
    let alone = count(&limiters, rate("100/h"), 40).await;
    assert_eq!(alone, 40);
    store.is_down.store(false, Ordering::Relaxed);
    tokio::time::advance(STORE_PAUSE).await;
    assert_eq!(count(&limiters, rate("100/h"), 200).await, 50);
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_is_back_first_gives_out_nothing_that_others_have_not_reported_yet() {
    let store = TestLeases::new(3);
    let limiters = store.limiters();
    let mut through = count(&limiters, rate("100/h"), 30).await;
    store.is_down.store(true, Ordering::Relaxed);
    through += count(&limiters[..1], rate("100/h"), 40).await;
    tokio::time::advance(STORE_PAUSE / 2).await;
    through += count(&limiters[1..], rate("100/h"), 80).await;
    store.is_down.store(false, Ordering::Relaxed);
    tokio::time::advance(STORE_PAUSE / 2).await;
    through += count(&limiters[..1], rate("100/h"), 200).await;
    tokio::time::advance(STORE_PAUSE / 2).await;
    through += count(&limiters, rate("100/h"), 300).await;
    tokio::time::advance(SHARE_AFTERWARDS).await;
    through += count(&limiters, rate("100/h"), 300).await;
    assert!((95..=105).contains(&through), "{through}");
}

#[tokio::test(start_paused = true)]
async fn refused_calls_do_not_reach_the_store_while_the_bucket_cannot_have_filled() {
    let store = TestLeases::new(1);
    let limiters = store.limiters();
    count(&limiters, rate("10/h"), 11).await;
    let asked = store.asked.load(Ordering::Relaxed);
    assert_eq!(count(&limiters, rate("10/h"), 1_000).await, 0);
    assert_eq!(store.asked.load(Ordering::Relaxed), asked);
}

#[tokio::test(start_paused = true)]
async fn a_high_rate_asks_the_store_once_for_a_hundredth_of_it() {
    let store = TestLeases::new(1);
    let limiters = store.limiters();
    assert_eq!(count(&limiters, rate("6000/m"), 6_000).await, 6_000);
    assert_eq!(store.asked.load(Ordering::Relaxed), LEASES_PER_BUCKET);
}

#[tokio::test(start_paused = true)]
async fn a_call_of_more_cost_takes_more_and_waits_until_so_much_has_flowed_in() {
    for limiter in [
        TestLeases::new(1).limiters().remove(0),
        SharedRateLimiter::new(None, &Ambient::system()),
    ] {
        let five = NonZeroU32::new(5).unwrap();
        assert_eq!(
            limiter
                .try_acquire_calls(caller(), rate("12/m"), five)
                .await,
            Ok(())
        );
        assert_eq!(
            limiter
                .try_acquire_calls(caller(), rate("12/m"), five)
                .await,
            Ok(())
        );
        let wait = Err(Duration::from_secs(15));
        assert_eq!(
            limiter
                .try_acquire_calls(caller(), rate("12/m"), five)
                .await,
            wait
        );
        tokio::time::advance(Duration::from_secs(15)).await;
        assert_eq!(
            limiter
                .try_acquire_calls(caller(), rate("12/m"), five)
                .await,
            Ok(())
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_delays_one_call_and_no_further_one_for_a_second() {
    struct HangingLeaseStore;
    impl LeaseStore for HangingLeaseStore {
        fn lease(&self, _: LeaseRequest) -> BoxFuture<'_, Result<Lease, LeaseStoreUnavailable>> {
            std::future::pending().boxed()
        }
        fn announce(&self, _: [u8; 16]) -> BoxFuture<'_, Result<u32, LeaseStoreUnavailable>> {
            std::future::pending().boxed()
        }
    }
    let limiter = SharedRateLimiter::new(Some(Arc::new(HangingLeaseStore)), &Ambient::system());
    let began = Instant::now();
    for _ in 0..100 {
        assert_eq!(
            limiter
                .try_acquire_calls(caller(), rate("1000/s"), ONE)
                .await,
            Ok(())
        );
    }
    assert_eq!(began.elapsed(), LEASE_LIMIT);
}

#[tokio::test(start_paused = true)]
async fn what_is_left_is_told_with_the_time_for_which_there_is_no_more() {
    let status = |remaining, seconds| RateStatus {
        remaining,
        window: Duration::from_secs(seconds),
    };
    for limiter in [
        TestLeases::new(1).limiters().remove(0),
        SharedRateLimiter::new(None, &Ambient::system()),
    ] {
        let take = |cost| {
            let cost = NonZeroU32::new(cost).unwrap();
            limiter.take_and_report(caller(), rate("12/m"), cost)
        };
        assert_eq!(take(1).await, (Ok(()), status(11, 5)));
        assert_eq!(take(5).await, (Ok(()), status(6, 30)));
        assert_eq!(take(6).await, (Ok(()), status(0, 5)));
        tokio::time::advance(Duration::from_secs(10)).await;
        let refused = (Err(Duration::from_secs(5)), status(2, 5));
        assert_eq!(take(3).await, refused);
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_tells_what_is_left_of_its_lease_too_and_alone_of_its_share() {
    let store = TestLeases::new(2);
    let limiters = store.limiters();
    let left = async |limiter: &SharedRateLimiter| {
        let taken = limiter.take_and_report(caller(), rate("1000/h"), ONE);
        taken.await.1.remaining
    };
    // A lease has ten calls, of which each call takes one.
    assert_eq!(left(&limiters[0]).await, 999);
    assert_eq!(left(&limiters[1]).await, 989);
    assert_eq!(
        left(&limiters[0]).await,
        998,
        "it does not know of the other"
    );
    store.is_down.store(true, Ordering::Relaxed);
    for _ in 0..8 {
        left(&limiters[0]).await;
    }
    assert_eq!(
        left(&limiters[0]).await,
        494,
        "half of 990, without this call"
    );
}
