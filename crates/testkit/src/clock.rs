//! Time that a test sets.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use wardgate_domain::{Ambient, Clock, SystemEntropy, Timestamp};

/// A clock that stands still until a test moves it. Clones show the same time.
#[derive(Debug, Clone)]
pub struct TestClock {
    micros: Arc<AtomicI64>,
    /// How many microseconds a reading moves it.
    step: i64,
}

impl TestClock {
    /// A clock that shows `seconds` since 1970.
    pub fn at(seconds: i64) -> Self {
        Self::stepping(seconds, 0)
    }

    /// A clock that shows `seconds` since 1970 at first, and a microsecond more at each reading: no two readings are the
    /// same.
    pub fn ticking_from(seconds: i64) -> Self {
        Self::stepping(seconds, 1)
    }

    fn stepping(seconds: i64, step: i64) -> Self {
        let micros = Timestamp::from_seconds(seconds).as_micros();
        Self {
            micros: Arc::new(AtomicI64::new(micros)),
            step,
        }
    }

    /// Shows `seconds` since 1970 from now on.
    pub fn set(&self, seconds: i64) {
        let micros = Timestamp::from_seconds(seconds).as_micros();
        self.micros.store(micros, Ordering::SeqCst);
    }

    /// Moves it forwards.
    pub fn advance(&self, by: Duration) {
        let micros = i64::try_from(by.as_micros()).expect("a duration of a test");
        self.micros.fetch_add(micros, Ordering::SeqCst);
    }

    /// This clock, and true randomness.
    pub fn ambient(&self) -> Ambient {
        Ambient::new(Arc::new(self.clone()), Arc::new(SystemEntropy))
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.micros.fetch_add(self.step, Ordering::SeqCst))
    }
}
