//! Time that a test sets.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use wardgate_domain::{Ambient, Clock, SystemEntropy, Timestamp};

/// A clock that stands still until a test moves it. Clones show the same time.
#[derive(Debug, Clone)]
pub struct TestClock(Arc<AtomicI64>);

impl TestClock {
    /// A clock that shows `seconds` since 1970.
    pub fn at(seconds: i64) -> Self {
        Self(Arc::new(AtomicI64::new(
            Timestamp::from_seconds(seconds).as_micros(),
        )))
    }

    /// Shows `seconds` since 1970 from now on.
    pub fn set(&self, seconds: i64) {
        let micros = Timestamp::from_seconds(seconds).as_micros();
        self.0.store(micros, Ordering::SeqCst);
    }

    /// Moves it forwards.
    pub fn advance(&self, by: Duration) {
        let micros = i64::try_from(by.as_micros()).expect("a duration of a test");
        self.0.fetch_add(micros, Ordering::SeqCst);
    }

    /// This clock, and true randomness.
    pub fn ambient(&self) -> Ambient {
        Ambient::new(Arc::new(self.clone()), Arc::new(SystemEntropy))
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst))
    }
}
