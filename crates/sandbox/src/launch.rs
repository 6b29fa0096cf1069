//! The launcher: what this binary is when it is started again for a program.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use super::confine::{self, Limits};
use super::landlock_rules::Sandbox;
use super::supervisor;

/// The first word of the launcher's command line: a program that runs others must pass the words behind
/// it to [`launch()`] before it does anything else.
pub const LAUNCH: &str = "launch";
/// The program that is running, as its own launcher.
pub const THIS_BINARY: &str = "/proc/self/exe";

/// The program ran into a limit of the launcher itself, or could not be run: what shells, `env` and `nice` use.
const LAUNCH_FAILED: u8 = 125;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// What to launch, as one word of the command line.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Order {
    /// Absolute.
    pub(super) program: PathBuf,
    /// Bytes for its standard input, which come first on the leash; none: its standard input is empty.
    pub(super) stdin: Option<usize>,
    pub(super) limits: Limits,
    pub(super) sandbox: Option<Sandbox>,
}

/// The two processes of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LaunchStep {
    /// Stays the program's parent until nothing of it is left.
    Keep,
    /// Limits itself and becomes the program.
    Become,
}

impl LaunchStep {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Become => "become",
        }
    }
}

/// Why a program was not launched.
#[derive(Debug, thiserror::Error)]
pub(super) enum LaunchError {
    #[error("the launcher is for Wardgate itself; configure a tool of type `command` instead")]
    Usage,
    #[error("the program cannot be run")]
    Exec(#[source] std::io::Error),
    #[error("the program cannot be limited")]
    Limit(#[from] nix::Error),
    #[error("the program cannot be confined")]
    Confine(#[from] landlock::RulesetError),
    #[error("this kernel has no Landlock, and the tool's sandbox requires it")]
    NoLandlock,
    #[error("the open files cannot be listed")]
    Inherited(#[source] std::io::Error),
    #[error("the leash broke")]
    Leash(#[source] std::io::Error),
}

impl LaunchError {
    fn code(&self) -> u8 {
        match self {
            Self::Exec(error) if error.kind() == std::io::ErrorKind::NotFound => NOT_FOUND,
            Self::Exec(_) => NOT_EXECUTABLE,
            _ => LAUNCH_FAILED,
        }
    }
}

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

fn read(order: &OsStr) -> Option<Order> {
    serde_json::from_str(order.to_str()?).ok()
}
