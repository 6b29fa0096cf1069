use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

/// Limits that fit a service with a capacity of 16: the capacity times the tolerance, and one step more.
const FITTING: std::ops::RangeInclusive<f64> = 12.0..=36.0;

/// A simulated service that does `capacity` concurrent calls in `base` each. More concurrent calls take proportionally
/// longer.
struct SimulatedService {
    limit: Limit,
    /// Used processor time in nanoseconds. The service has as many processors as its capacity.
    used: Arc<AtomicU64>,
    /// Whether the calls use the processors, or wait for something else.
    computes: bool,
    now: Instant,
    base: Duration,
    capacity: f64,
}

impl SimulatedService {
    fn new(config: Config) -> Self {
        Self::with_capacity(config, 16)
    }

    fn with_capacity(config: Config, capacity: u16) -> Self {
        let now = Instant::now();
        let used = Arc::new(AtomicU64::new(0));
        let of_processors = {
            let used = Arc::clone(&used);
            Box::new(move || Duration::from_nanos(used.load(Ordering::Relaxed)))
        };
        let processors = Processors::new(capacity.into(), of_processors, now);
        Self {
            limit: Limit::new(config, processors, now),
            used,
            computes: true,
            now,
            base: Duration::from_millis(10),
            capacity: capacity.into(),
        }
    }

    fn took(&self, under_way: usize) -> Duration {
        let under_way = f64::from(u32::try_from(under_way).unwrap());
        let factor = (under_way / self.capacity).max(1.0);
        self.base.mul_f64(factor)
    }

    /// Runs the service with this number of concurrent calls for that time.
    fn run(&mut self, demand: usize, duration: Duration) {
        let until = self.now + duration;
        while self.now < until {
            let under_way = demand.min(self.limit.current(self.now));
            let took = self.took(under_way);
            // One round of all concurrent calls.
            let in_calm = self.limit.is_calm(self.now, under_way);
            self.now += took;
            if self.computes {
                let work = self.base * u32::try_from(under_way).unwrap();
                let nanos = u64::try_from(work.as_nanos()).unwrap();
                self.used.fetch_add(nanos, Ordering::Relaxed);
            }
            for _ in 0..under_way {
                self.limit
                    .record_duration(self.now, DurationSource::Call("tool"), took, in_calm);
            }
        }
    }
}

/// Creates the limit of a service that hardly uses its processors.
fn idle(config: Config) -> Limit {
    let now = Instant::now();
    Limit::new(
        config,
        Processors::new(1, Box::new(|| Duration::ZERO), now),
        now,
    )
}

#[test]
fn under_overload_the_limit_falls_to_what_the_service_can_do_and_stays_there() {
    let mut service = SimulatedService::new(Config::default());
    service.run(4, Duration::from_secs(2));
    service.run(10_000, Duration::from_secs(3));
    for _ in 0..60 {
        service.run(10_000, Duration::from_secs(1));
        let limit = service.limit.current;
        assert!(FITTING.contains(&limit), "{limit}");
    }
}

#[test]
fn where_processors_are_busy_the_limit_falls_below_its_floor_and_returns_when_they_are_not() {
    let mut service = SimulatedService::with_capacity(Config::default(), 2);
    service.run(1, Duration::from_secs(2));
    service.run(10_000, Duration::from_secs(5));
    for _ in 0..60 {
        service.run(10_000, Duration::from_secs(1));
        let limit = service.limit.current;
        assert!((2.0..5.0).contains(&limit), "{limit}");
    }
    service.computes = false;
    service.capacity = 1_000.0;
    service.run(10_000, Duration::from_secs(3));
    assert!(service.limit.current > 16.0, "{}", service.limit.current);
}

#[test]
fn where_calls_wait_for_something_else_the_limit_keeps_its_floor() {
    let mut service = SimulatedService::with_capacity(Config::default(), 2);
    service.computes = false;
    service.run(1, Duration::from_secs(2));
    service.run(10_000, Duration::from_secs(60));
    assert!((service.limit.current - 16.0).abs() < 1.0);
}

#[test]
fn a_limit_that_fell_rises_again_where_the_calls_under_way_do_not_end() {
    let mut service = SimulatedService::with_capacity(Config::default(), 2);
    service.run(1, Duration::from_secs(2));
    service.run(10_000, Duration::from_secs(5));
    let held = service.limit.current(service.now);
    for _ in 0..10 {
        service.now += LONGEST_WINDOW;
        service
            .limit
            .has_to_wait(service.now, held.max(service.limit.current(service.now)));
    }
    assert!(service.limit.current >= 16.0, "{}", service.limit.current);
}

