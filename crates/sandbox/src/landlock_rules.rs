//! Access restrictions for programs, which the kernel enforces with Landlock.
//!
//! No program can send signals to processes other than its own, trace them, or read their memory or environment. A
//! program with a `sandbox` can also access only the files and the network that the sandbox names.

use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope, path_beneath_rules,
};

use super::launch_error::LaunchError;
use super::launch_order::Sandbox;

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

/// Returns whether the kernel can restrict access to files.
pub(super) fn can_restrict_files() -> bool {
    is_enforced(|ruleset| ruleset.handle_access(AccessFs::from_all(ABI::V1)))
}

/// Returns whether the kernel can block TCP.
pub(super) fn can_restrict_network() -> bool {
    is_enforced(|ruleset| ruleset.handle_access(AccessNet::from_all(ABI::V4)))
}

/// Returns whether the kernel can restrict signals to the program's own processes.
pub(super) fn can_restrict_signals() -> bool {
    is_enforced(|ruleset| ruleset.scope(Scope::Signal))
}

fn is_enforced(restrict: impl FnOnce(Ruleset) -> Result<Ruleset, RulesetError>) -> bool {
    let strict = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    restrict(strict).and_then(Ruleset::create).is_ok()
}
