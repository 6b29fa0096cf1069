use std::time::Duration;

use tokio::time::advance;
use wardgate_domain::{Ambient, Timestamp};
use wardgate_testkit::{TestClock, highest_chance, lowest_chance};

use super::*;

const PROBE_AFTER: Duration = Duration::from_secs(5);

fn breaker(ambient: Ambient) -> Breaker {
    Breaker::new("source".to_owned(), BreakerSettings::default(), ambient)
}

fn fail(breaker: &Breaker, times: usize) {
    for _ in 0..times {
        breaker
            .admit()
            .unwrap()
            .record_failure(FailureCause::Source);
    }
}

#[tokio::test(start_paused = true)]
async fn seven_failures_in_a_row_open_it_and_six_do_not() {
    let breaker = breaker(lowest_chance());
    fail(&breaker, 6);
    breaker.admit().unwrap().record_success();
    fail(&breaker, 6);
    assert_eq!(breaker.state(), BreakerState::Closed);
    fail(&breaker, 1);
    let retry_after = PROBE_AFTER * 4 / 5;
    assert_eq!(breaker.admit().unwrap_err(), OpenCircuit { retry_after });
}

#[tokio::test(start_paused = true)]
async fn timeouts_of_one_caller_do_not_open_it_and_those_of_two_do() {
    let breaker = breaker(lowest_chance());
    let time_out = |caller: &str, times| {
        let caller = wardgate_testkit::caller(caller, &[]).digest();
        for _ in 0..times {
            let trial = breaker.admit().unwrap();
            trial.record_failure(FailureCause::Timeout { caller });
        }
    };
    time_out("ada", 100);
    assert_eq!(breaker.state(), BreakerState::Closed);
    time_out("bob", 2);
    assert_eq!(breaker.state(), BreakerState::Closed);
    time_out("bob", 1);
    assert_ne!(breaker.state(), BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn it_tells_since_when_the_source_is_away_until_it_is_back() {
    let clock = TestClock::at(0);
    let ambient = clock.ambient();
    let breaker = breaker(ambient);
    clock.set(100);
    fail(&breaker, 7);
    let since = Timestamp::from_seconds(100);
    assert_eq!(breaker.state(), BreakerState::Open { since });
    clock.set(105);
    advance(PROBE_AFTER).await;
    let probe = breaker.admit().unwrap();
    assert_eq!(breaker.state(), BreakerState::HalfOpen { since });
    probe.record_failure(FailureCause::Source);
    assert_eq!(breaker.state(), BreakerState::Open { since });
    advance(PROBE_AFTER).await;
    breaker.admit().unwrap().record_success();
    assert_eq!(breaker.state(), BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn of_a_hundred_callers_one_at_a_time_probes() {
    let breaker = breaker(Ambient::system());
    fail(&breaker, 7);
    for _ in 0..3 {
        advance(PROBE_AFTER).await;
        let mut probes: Vec<_> = (0..100).filter_map(|_| breaker.admit().ok()).collect();
        assert_eq!(probes.len(), 1);
        probes.remove(0).record_failure(FailureCause::Source);
    }
}

#[test]
fn of_a_hundred_threads_one_at_a_time_probes() {
    let breaker = breaker(Ambient::system());
    *breaker.lock() = CircuitState::Open {
        since: Timestamp::from_seconds(0),
        waits_from: Instant::now(),
        wait: Duration::ZERO,
    };
    let start = std::sync::Barrier::new(100);
    let admitted: usize = std::thread::scope(|threads| {
        let callers: Vec<_> = (0..100)
            .map(|_| {
                threads.spawn(|| {
                    start.wait();
                    let probe = breaker.admit().ok();
                    start.wait();
                    usize::from(probe.is_some())
                })
            })
            .collect();
        callers
            .into_iter()
            .map(|caller| caller.join().unwrap())
            .sum()
    });
    assert_eq!(admitted, 1);
}

#[tokio::test(start_paused = true)]
async fn a_probe_whose_caller_leaves_frees_the_place_at_once() {
    let breaker = breaker(Ambient::system());
    fail(&breaker, 7);
    advance(PROBE_AFTER).await;
    let probe = breaker.admit().unwrap();
    assert!(breaker.admit().is_err());
    drop(probe);
    breaker.admit().unwrap().record_success();
    assert_eq!(breaker.state(), BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_hangs_does_not_hide_that_the_source_is_back() {
    let breaker = breaker(Ambient::system());
    fail(&breaker, 7);
    advance(PROBE_AFTER).await;
    let hanging = breaker.admit().unwrap();
    advance(Duration::from_secs(4)).await;
    let retry_after = Duration::from_secs(1);
    assert_eq!(breaker.admit().unwrap_err(), OpenCircuit { retry_after });
    advance(retry_after).await;
    let answered = breaker.admit().unwrap();
    assert!(breaker.admit().is_err());
    hanging.record_failure(FailureCause::Source);
    answered.record_success();
    assert_eq!(breaker.state(), BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_leaves_counts_for_nothing() {
    let breaker = breaker(Ambient::system());
    fail(&breaker, 6);
    for _ in 0..100 {
        drop(breaker.admit().unwrap());
    }
    assert_eq!(breaker.state(), BreakerState::Closed);
    fail(&breaker, 1);
    assert!(breaker.admit().is_err());
}

#[tokio::test(start_paused = true)]
async fn answers_from_before_it_opened_change_nothing() {
    let breaker = breaker(Ambient::system());
    let (answer, failure) = (breaker.admit().unwrap(), breaker.admit().unwrap());
    fail(&breaker, 7);
    answer.record_success();
    assert!(breaker.admit().is_err());
    advance(PROBE_AFTER).await;
    let probe = breaker.admit().unwrap();
    failure.record_failure(FailureCause::Source);
    assert!(matches!(breaker.state(), BreakerState::HalfOpen { .. }));
    probe.record_success();
    assert_eq!(breaker.state(), BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn the_wait_for_a_probe_is_random_in_its_last_fifth() {
    let wait = |ambient| {
        let breaker = breaker(ambient);
        fail(&breaker, 7);
        breaker.admit().unwrap_err().retry_after
    };
    let shortest = PROBE_AFTER * 4 / 5;
    assert_eq!(wait(lowest_chance()), shortest);
    let longest = wait(highest_chance());
    assert!(longest + Duration::from_millis(1) > PROBE_AFTER);
    for _ in 0..1_000 {
        assert!((shortest..=PROBE_AFTER).contains(&wait(Ambient::system())));
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_ever_is_no_trouble() {
    let settings = BreakerSettings {
        failures: 1,
        probe_after: Duration::MAX,
    };
    let breaker = Breaker::new("source".to_owned(), settings, Ambient::system());
    fail(&breaker, 1);
    assert!(breaker.admit().is_err());
}
