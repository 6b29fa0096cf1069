//! What a program can reach, held by the kernel's Landlock.
//!
//! Every program is kept from sending signals to, tracing, or reading the memory and environment of
//! processes outside of its own. One with a `sandbox` also reaches only the files and the network it names.

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

/// The newest rights asked for; an older kernel holds the program to those it knows.
const NEWEST: ABI = ABI::V6;
/// What any program needs to start: interpreters and libraries, readable and executable.
const SYSTEM: [&str; 7] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/etc/ld.so.cache",
];
/// Devices that hold nothing.
const DEVICES: [&str; 4] = ["/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"];

/// The files and the network a program can reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sandbox {
    /// Files and directories to read and execute from.
    pub read: Vec<PathBuf>,
    /// Files and directories to read and write, but not to execute from.
    pub write: Vec<PathBuf>,
    /// Whether it may open TCP connections and ports.
    pub network: bool,
    /// Whether the program is refused where the kernel has no Landlock.
    pub required: bool,
}

/// Confines this thread, and with it what it executes.
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
        // A right that no program of a tool has a use for: Landlock confines nothing unless some right is given up.
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

/// What this kernel's Landlock can hold a program to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelSupport {
    /// To the files it may use.
    pub files: bool,
    /// To no TCP.
    pub network: bool,
    /// To signals for its own processes.
    pub signals: bool,
}

impl KernelSupport {
    /// Asks the kernel.
    pub fn probe() -> Self {
        let strict = || Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
        let can = |asked: Result<Ruleset, RulesetError>| asked.and_then(Ruleset::create).is_ok();
        Self {
            files: can(strict().handle_access(AccessFs::from_all(ABI::V1))),
            network: can(strict().handle_access(AccessNet::from_all(ABI::V4))),
            signals: can(strict().scope(Scope::Signal)),
        }
    }

    /// Says once in the life of the process what this kernel enforces.
    pub fn log() {
        static SAID: Once = Once::new();
        SAID.call_once(|| info!("this kernel holds programs of tools to {}", Self::probe()));
    }
}

impl fmt::Display for KernelSupport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.files {
            return f.write_str("limits and no new privileges; it has no Landlock for sandboxes");
        }
        f.write_str("limits, no new privileges and, by Landlock, their sandboxes")?;
        let yes = |held| if held { "yes" } else { "no" };
        write!(
            f,
            " (TCP: {}, signals: {})",
            yes(self.network),
            yes(self.signals)
        )
    }
}
