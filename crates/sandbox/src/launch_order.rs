//! What is launched, as the command line of the launcher says it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::landlock_rules::Sandbox;

/// The first word of the launcher's command line: a program that runs others must pass the words behind
/// it to [`launch`](super::launch()) before it does anything else.
pub const LAUNCH: &str = "launch";
/// The program that is running, as its own launcher.
pub const THIS_BINARY: &str = "/proc/self/exe";

/// What each process of the program may use; `None` is what Wardgate itself may use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceLimits {
    /// Seconds of CPU time.
    pub cpu: Option<u64>,
    /// Bytes of address space.
    pub memory: Option<u64>,
    /// Open files.
    pub files: Option<u64>,
    /// Processes and threads of the user, the program's among them. The kernel excepts root.
    pub processes: Option<u64>,
    /// Bytes of one written file.
    pub file_size: Option<u64>,
}

/// What to launch, as one word of the command line.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LaunchOrder {
    /// Absolute.
    pub(super) program: PathBuf,
    /// Bytes for its standard input, which come first on the leash; none: its standard input is empty.
    pub(super) stdin: Option<usize>,
    pub(super) limits: ResourceLimits,
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
