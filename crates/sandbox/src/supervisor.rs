//! The supervisor, which is the parent of the program and ends when none of the program's processes is left.
//!
//! The supervisor adopts orphaned processes of the program, including those in another session, and kills them.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::{fs, thread};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{SigSet, Signal, kill, killpg};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;

use super::launch_error::LaunchError;
use super::launch_order::{LAUNCH, LaunchOrder, LaunchStep, THIS_BINARY};

/// Runs the program until it ends or the leash is closed, and then kills the remaining processes. Returns the program's
/// exit code.
pub(super) fn supervise(order: &LaunchOrder, words: &[OsString]) -> Result<u8, LaunchError> {
    set_child_subreaper(true)?;
    let children = block_child_signals()?;
    let mut leash = io::stdin().lock();
    let mut text = vec![0; order.stdin.unwrap_or(0)];
    leash.read_exact(&mut text).map_err(LaunchError::Leash)?;
    let program = spawn(words, order.stdin.map(|_| text))?;

    let code = watch(program, &mut leash, &children);
    let _empty = killpg(program, Signal::SIGKILL);
    end_children();
    Ok(code?)
}

/// Waits until the program ends, and kills it when the leash is closed.
fn watch(program: Pid, leash: &mut (impl Read + AsFd), children: &SignalFd) -> nix::Result<u8> {
    loop {
        let ended = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        let code = match waitid(Id::All, ended)? {
            WaitStatus::StillAlive => {
                if wait(leash, children)? && is_cut(leash) {
                    // The program has not been waited for, so its PID still belongs to it.
                    let _gone = killpg(program, Signal::SIGKILL);
                    let _gone = kill(program, Signal::SIGKILL);
                }
                continue;
            }
            WaitStatus::Exited(pid, code) if pid == program => code,
            WaitStatus::Signaled(pid, signal, _) if pid == program => 128 + signal as i32,
            orphan => {
                waitpid(orphan.pid(), None)?;
                continue;
            }
        };
        return Ok(u8::try_from(code).unwrap_or(u8::MAX));
    }
}

/// Blocks `SIGCHLD`. The returned descriptor becomes readable when a child has ended.
fn block_child_signals() -> nix::Result<SignalFd> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGCHLD);
    signals.thread_block()?;
    SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
}

fn spawn(words: &[OsString], text: Option<Vec<u8>>) -> Result<Pid, LaunchError> {
    let stdin = match text {
        Some(_) => Stdio::piped(),
        None => Stdio::null(),
    };
    let mut program = Command::new(THIS_BINARY)
        .args([LAUNCH, LaunchStep::Become.as_str()])
        .args(words)
        .stdin(stdin)
        .process_group(0)
        .spawn()
        .map_err(LaunchError::Exec)?;
    if let (Some(mut stdin), Some(text)) = (program.stdin.take(), text) {
        // The thread is not joined, because the program does not have to read its input.
        thread::spawn(move || stdin.write_all(&text));
    }
    Ok(Pid::from_raw(program.id().cast_signed()))
}

/// Waits for the leash or a child, and returns whether the leash became ready.
fn wait(leash: &impl AsFd, children: &SignalFd) -> nix::Result<bool> {
    let mut watched = [
        PollFd::new(leash.as_fd(), PollFlags::POLLIN),
        PollFd::new(children.as_fd(), PollFlags::POLLIN),
    ];
    poll(&mut watched, PollTimeout::NONE)?;
    let is_leash = watched[0].any().unwrap_or(true);
    while children.read_signal()?.is_some() {}
    Ok(is_leash)
}

/// Returns whether the leash is closed, so that nothing more is written to it.
fn is_cut(leash: &mut impl Read) -> bool {
    !matches!(leash.read(&mut [0; 64]), Ok(1..))
}

/// Kills the remaining processes generation by generation, because the children of a killed child become children of
/// this process. Only direct children are killed: their PIDs cannot be reused before they are waited for.
fn end_children() {
    while let Ok(children) = children() {
        for child in &children {
            let _gone = kill(*child, Signal::SIGKILL);
        }
        let how = match children.as_slice() {
            [] => Some(WaitPidFlag::WNOHANG),
            _ => None,
        };
        if waitpid(None, how) == Err(Errno::ECHILD) {
            return;
        }
    }
}

fn children() -> io::Result<Vec<Pid>> {
    let mut children = Vec::new();
    for thread in fs::read_dir("/proc/self/task")? {
        let listed = fs::read_to_string(thread?.path().join("children"))?;
        children.extend(
            listed
                .split_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .map(Pid::from_raw),
        );
    }
    Ok(children)
}
