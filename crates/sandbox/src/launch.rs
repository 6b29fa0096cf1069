//! The launcher, which is the role of this binary when it is started again for a program.

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use super::launch_error::LaunchError;
use super::launch_order::LaunchOrder;
use super::{confine, supervisor};

/// Runs one step of launching a program. `words` are the command-line words after `launch`, which only Wardgate itself
/// writes. The exit code is that of the program, 128 + n if signal n ended the program, or 125 to 127 if the program
/// could not be run.
pub fn launch(words: impl Iterator<Item = OsString>) -> ExitCode {
    let words: Vec<_> = words.collect();
    match run(&words) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
            eprintln!("wardgate launch: {error}{}", cause.unwrap_or_default());
            ExitCode::from(error.code())
        }
    }
}

fn run(words: &[OsString]) -> Result<u8, LaunchError> {
    let [step, order_word, name, arguments @ ..] = words else {
        return Err(LaunchError::Usage);
    };
    let order = parse_order(order_word).ok_or(LaunchError::Usage)?;
    match step.to_str() {
        Some("keep") => supervisor::supervise(&order, &words[1..]),
        Some("become") => Err(confine::become_program(&order, name, arguments)),
        _ => Err(LaunchError::Usage),
    }
}

fn parse_order(order: &OsStr) -> Option<LaunchOrder> {
    serde_json::from_str(order.to_str()?).ok()
}
