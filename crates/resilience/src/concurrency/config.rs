//! What an operator may set.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How many calls are worked on at once, and how many wait.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The limit never falls below this, unless all processors are busy.
    pub min: usize,
    /// Nor rises above this.
    pub max: usize,
    /// Where it begins, and where it returns to when there is little to do.
    pub initial: usize,
    /// Calls take so many times longer than in calm before the limit falls.
    pub tolerance: f64,
    /// Calls that may wait for their turn.
    pub queue: usize,
    /// Milliseconds a call may wait for it.
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

/// Settings that contradict each other.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("concurrency.{field} {problem}")]
pub struct Invalid {
    field: &'static str,
    problem: &'static str,
}

impl Config {
    /// Checks what types alone cannot.
    pub fn validate(&self) -> Result<(), Invalid> {
        let wrong = |field, problem| Err(Invalid { field, problem });
        if self.min == 0 {
            return wrong("min", "must be at least 1");
        }
        if !(self.min..=self.max).contains(&self.initial) {
            return wrong("initial", "must lie between `min` and `max`");
        }
        if !(1.1..=10.0).contains(&self.tolerance) {
            return wrong("tolerance", "must lie between 1.1 and 10");
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
