//! The launcher: what this binary is when it is started again for a program.

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use super::launch_error::LaunchError;
use super::launch_order::LaunchOrder;
use super::{confine, supervisor};

/// Runs one step of launching a program; `words` are those behind `launch` on the command line. Only Wardgate
/// itself writes them. The exit code is the program's, 128 + n when signal n ended it, or 125 to 127 when it
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
    let order = read(order_word).ok_or(LaunchError::Usage)?;
    match step.to_str() {
        Some("keep") => supervisor::supervise(&order, &words[1..]),
        Some("become") => Err(confine::become_program(&order, name, arguments)),
        _ => Err(LaunchError::Usage),
    }
}

fn read(order: &OsStr) -> Option<LaunchOrder> {
    serde_json::from_str(order.to_str()?).ok()
}
