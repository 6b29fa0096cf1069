//! Errors of launching a program, and their exit codes.

/// Exit codes for a program that could not be launched, executed or found, as shells, `env` and `nice` use them.
const LAUNCH_FAILED: u8 = 125;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// The reason why a program was not launched.
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
    pub(super) fn code(&self) -> u8 {
        match self {
            Self::Exec(error) if error.kind() == std::io::ErrorKind::NotFound => NOT_FOUND,
            Self::Exec(_) => NOT_EXECUTABLE,
            _ => LAUNCH_FAILED,
        }
    }
}
