//! A server as a child process: started with a minimal environment, monitored, and reliably terminated.
//!
//! ```text
//!   stop, or its output ends ─▶ close stdin ─ 3 s ─▶ SIGTERM ─ 3 s ─▶ SIGKILL   (the last two to its process group)
//!   it exits                 ─▶ SIGKILL to what is left of the group
//! ```
//!
//! Windows has no signals: there, only the process itself is killed.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use tracing::debug;

use super::channel::Channel;
use super::lines::{EndOfLines, Line, Lines};
use crate::error::UpstreamError;
use crate::events::Events;
use crate::log_quota::LogQuota;
use crate::settings::Program;

/// Maximum time of a server for each step of its termination.
const EXIT_STEP_TIMEOUT: Duration = Duration::from_secs(3);

/// Maximum time to wait for the last output after the exit, or for the exit status after the end of the output.
const LAST_OUTPUT_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum number of bytes that are logged of one line of standard error.
const MAX_LOG_LINE: usize = 1024;

/// Maximum number of lines of standard error that are logged per second.
const LOG_LINES_PER_SECOND: u32 = 20;

/// A running server. Dropping it terminates the process in the background.
#[derive(Debug)]
pub(super) struct ServerProcess {
    pub(super) channel: Arc<Channel>,
    _stop: DropGuard,
}

/// The child and all its descendants that did not leave its process group. Dropping it kills them.
struct ProcessGroup {
    #[cfg(unix)]
    leader: nix::unistd::Pid,
}

#[cfg(unix)]
impl ProcessGroup {
    /// Returns the group that `child` leads, or `None` if it has ended.
    fn from_child(child: &Child) -> Option<Self> {
        let leader = child.id().and_then(|id| i32::try_from(id).ok())?;
        Some(Self {
            leader: nix::unistd::Pid::from_raw(leader),
        })
    }

    fn terminate(&self) {
        self.signal(nix::sys::signal::Signal::SIGTERM);
    }

    fn kill(&self) {
        self.signal(nix::sys::signal::Signal::SIGKILL);
    }

    fn signal(&self, signal: nix::sys::signal::Signal) {
        // The group may have ended already.
        let _ = nix::sys::signal::killpg(self.leader, signal);
    }
}

#[cfg(not(unix))]
impl ProcessGroup {
    fn from_child(_child: &Child) -> Option<Self> {
        Some(Self {})
    }

    fn terminate(&self) {}

    fn kill(&self) {}
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.channel.end(None);
    }
}

impl ServerProcess {
    /// Starts the program. `tasks` monitor it until it has ended.
    pub(super) fn start(
        program: &Program,
        events: &Arc<Events>,
        tasks: &TaskTracker,
    ) -> Result<Self, UpstreamError> {
        let unreachable =
            |error: std::io::Error| UpstreamError::Unreachable(error.kind().to_string());
        let mut child = command(program)?.spawn().map_err(unreachable)?;
        let no_pipe = || UpstreamError::Unreachable("its standard streams are missing".to_owned());
        let group = ProcessGroup::from_child(&child).ok_or_else(no_pipe)?;
        let stdin = child.stdin.take().ok_or_else(no_pipe)?;
        let stdout = child.stdout.take().ok_or_else(no_pipe)?;
        let stderr = child.stderr.take().ok_or_else(no_pipe)?;

        let (channel, to_write) = Channel::new(Arc::clone(events));
        let channel = Arc::new(channel);
        let stop = CancellationToken::new();
        tasks.spawn(
            stop.clone()
                .run_until_cancelled_owned(write(stdin, to_write)),
        );
        tasks.spawn(log(stderr, events.upstream.clone()));
        tasks.spawn(watch(WatchedOutput {
            child,
            group,
            output: BufReader::with_capacity(64 * 1024, stdout),
            channel: Arc::clone(&channel),
            stop: stop.clone(),
        }));
        Ok(Self {
            channel,
            _stop: stop.drop_guard(),
        })
    }
}

fn command(program: &Program) -> Result<tokio::process::Command, UpstreamError> {
    let [name, arguments @ ..] = program.argv.as_slice() else {
        return Err(UpstreamError::Unreachable(
            "its command is empty".to_owned(),
        ));
    };
    let mut command = tokio::process::Command::new(name);
    command
        .args(arguments)
        .current_dir(&program.directory)
        .env_clear()
        .envs(
            ["PATH", "HOME"]
                .into_iter()
                .filter_map(|name| std::env::var_os(name).map(|value| (name, value))),
        )
        .envs(&program.env)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    #[cfg(unix)]
    command.process_group(0);
    Ok(command)
}

/// Writes all lines, and closes the standard input when the queue is closed.
async fn write(mut stdin: ChildStdin, mut lines: mpsc::Receiver<Vec<u8>>) {
    while let Some(line) = lines.recv().await {
        if stdin.write_all(&line).await.is_err() {
            return;
        }
    }
}

struct WatchedOutput<R> {
    child: Child,
    group: ProcessGroup,
    output: R,
    channel: Arc<Channel>,
    stop: CancellationToken,
}

/// Reads the output of the server, and terminates the process at the end.
async fn watch<R: tokio::io::AsyncBufRead + Unpin>(watched: WatchedOutput<R>) {
    let WatchedOutput {
        mut child,
        group,
        output,
        channel,
        stop,
    } = watched;
    let mut reading = std::pin::pin!(channel.read_output(output));
    let cause = tokio::select! {
        status = child.wait() => {
            group.kill();
            // A response may still be in the pipe.
            let _ = timeout(LAST_OUTPUT_TIMEOUT, &mut reading).await;
            Some(status.map_or_else(|_| "it exited".to_owned(), |status| format!("it exited with {status}")))
        }
        end = &mut reading => match end {
            EndOfLines::Endless => Some("it wrote an unterminated line".to_owned()),
            EndOfLines::Closed => match timeout(LAST_OUTPUT_TIMEOUT, child.wait()).await {
                Ok(Ok(status)) => Some(format!("it exited with {status}")),
                _ => Some("it closed its output".to_owned()),
            },
        },
        () = stop.cancelled() => None,
    };
    channel.end(cause.as_deref());
    stop.cancel();
    end(&mut child, &group).await;
}

/// Terminates the child, first with SIGTERM. Its standard input is closed already.
async fn end(child: &mut Child, group: &ProcessGroup) {
    for end in [ProcessGroup::terminate, ProcessGroup::kill] {
        if timeout(EXIT_STEP_TIMEOUT, child.wait()).await.is_ok() {
            return;
        }
        end(group);
    }
    let _ = child.kill().await;
}

/// Logs the lines that the server writes to standard error. They may contain arguments and results, so they have a separate log
/// target that only an explicit filter enables.
async fn log(stderr: impl AsyncRead + Unpin, upstream: String) {
    let mut lines = Lines::new(BufReader::new(stderr), MAX_LOG_LINE, usize::MAX);
    let mut quota = LogQuota::new(LOG_LINES_PER_SECOND);
    while let Ok(Line::Whole(line) | Line::Cut(line)) = lines.next().await {
        let Some(left_out) = quota.admit_line() else {
            continue;
        };
        let line = String::from_utf8_lossy(line);
        debug!(target: "wardgate::standard_error", upstream, left_out, ?line, "an upstream server wrote to standard error");
    }
}
