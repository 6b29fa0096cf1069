//! Progress messages of long-running commands.

use std::time::{Duration, Instant};

use crate::cli::LogVerbosity;

/// A reporter that prints the progress at most once a second.
pub(crate) struct Progress {
    verb: &'static str,
    told: Instant,
    is_quiet: bool,
}

impl Progress {
    pub(crate) fn new(verb: &'static str, verbosity: LogVerbosity) -> Self {
        Self {
            verb,
            told: Instant::now(),
            is_quiet: verbosity.is_quiet(),
        }
    }

    /// Prints the number of records that are done. `of` is the total number of records, or `None` if it is unknown.
    pub(crate) fn tell(&mut self, done: u64, of: Option<u64>) {
        if !self.is_quiet && self.told.elapsed() >= Duration::from_secs(1) {
            self.told = Instant::now();
            let of = of.map(|of| format!(" of {of}")).unwrap_or_default();
            eprintln!("{done}{of} records {}", self.verb);
        }
    }
}
