//! Progress messages of long-running commands.

use std::time::{Duration, Instant};

use wardgate_store::RekeyProgress;

use crate::cli::LogVerbosity;

/// A reporter that prints the progress at most once a second.
pub(crate) struct Progress {
    things: &'static str,
    verb: &'static str,
    told: Instant,
    is_quiet: bool,
}

impl Progress {
    /// Creates a reporter of records, which are `verb`, for example "verified".
    pub(crate) fn new(verb: &'static str, verbosity: LogVerbosity) -> Self {
        Self::of("records", verb, verbosity)
    }

    /// Creates a reporter of `things`, which are `verb`.
    pub(crate) fn of(things: &'static str, verb: &'static str, verbosity: LogVerbosity) -> Self {
        Self {
            things,
            verb,
            told: Instant::now(),
            is_quiet: verbosity.is_quiet(),
        }
    }

    /// Prints the number of things that are done. `of` is their total number, or `None` if it is unknown.
    pub(crate) fn tell(&mut self, done: u64, of: Option<u64>) {
        if !self.is_quiet && self.told.elapsed() >= Duration::from_secs(1) {
            self.told = Instant::now();
            eprintln!("{}", self.line(done, of));
        }
    }

    /// Prints the progress of the move of a store to another master key. Without a move in progress, the total is unknown.
    pub(crate) fn tell_rekey(&mut self, so_far: &RekeyProgress) {
        self.tell(so_far.done, (so_far.total > 0).then_some(so_far.total));
    }

    fn line(&self, done: u64, of: Option<u64>) -> String {
        let of = of.map(|of| format!(" of {of}")).unwrap_or_default();
        format!("{done}{of} {} {}", self.things, self.verb)
    }
}

/// Prints how many things a store had moved to the current key, for example "master key". `[one, many]` are the words for the
/// things.
pub(crate) fn print_moved(key: &str, done: u64, [one, many]: [&str; 2]) {
    let things = if done == 1 { one } else { many };
    println!(
        "moved to the current {key}: {done} {things}. The former key is now required only for older backups."
    );
}

/// Prints how many things could not be moved to the current key, if there are any.
pub(crate) fn print_unreadable(unreadable: u64, things: &str) {
    if unreadable > 0 {
        eprintln!(
            "{unreadable} {things} were not moved: no configured key decrypts them, and none did before"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_told_with_the_total_if_it_is_known() {
        let progress = Progress {
            things: "records",
            verb: "verified",
            told: Instant::now(),
            is_quiet: false,
        };
        assert_eq!(progress.line(3, Some(10)), "3 of 10 records verified");
        assert_eq!(progress.line(3, None), "3 records verified");
    }
}
