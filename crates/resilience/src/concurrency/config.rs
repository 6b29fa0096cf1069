//! The settings of the concurrency limit.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The settings of the number of concurrent calls and of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Minimum limit. The limit only falls below it if all processors are busy.
    pub min: usize,
    /// Maximum limit.
    pub max: usize,
    /// Initial limit, to which the limit returns under low load.
    pub initial: usize,
    /// Factor by which calls may take longer than in calm before the limit falls.
    pub tolerance: f64,
    /// Maximum number of calls in the queue.
    pub queue: usize,
    /// Maximum time for which a call waits in the queue, in milliseconds.
    pub wait_ms: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            min: 16,
            max: 2_048,
            initial: 64,
            tolerance: 2.0,
            queue: 512,
            wait_ms: 500,
        }
    }
}

/// A setting that is out of range or contradicts another one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("concurrency.{field} {problem}")]
pub struct Invalid {
    field: &'static str,
    problem: &'static str,
}

impl Config {
    /// Checks the constraints that the types cannot express.
    pub fn validate(&self) -> Result<(), Invalid> {
        let wrong = |field, problem| Err(Invalid { field, problem });
        if self.min == 0 {
            return wrong("min", "must be at least 1");
        }
        if !(self.min..=self.max).contains(&self.initial) {
            return wrong("initial", "must be between `min` and `max`");
        }
        if !(1.1..=10.0).contains(&self.tolerance) {
            return wrong("tolerance", "must be between 1.1 and 10");
        }
        if self.wait_ms > 10_000 {
            return wrong("wait_ms", "must be at most 10000");
        }
        Ok(())
    }

    pub(crate) fn wait(&self) -> Duration {
        Duration::from_millis(self.wait_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid_and_what_contradicts_itself_is_named() {
        Config::default().validate().unwrap();
        let with = |change: fn(&mut Config)| {
            let mut config = Config::default();
            change(&mut config);
            config.validate().unwrap_err().to_string()
        };
        assert!(with(|config| config.min = 0).contains("concurrency.min"));
        assert!(with(|config| config.max = 10).contains("concurrency.initial"));
        assert!(with(|config| config.tolerance = f64::NAN).contains("concurrency.tolerance"));
        assert!(with(|config| config.wait_ms = 60_000).contains("concurrency.wait_ms"));
    }
}
