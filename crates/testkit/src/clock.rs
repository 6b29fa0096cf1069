//! A clock that a test sets.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use wardgate_domain::{Ambient, Clock, SystemEntropy, Timestamp};

/// A clock that stands still until a test moves it. Clones show the same time.
#[derive(Debug, Clone)]
pub struct TestClock {
    micros: Arc<AtomicI64>,
    /// Microseconds by which each reading advances the clock.
    step: i64,
}

impl TestClock {
    /// Creates a clock that shows `seconds` since 1970.
    pub fn at(seconds: i64) -> Self {
        Self::with_step(seconds, 0)
    }

    /// Creates a clock that shows `seconds` since 1970 and advances by a microsecond at each reading, so that no two
    /// readings are equal.
    pub fn ticking_from(seconds: i64) -> Self {
        Self::with_step(seconds, 1)
    }

    fn with_step(seconds: i64, step: i64) -> Self {
        let micros = Timestamp::from_seconds(seconds).as_micros();
        Self {
            micros: Arc::new(AtomicI64::new(micros)),
            step,
        }
    }

    /// Sets the clock to `seconds` since 1970.
    pub fn set(&self, seconds: i64) {
        let micros = Timestamp::from_seconds(seconds).as_micros();
        self.micros.store(micros, Ordering::SeqCst);
    }

    /// Advances the clock.
    pub fn advance(&self, by: Duration) {
        let micros = i64::try_from(by.as_micros()).expect("a duration of a test");
        self.micros.fetch_add(micros, Ordering::SeqCst);
    }

    /// Returns an ambient with this clock and with real randomness.
    pub fn ambient(&self) -> Ambient {
        Ambient::new(Arc::new(self.clone()), Arc::new(SystemEntropy))
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.micros.fetch_add(self.step, Ordering::SeqCst))
    }
}
