//! How many calls may be made once more: so few that a failing neighbour is not buried under repetitions.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// So many calls pay for one retry.
const SHARE: u32 = 5;
/// What calls pay is forgotten after so many seconds.
const WINDOW: usize = 10;
/// Retries a second that nobody has to pay for, so that a quiet link has some.
const FREE: f64 = 10.0;

/// The retries of one link: a fifth of its calls of the last ten seconds, and ten a second.
#[derive(Debug)]
pub(super) struct Budget(Mutex<Account>);

#[derive(Debug)]
struct Account {
    /// Calls that nothing was spent of yet, a slot a second; `now` is the slot of `second`.
    paid: [u32; WINDOW],
    now: usize,
    second: Instant,
    free: f64,
    refilled: Instant,
}

impl Budget {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self(Mutex::new(Account {
            paid: [0; WINDOW],
            now: 0,
            second: now,
            free: FREE,
            refilled: now,
        }))
    }

    /// A call is made.
    pub(super) fn pay(&self) {
        let mut account = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        account.pass_time();
        let now = account.now;
        account.paid[now] += 1;
    }

    /// Whether one call may be made once more.
    pub(super) fn spend(&self) -> bool {
        let mut account = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        account.pass_time();
        if account.free >= 1.0 {
            account.free -= 1.0;
            return true;
        }
        if account.paid.iter().sum::<u32>() < SHARE {
            return false;
        }
        let mut owed = SHARE;
        // What is forgotten first is spent first.
        for age in (0..WINDOW).rev() {
            let slot = (account.now + WINDOW - age) % WINDOW;
            let taken = account.paid[slot].min(owed);
            account.paid[slot] -= taken;
            owed -= taken;
        }
        true
    }
}

impl Account {
    fn pass_time(&mut self) {
        let now = Instant::now();
        let passed = now.duration_since(self.refilled).as_secs_f64();
        self.free = (self.free + passed * FREE).min(FREE);
        self.refilled = now;
        let seconds = now.duration_since(self.second).as_secs();
        for _ in 0..seconds.min(WINDOW as u64) {
            self.now = (self.now + 1) % WINDOW;
            self.paid[self.now] = 0;
        }
        self.second += Duration::from_secs(seconds);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn spendable(budget: &Budget) -> u32 {
        let mut spent = 0;
        while budget.spend() {
            spent += 1;
        }
        spent
    }

    #[tokio::test(start_paused = true)]
    async fn when_every_call_fails_retries_are_a_fifth_of_them_and_ten_a_second() {
        let budget = Budget::new();
        let (mut offered, mut retried) = (0, 0);
        for _ in 0..30 {
            for _ in 0..500 {
                budget.pay();
                offered += 1;
                retried += u32::from(budget.spend()) + u32::from(budget.spend());
            }
            advance(Duration::from_secs(1)).await;
        }
        let most = offered / 5 + 30 * 10;
        assert!(retried <= most, "{retried} of at most {most}");
        assert!(retried >= most - 20, "{retried} of {most}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_paid_is_forgotten_and_a_quiet_link_has_its_ten() {
        let budget = Budget::new();
        assert_eq!(spendable(&budget), 10);
        for _ in 0..1_000 {
            budget.pay();
        }
        advance(Duration::from_secs(9)).await;
        assert_eq!(spendable(&budget), 210);
        for _ in 0..1_000 {
            budget.pay();
        }
        advance(Duration::from_secs(60)).await;
        assert_eq!(spendable(&budget), 10);
    }
}
