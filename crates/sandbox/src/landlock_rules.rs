//! Access restrictions for programs, which the kernel enforces with Landlock.
//!
//! No program can send signals to processes other than its own, trace them, or read their memory or environment. A
//! program with a `sandbox` can also access only the files and the network that the sandbox names.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Once;

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope, path_beneath_rules,
};
use serde::{Deserialize, Serialize};
use tracing::info;

use super::launch_error::LaunchError;

/// Landlock version whose access rights are requested. An older kernel enforces the rights that it knows.
const NEWEST: ABI = ABI::V6;
/// Paths that any program needs to start, such as interpreters and libraries. They are readable and executable.
const SYSTEM: [&str; 7] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/etc/ld.so.cache",
];
/// Devices that contain no data.
const DEVICES: [&str; 4] = ["/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"];

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

/// Restricts this thread and everything that it executes.
pub(super) fn enter(program: &Path, sandbox: Option<&Sandbox>) -> Result<(), LaunchError> {
    let status = restrict(program, sandbox)?;
    let required = sandbox.is_some_and(|sandbox| sandbox.required);
    if required && status == RulesetStatus::NotEnforced {
        return Err(LaunchError::NoLandlock);
    }
    Ok(())
}

fn restrict(program: &Path, sandbox: Option<&Sandbox>) -> Result<RulesetStatus, RulesetError> {
    let ruleset = Ruleset::default().scope(Scope::Signal)?;
    let Some(sandbox) = sandbox else {
        // Landlock takes effect only if some access right is restricted. No program of a tool needs the right to create
        // block devices.
        let ruleset = ruleset.handle_access(AccessFs::MakeBlock)?;
        return Ok(ruleset.create()?.restrict_self()?.ruleset);
    };
    let mut ruleset = ruleset.handle_access(AccessFs::from_all(NEWEST))?;
    if !sandbox.network {
        ruleset = ruleset
            .handle_access(AccessNet::from_all(NEWEST))?
            .scope(Scope::AbstractUnixSocket)?;
    }
    let read = AccessFs::from_read(NEWEST);
    let write = AccessFs::from_all(NEWEST) & !AccessFs::Execute;
    let status = ruleset
        .create()?
        .add_rules(path_beneath_rules(SYSTEM, read))?
        .add_rules(path_beneath_rules([program], read))?
        .add_rules(path_beneath_rules(&sandbox.read, read))?
        .add_rules(path_beneath_rules(&sandbox.write, write))?
        .add_rules(path_beneath_rules(
            DEVICES,
            AccessFs::ReadFile | AccessFs::WriteFile,
        ))?
        .restrict_self()?;
    Ok(status.ruleset)
}

/// The restrictions that this kernel's Landlock can enforce on a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelSupport {
    /// Whether access to files can be restricted.
    pub files: bool,
    /// Whether TCP can be blocked.
    pub network: bool,
    /// Whether signals can be restricted to the program's own processes.
    pub signals: bool,
}

impl KernelSupport {
    /// Queries the kernel.
    pub fn probe() -> Self {
        let strict = || Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
        let can = |asked: Result<Ruleset, RulesetError>| asked.and_then(Ruleset::create).is_ok();
        Self {
            files: can(strict().handle_access(AccessFs::from_all(ABI::V1))),
            network: can(strict().handle_access(AccessNet::from_all(ABI::V4))),
            signals: can(strict().scope(Scope::Signal)),
        }
    }

    /// Logs what this kernel enforces, once per process.
    pub fn log() {
        static SAID: Once = Once::new();
        SAID.call_once(|| {
            info!(
                "the restrictions for programs of tools on this kernel are {}",
                Self::probe()
            );
        });
    }
}

impl fmt::Display for KernelSupport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.files {
            return f
                .write_str("limits and no new privileges; Landlock sandboxes are not supported");
        }
        f.write_str("limits, no new privileges and Landlock sandboxes")?;
        let yes = |held| if held { "yes" } else { "no" };
        write!(
            f,
            " (TCP: {}, signals: {})",
            yes(self.network),
            yes(self.signals)
        )
    }
}
