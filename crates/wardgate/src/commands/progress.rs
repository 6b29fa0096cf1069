//! How far long work has come.

use std::time::{Duration, Instant};

use crate::cli::LogVerbosity;

/// Tells a person how far long work has come, once a second.
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

    /// `of` is how many records there are, where that is known.
    pub(crate) fn tell(&mut self, done: u64, of: Option<u64>) {
        if !self.is_quiet && self.told.elapsed() >= Duration::from_secs(1) {
            self.told = Instant::now();
            let of = of.map(|of| format!(" of {of}")).unwrap_or_default();
            eprintln!("{done}{of} records {}", self.verb);
        }
    }
}
