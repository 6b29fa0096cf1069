use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures::future::join_all;
use tokio::time::{sleep, timeout};
use wardgate_testkit::TestClock;

use super::*;

const TTL: Duration = Duration::from_secs(30);
const TAKES: Duration = Duration::from_millis(100);

fn cache(max_bytes: usize) -> (ResultCache<Arc<str>>, TestClock) {
    let clock = TestClock::at(0);
    let ambient = clock.ambient();
    clock.set(1_000);
    let cache = ResultCache::new(max_bytes, |text: &Arc<str>| text.len(), ambient);
    (cache, clock)
}

fn key(text: &str) -> Digest {
    Digest::compute(text.as_bytes())
}

/// A tool that counts its runs.
#[derive(Default)]
struct Tool(AtomicU32);

impl Tool {
    async fn answer(&self) -> Result<Arc<str>, Infallible> {
        let run = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        sleep(TAKES).await;
        Ok(format!("run {run}").into())
    }

    async fn fail(&self) -> Result<Arc<str>, &'static str> {
        self.0.fetch_add(1, Ordering::Relaxed);
        sleep(TAKES).await;
        Err("no rows")
    }

    fn runs(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_is_kept_for_its_time_to_live_and_no_longer() {
    let ((cache, clock), tool) = (cache(1_000_000), Tool::default());
    for (now, run) in [
        (1_000, "run 1"),
        (1_029, "run 1"),
        (1_030, "run 2"),
        (1_059, "run 2"),
    ] {
        clock.set(now);
        let result = cache.get_or_run(key("call"), TTL, tool.answer()).await;
        assert_eq!(&*result.unwrap(), run, "at {now}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_clock_set_back_keeps_nothing_alive() {
    let ((cache, clock), tool) = (cache(1_000_000), Tool::default());
    for now in [1_000, 500] {
        clock.set(now);
        cache
            .get_or_run(key("call"), TTL, tool.answer())
            .await
            .unwrap();
    }
    assert_eq!(tool.runs(), 2);
}

#[tokio::test(start_paused = true)]
async fn other_calls_have_other_results() {
    let ((cache, _clock), tool) = (cache(1_000_000), Tool::default());
    let ada = cache.get_or_run(key("ada"), TTL, tool.answer()).await;
    let bob = cache.get_or_run(key("bob"), TTL, tool.answer()).await;
    assert_ne!(ada, bob);
}

#[tokio::test(start_paused = true)]
async fn the_same_call_a_hundred_times_at_once_runs_once() {
    // This holds even if the result is too large to be cached.
    for max_bytes in [1_000_000, 1] {
        let ((cache, _clock), tool) = (cache(max_bytes), Tool::default());
        let calls = (0..100).map(|_| cache.get_or_run(key("call"), TTL, tool.answer()));
        let results = join_all(calls).await;
        assert!(
            results
                .iter()
                .all(|result| result.as_deref() == Ok("run 1"))
        );
        assert_eq!(tool.runs(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_is_never_kept() {
    let ((cache, _clock), tool) = (cache(1_000_000), Tool::default());
    cache
        .get_or_run(key("call"), TTL, tool.fail())
        .await
        .unwrap_err();
    assert!(cache.entries.is_empty());
    let result = cache.get_or_run(key("call"), TTL, tool.answer()).await;
    assert_eq!(&*result.unwrap(), "run 2");
}

#[tokio::test(start_paused = true)]
async fn those_who_waited_for_a_call_that_failed_wait_for_no_other() {
    let ((cache, _clock), tool) = (cache(1_000_000), Tool::default());
    let began = tokio::time::Instant::now();
    let calls = (0..100).map(|_| cache.get_or_run(key("call"), TTL, tool.fail()));
    assert!(join_all(calls).await.iter().all(Result::is_err));
    assert_eq!((tool.runs(), began.elapsed()), (100, TAKES * 2));
}

#[tokio::test(start_paused = true)]
async fn when_the_caller_who_runs_it_leaves_one_who_waits_takes_over() {
    let ((cache, _clock), tool) = (cache(1_000_000), Tool::default());
    let leaves = timeout(TAKES / 2, cache.get_or_run(key("call"), TTL, tool.answer()));
    let stay = join_all((0..50).map(|_| cache.get_or_run(key("call"), TTL, tool.answer())));
    let (left, stayed) = tokio::join!(leaves, stay);
    left.unwrap_err();
    assert!(stayed.iter().all(|result| result.as_deref() == Ok("run 2")));
    assert_eq!(tool.runs(), 2);
}

#[tokio::test(start_paused = true)]
async fn callers_who_leave_one_after_the_other_strand_nobody() {
    let ((cache, _clock), tool) = (cache(1_000_000), Tool::default());
    let cache = Arc::new(cache);
    let tool = Arc::new(tool);
    let calls: Vec<_> = (1..=40)
        .map(|patience| {
            let (cache, tool) = (Arc::clone(&cache), Arc::clone(&tool));
            tokio::spawn(async move {
                let call = cache.get_or_run(key("call"), TTL, tool.answer());
                timeout(TAKES / 10 * patience, call).await.is_ok()
            })
        })
        .collect();
    let answered = join_all(calls)
        .await
        .into_iter()
        .filter(|answered| *answered.as_ref().unwrap())
        .count();
    assert!(answered > 0);
    let result = timeout(TAKES * 2, cache.get_or_run(key("call"), TTL, tool.answer())).await;
    result.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn however_many_results_there_are_they_take_no_more_than_the_bytes_set() {
    let (cache, _clock) = cache(1_000_000);
    for call in 0..100_000_u32 {
        let key = Digest::compute(&call.to_be_bytes());
        let result = async { Ok::<_, Infallible>(Arc::from("0123456789")) };
        cache.get_or_run(key, TTL, result).await.unwrap();
    }
    assert!(cache.entries.weight() <= 1_000_000);
    assert!(cache.entries.len() <= 1_000_000 / (10 + ENTRY_BYTES));
}