#[test]
fn a_service_that_starts_in_overload_still_learns_what_is_normal() {
    let mut service = SimulatedService::new(Config::default());
    service.run(10_000, Duration::from_secs(90));
    let limit = service.limit.current;
    assert!(FITTING.contains(&limit), "{limit}");
}

#[test]
fn the_limit_rises_with_demand_that_the_service_can_take() {
    let mut service = SimulatedService::new(Config::default());
    service.computes = false;
    service.capacity = 100_000.0;
    service.run(4, Duration::from_secs(1));
    service.limit.config.max = 400;
    service.run(10_000, Duration::from_secs(8));
    assert!(service.limit.current > 380.0, "{}", service.limit.current);
    service.run(10_000, Duration::from_secs(2));
    assert!(service.limit.current <= 400.0);
}

#[test]
fn after_overload_the_limit_returns_to_where_it_began() {
    let mut service = SimulatedService::new(Config::default());
    service.run(4, Duration::from_secs(2));
    service.run(10_000, Duration::from_secs(5));
    assert!(service.limit.current < 40.0);
    service.run(1, Duration::from_secs(30));
    assert!((service.limit.current - 64.0).abs() < 1.0);
}

#[test]
fn what_became_slower_for_good_is_normal_after_a_while() {
    let mut service = SimulatedService::new(Config::default());
    service.run(4, Duration::from_secs(2));
    service.run(10_000, Duration::from_secs(5));
    service.base *= 5;
    service.run(10_000, Duration::from_secs(90));
    let limit = service.limit.current;
    assert!(FITTING.contains(&limit), "{limit}");
}

#[test]
fn calm_that_is_made_ends_although_no_call_does() {
    let mut service = SimulatedService::new(Config::default());
    service.run(4, Duration::from_secs(2));
    while service.limit.making_calm.is_none() {
        service.run(10_000, Duration::from_millis(1));
    }
    let low = service.limit.current(service.now);
    assert!(low < service.limit.current(service.now + UNTIL_CALM + CALM_LASTS));
}

#[test]
fn nothing_is_held_up_for_calm_where_calls_are_not_strained() {
    let mut service = SimulatedService::new(Config::default());
    service.computes = false;
    service.capacity = 100_000.0;
    service.run(4, Duration::from_secs(1));
    for _ in 0..3_000 {
        service.run(200, Duration::from_millis(1));
        assert!(service.limit.making_calm.is_none());
    }
}

#[test]
fn another_mix_of_tools_is_no_strain() {
    let mut limit = idle(Config::default());
    let mut now = Instant::now();
    let (quick, slow) = (Duration::from_millis(1), Duration::from_secs(2));
    for (kind, took) in [("quick", quick), ("slow", slow)] {
        for _ in 0..100 {
            limit.record_duration(now, DurationSource::Call(kind), took, true);
        }
    }
    for _ in 0..2_000 {
        now += Duration::from_millis(1);
        limit.is_calm(now, 64);
        limit.record_duration(now, DurationSource::Call("slow"), slow, false);
    }
    assert!(limit.current >= 64.0, "{}", limit.current);
}

#[test]
fn a_neighbour_that_takes_longer_or_turns_calls_away_lowers_the_limit() {
    let mut limit = idle(Config::default());
    let mut now = Instant::now();
    for _ in 0..100 {
        limit.record_duration(
            now,
            DurationSource::Neighbour,
            Duration::from_millis(1),
            true,
        );
    }
    let mut fill = |limit: &mut Limit, what: &dyn Fn(&mut Limit, Instant)| {
        for _ in 0..500 {
            now += Duration::from_millis(1);
            limit.is_calm(now, limit.current(now));
            what(limit, now);
        }
    };
    fill(&mut limit, &|limit, now| {
        limit.record_duration(
            now,
            DurationSource::Neighbour,
            Duration::from_millis(20),
            false,
        );
    });
    let slowed = limit.current;
    assert!(slowed < 32.0, "{slowed}");
    limit.current = 64.0;
    fill(&mut limit, &|limit, now| limit.turned_away(now));
    assert!(limit.current < 32.0, "{}", limit.current);
}

#[test]
fn kinds_beyond_the_bound_share_one() {
    let mut limit = idle(Config::default());
    for kind in 0..2 * KINDS {
        limit.record_duration(
            Instant::now(),
            DurationSource::Call(&kind.to_string()),
            Duration::ZERO,
            true,
        );
    }
    assert_eq!(limit.kinds.len(), KINDS + 1);
}
