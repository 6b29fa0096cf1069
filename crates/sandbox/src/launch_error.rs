//! Errors of launching a program, and their exit codes.

/// Exit codes for a program that could not be launched, executed or found, as shells, `env` and `nice` use them.
const LAUNCH_FAILED: u8 = 125;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// The reason why a program was not launched.
#[derive(Debug, thiserror::Error)]
pub(super) enum LaunchError {
    #[error("the launcher is internal to Wardgate; configure a tool of type `command` instead")]
    Usage,
    #[error("the program cannot be executed")]
    Exec(#[source] std::io::Error),
    #[error("the limits of the program cannot be set")]
    Limit(#[from] nix::Error),
    #[error("the sandbox of the program cannot be set up")]
    Confine(#[from] landlock::RulesetError),
    #[error("this kernel does not support Landlock, which the tool's sandbox requires")]
    NoLandlock,
    #[error("the open files cannot be listed")]
    Inherited(#[source] std::io::Error),
    #[error("the control pipe to the parent process failed")]
    Leash(#[source] std::io::Error),
}

impl LaunchError {
    pub(super) fn code(&self) -> u8 {
        match self {
            Self::Exec(error) if error.kind() == std::io::ErrorKind::NotFound => NOT_FOUND,
            Self::Exec(_) => NOT_EXECUTABLE,
            _ => LAUNCH_FAILED,
        }
    }
}
