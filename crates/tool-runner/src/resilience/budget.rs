//! How many retries a source may get, however many callers would like one.
//!
//! ```text
//!   retries ≤ 10 in each second  +  20 % of the calls first sent to the source in the last 10 s
//! ```
//!
//! Without it, callers that retry three times turn a source that is slow into one that gets four times its load.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

/// Seconds for which a call counts.
const WINDOW: usize = 10;

/// One retry for so many calls.
const CALLS_PER_RETRY: u64 = 5;

/// Retries of a second that need no calls to pay for them, so that a quiet source is retried as well.
const RESERVE: u64 = 10;

/// The retries of one source.
#[derive(Debug)]
pub(super) struct RetryBudget {
    started: Instant,
    window: Mutex<Window>,
}

impl RetryBudget {
    pub(super) fn new() -> Self {
        Self {
            started: Instant::now(),
            window: Mutex::default(),
        }
    }

    /// Counts a call that is sent to the source for the first time.
    pub(super) fn offered(&self) {
        let second = self.second();
        self.window().offered(second);
    }

    /// Takes one retry out of the budget, if one is left.
    pub(super) fn withdraw(&self) -> bool {
        let second = self.second();
        self.window().withdraw(second)
    }

    fn second(&self) -> u64 {
        self.started.elapsed().as_secs()
    }

    fn window(&self) -> MutexGuard<'_, Window> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The last seconds, each at its number modulo [`WINDOW`].
#[derive(Debug, Default)]
struct Window {
    latest: u64,
    seconds: [Second; WINDOW],
}

#[derive(Debug, Default, Clone, Copy)]
struct Second {
    calls: u64,
    /// Retries that calls paid for.
    paid: u64,
    /// Retries out of the reserve.
    reserved: u64,
}

impl Window {
    fn offered(&mut self, second: u64) {
        self.advance(second).calls += 1;
    }

    fn withdraw(&mut self, second: u64) -> bool {
        let current = self.advance(second);
        if current.reserved < RESERVE {
            current.reserved += 1;
            return true;
        }
        let calls: u64 = self.seconds.iter().map(|second| second.calls).sum();
        let paid: u64 = self.seconds.iter().map(|second| second.paid).sum();
        let within = (paid + 1) * CALLS_PER_RETRY <= calls;
        self.advance(second).paid += u64::from(within);
        within
    }

    /// Forgets what is older than the window. Threads may see the seconds out of order; the latest one holds.
    fn advance(&mut self, second: u64) -> &mut Second {
        let passed = second.saturating_sub(self.latest).min(WINDOW as u64);
        self.latest = self.latest.max(second);
        for back in 0..passed {
            *self.at(self.latest - back) = Second::default();
        }
        self.at(self.latest)
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "the remainder is less than ten"
    )]
    fn at(&mut self, second: u64) -> &mut Second {
        &mut self.seconds[(second % WINDOW as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone, Copy)]
    enum Event {
        Call,
        Retry,
        Seconds(u64),
    }

    fn events() -> impl Strategy<Value = Vec<Event>> {
        let event = prop_oneof![
            20 => Just(Event::Call),
            20 => Just(Event::Retry),
            1 => (0_u64..15).prop_map(Event::Seconds),
        ];
        prop::collection::vec(event, 0..2_000)
    }

    proptest! {
        #[test]
        fn retries_never_exceed_a_fifth_of_the_calls_and_ten_a_second(events in events()) {
            let mut window = Window::default();
            let (mut second, mut calls, mut retries, mut seconds) = (0, 0, 0, 1);
            for event in events {
                match event {
                    Event::Call => {
                        window.offered(second);
                        calls += 1;
                    }
                    Event::Retry => retries += u64::from(window.withdraw(second)),
                    Event::Seconds(passed) => {
                        second += passed;
                        seconds += passed;
                    }
                }
                prop_assert!(retries <= calls / CALLS_PER_RETRY + RESERVE * seconds);
            }
        }

        #[test]
        fn every_retry_that_the_last_ten_seconds_paid_for_is_given(calls in 0_u64..1_000, wait in 0_u64..20) {
            let mut window = Window::default();
            for _ in 0..calls {
                window.offered(0);
            }
            let retries = (0..10_000).filter(|_| window.withdraw(wait)).count() as u64;
            let counted = if wait < WINDOW as u64 { calls } else { 0 };
            prop_assert_eq!(retries, counted / CALLS_PER_RETRY + RESERVE);
        }
    }

    #[test]
    fn a_thread_that_is_a_second_late_spoils_nothing() {
        let mut window = Window::default();
        for _ in 0..50 {
            window.offered(7);
            window.offered(6);
        }
        assert_eq!((0..100).filter(|_| window.withdraw(6)).count(), 20 + 10);
    }

    #[tokio::test(start_paused = true)]
    async fn the_reserve_comes_back_every_second() {
        let budget = RetryBudget::new();
        for _ in 0..3 {
            assert_eq!((0..100).filter(|_| budget.withdraw()).count(), 10);
            tokio::time::advance(std::time::Duration::from_secs(1)).await;
        }
    }
}
