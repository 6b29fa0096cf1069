//! A program and one run of it.

use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::Stdio;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tracing::debug;

use super::confine::Limits;
use super::launch::{LAUNCH, Order, Step};
use super::remarks::Remarks;
use super::sandbox::Sandbox;

/// Bytes read at once.
const CHUNK: usize = 16 * 1_024;

/// A program as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    /// The first word of its command line: its name as configured.
    pub(crate) name: String,
    /// Absolute.
    pub(crate) path: PathBuf,
    /// Where it runs.
    pub(crate) directory: PathBuf,
    pub(crate) limits: Limits,
    /// Bytes of standard output one run may write.
    pub(crate) max_output: usize,
    pub(crate) sandbox: Option<Sandbox>,
}

/// What one run is given.
#[derive(Default)]
pub(crate) struct Given {
    /// The words behind the program's name, each exactly one argument.
    pub(crate) words: Vec<String>,
    /// The whole environment.
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) stdin: Option<String>,
}

/// Where a run's output goes, as it comes.
pub(crate) trait Listener: Send {
    /// Bytes of standard output; a break ends the program.
    fn output(&mut self, bytes: &[u8]) -> ControlFlow<()>;
    /// A line of standard error.
    fn remark(&mut self, line: &str);
}

/// Why a run has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    #[error("the arguments are too long for a command line")]
    ArgumentsTooLong,
    #[error("the program cannot be started")]
    NotStarted(#[source] io::Error),
    #[error("the connection to the program broke")]
    Broken(#[source] io::Error),
    #[error("the program wrote more than it may")]
    TooLarge,
    /// 128 + n where signal n ended it.
    #[error("the program ended with code {0}")]
    Failed(i32),
}

impl Program {
    /// Runs it to its end. Dropping the future ends the program and everything it started.
    pub(crate) async fn run(
        &self,
        given: Given,
        listener: &mut dyn Listener,
    ) -> Result<(), RunError> {
        let mut keeper = self.spawn(&given)?;
        let (Some(mut leash), Some(mut stdout), Some(mut stderr)) = (
            keeper.stdin.take(),
            keeper.stdout.take(),
            keeper.stderr.take(),
        ) else {
            return Err(RunError::Broken(io::ErrorKind::BrokenPipe.into()));
        };
        let text = given.stdin.unwrap_or_default();
        // A keeper that could not start says so by its exit code.
        let _told = leash.write_all(text.as_bytes()).await;
        drop(text);

        let mut remarks = Remarks::default();
        let mut left = self.max_output;
        let (mut output, mut error) = (vec![0; CHUNK], vec![0; CHUNK]);
        let (mut is_output_open, mut is_error_open) = (true, true);
        // Both end when the keeper does, which is when nothing of the program is left.
        while is_output_open || is_error_open {
            tokio::select! {
                read = stdout.read(&mut output), if is_output_open => {
                    let read = read.map_err(RunError::Broken)?;
                    is_output_open = read > 0;
                    left = left.checked_sub(read).ok_or(RunError::TooLarge)?;
                    if listener.output(&output[..read]).is_break() {
                        return Ok(());
                    }
                }
                read = stderr.read(&mut error), if is_error_open => {
                    let read = read.map_err(RunError::Broken)?;
                    is_error_open = read > 0;
                    remarks.take(&error[..read], |line| listener.remark(line));
                }
            }
        }
        let status = keeper.wait().await.map_err(RunError::Broken)?;
        if status.success() {
            return Ok(());
        }
        debug!(program = %self.name, %status, standard_error = %remarks.end(), "a program of a tool failed");
        // Without a code the keeper itself was killed.
        Err(RunError::Failed(status.code().unwrap_or(128 + 9)))
    }

    fn spawn(&self, given: &Given) -> Result<Child, RunError> {
        let order = Order {
            program: self.path.clone(),
            stdin: given.stdin.as_ref().map(String::len),
            limits: self.limits.clone(),
            sandbox: self.sandbox.clone(),
        };
        let order =
            serde_json::to_string(&order).map_err(|error| RunError::NotStarted(error.into()))?;
        Command::new(launcher())
            .args([LAUNCH, Step::Keep.as_str(), &order, &self.name])
            .args(&given.words)
            .env_clear()
            .envs(given.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(&self.directory)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| match error.kind() {
                io::ErrorKind::ArgumentListTooLong => RunError::ArgumentsTooLong,
                _ => RunError::NotStarted(error),
            })
    }
}

#[cfg(not(test))]
fn launcher() -> PathBuf {
    super::launch::SELF.into()
}

/// The binary of a unit test has no launcher, so `examples/launcher.rs` stands in.
#[cfg(test)]
fn launcher() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let launcher = test
        .parent()
        .unwrap()
        .parent()
        .unwrap()
        .join("examples/launcher");
    assert!(
        launcher.is_file(),
        "build it: cargo build -p wardgate-tool-runner --example launcher"
    );
    launcher
}
