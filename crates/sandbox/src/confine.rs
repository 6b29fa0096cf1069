//! The last step of a launch: the process permanently restricts itself and then executes the program.

use std::ffi::{OsStr, OsString};
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::{fs, io};

use nix::sys::prctl::{set_no_new_privs, set_pdeathsig};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::close;

use super::landlock_rules;
use super::launch_error::LaunchError;
use super::launch_order::LaunchOrder;

/// Restricts this process and executes the program. Returns only if the program cannot be run.
pub(super) fn become_program(
    order: &LaunchOrder,
    name: &OsStr,
    arguments: &[OsString],
) -> LaunchError {
    // The command is built first, because little memory may be available once the limits apply.
    let mut program = Command::new(&order.program);
    program.arg0(name).args(arguments);
    if let Err(error) = confine(order) {
        return error;
    }
    LaunchError::Exec(program.exec())
}

fn confine(order: &LaunchOrder) -> Result<(), LaunchError> {
    // The program would inherit the supervisor's signal mask.
    SigSet::empty().thread_set_mask()?;
    // The supervisor outlives the program unless it is killed; in that case the kernel kills the program too.
    set_pdeathsig(Signal::SIGKILL)?;
    set_no_new_privs()?;
    close_inherited().map_err(LaunchError::Inherited)?;
    landlock_rules::enter(&order.program, order.sandbox.as_ref())?;
    let limits = &order.limits;
    for (resource, limit) in [
        (Resource::RLIMIT_CORE, Some(0)),
        (Resource::RLIMIT_CPU, limits.cpu),
        (Resource::RLIMIT_NOFILE, limits.files),
        (Resource::RLIMIT_NPROC, limits.processes),
        (Resource::RLIMIT_FSIZE, limits.file_size),
        (Resource::RLIMIT_AS, limits.memory),
    ] {
        let Some(limit) = limit else { continue };
        let (_, highest) = getrlimit(resource)?;
        let limit = limit.min(highest);
        setrlimit(resource, limit, limit)?;
    }
    Ok(())
}

/// Closes all inherited file descriptors except the standard ones, because the program must not use them.
fn close_inherited() -> io::Result<()> {
    let open: Vec<RawFd> = fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    for descriptor in open.into_iter().filter(|&descriptor| descriptor > 2) {
        // The descriptor through which the list was read is already closed.
        let _gone = close(descriptor);
    }
    Ok(())
}
