//! The program to launch, as it is encoded on the command line of the launcher.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// First word of the launcher's command line. A program that runs other programs must pass the words after it to
/// [`launch`](super::launch()) before it does anything else.
pub const LAUNCH: &str = "launch";
/// Path of the running program, which is its own launcher.
pub const THIS_BINARY: &str = "/proc/self/exe";

/// The resource limits of each process of a program. `None` means the limit of Wardgate itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceLimits {
    /// The maximum CPU time, in seconds.
    pub cpu: Option<u64>,
    /// The maximum size of the address space, in bytes.
    pub memory: Option<u64>,
    /// The maximum number of open files.
    pub files: Option<u64>,
    /// The maximum number of processes and threads of the user, including those of the program. The kernel does not
    /// apply this limit to root.
    pub processes: Option<u64>,
    /// The maximum size of a written file, in bytes.
    pub file_size: Option<u64>,
}

/// The files and the network that a program can access.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sandbox {
    /// Files and directories that the program can read and execute from.
    pub read: Vec<PathBuf>,
    /// Files and directories that the program can read and write, but not execute from.
    pub write: Vec<PathBuf>,
    /// Whether the program can open TCP connections and ports.
    pub network: bool,
    /// Whether the program is refused if the kernel has no Landlock.
    pub required: bool,
}

/// The program to launch and its restrictions, as one word of the command line.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LaunchOrder {
    /// The absolute path of the program.
    pub(super) program: PathBuf,
    /// The number of bytes for the program's standard input, which are sent first on the leash. `None` means that
    /// standard input is empty.
    pub(super) stdin: Option<usize>,
    pub(super) limits: ResourceLimits,
    pub(super) sandbox: Option<Sandbox>,
}

/// The steps of a launch, each of which runs in its own process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LaunchStep {
    /// Supervises the program as its parent until none of its processes is left.
    Keep,
    /// Restricts itself and then executes the program.
    #[cfg(target_os = "linux")]
    Become,
}

impl LaunchStep {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            #[cfg(target_os = "linux")]
            Self::Become => "become",
        }
    }
}
