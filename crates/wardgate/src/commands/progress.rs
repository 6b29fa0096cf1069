//! Progress messages of long-running commands.

use std::time::{Duration, Instant};

use wardgate_store::RekeyProgress;

use crate::Failure;
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
        Self::for_things("records", verb, verbosity)
    }

    /// Creates a reporter of `things`, which are `verb`.
    pub(crate) fn for_things(
        things: &'static str,
        verb: &'static str,
        verbosity: LogVerbosity,
    ) -> Self {
        Self {
            things,
            verb,
            told: Instant::now(),
            is_quiet: verbosity.is_quiet(),
        }
    }

    /// Prints the number of things that are done. `of` is their total number, or `None` if it is unknown.
    pub(crate) fn print_count(&mut self, done: u64, of: Option<u64>) {
        if !self.is_quiet && self.told.elapsed() >= Duration::from_secs(1) {
            self.told = Instant::now();
            eprintln!("{}", self.line(done, of));
        }
    }

    /// Prints the progress of the move of a store to another master key. Without a move in progress, the total is unknown.
    pub(crate) fn print_rekey(&mut self, so_far: &RekeyProgress) {
        self.print_count(so_far.done, (so_far.total > 0).then_some(so_far.total));
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

/// Prints that everything was under the current key already, except for `unreadable` things.
pub(crate) fn print_nothing_to_move(key: &str, unreadable: u64, thing: &str) {
    let which = if unreadable == 0 {
        "every"
    } else {
        "every other"
    };
    println!("{which} {thing} is encrypted under the current {key} already");
}

/// The end of the error about things that could not be moved to the current key.
const NOT_DECRYPTED: &str =
    "which cannot be decrypted with the current key; the move of all others is complete";

/// Fails with the numbers of things that could not be moved to the current key, if there are any. The words for one and for several
/// things come with each number.
pub(crate) fn check_unreadable(unreadable: &[(u64, [&str; 2])]) -> Result<(), Failure> {
    let found = unreadable.iter().filter(|(count, _)| *count > 0);
    let found = found.map(|(count, [one, many])| {
        let things = if *count == 1 { one } else { many };
        format!("{count} {things}")
    });
    let found: Vec<_> = found.collect();
    if found.is_empty() {
        return Ok(());
    }
    let found = found.join(" and ");
    Err(format!("not moved: {found}, {NOT_DECRYPTED}").into())
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

    #[test]
    fn what_could_not_be_moved_is_an_error_that_counts_each_kind() {
        let check = |conversations, messages| {
            let unreadable = [
                (conversations, ["conversation", "conversations"]),
                (messages, ["message", "messages"]),
            ];
            check_unreadable(&unreadable).map_err(|error| error.to_string())
        };
        let reason =
            "which cannot be decrypted with the current key; the move of all others is complete";
        assert_eq!(check(0, 0), Ok(()));
        assert_eq!(check(0, 2), Err(format!("not moved: 2 messages, {reason}")));
        assert_eq!(
            check(1, 2),
            Err(format!(
                "not moved: 1 conversation and 2 messages, {reason}"
            ))
        );
    }
}
