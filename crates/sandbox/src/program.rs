//! A program and one run of it.

use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::Stdio;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tracing::debug;

use super::landlock_rules::Sandbox;
use super::launch_order::{LAUNCH, LaunchOrder, LaunchStep, ResourceLimits};
use super::stderr::StandardError;

/// Bytes read at once.
const CHUNK: usize = 16 * 1_024;

/// A program as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The first word of its command line: its name as configured.
    pub name: String,
    /// Absolute.
    pub path: PathBuf,
    /// What starts it: [`THIS_BINARY`](crate::THIS_BINARY), unless that has no launcher, as the binary of a test.
    pub launcher: PathBuf,
    /// Where it runs.
    pub directory: PathBuf,
    /// What each of its processes may use.
    pub limits: ResourceLimits,
    /// Bytes of standard output one run may write.
    pub max_output: usize,
    /// What it can reach; all that Wardgate itself can where there is none.
    pub sandbox: Option<Sandbox>,
}

/// The input of one run.
#[derive(Default)]
pub struct RunInput {
    /// The words behind the program's name, each exactly one argument.
    pub words: Vec<String>,
    /// The whole environment.
    pub environment: Vec<(String, String)>,
    /// The text on its standard input, which is empty without.
    pub stdin: Option<String>,
}

/// Where a run's output goes, as it comes.
pub trait OutputListener: Send {
    /// Bytes of standard output; a break ends the program.
    fn output(&mut self, bytes: &[u8]) -> ControlFlow<()>;
    /// A line of standard error.
    fn error_line(&mut self, line: &str);
}

/// Why a run has no result.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Longer than the kernel takes (`E2BIG`).
    #[error("the arguments are too long for a command line")]
    ArgumentsTooLong,
    /// No process was made.
    #[error("the program cannot be started")]
    NotStarted(#[source] io::Error),
    /// Its output could not be read to the end.
    #[error("the connection to the program broke")]
    Broken(#[source] io::Error),
    /// More than `max_output` bytes.
    #[error("the program wrote more than it may")]
    TooLarge,
    /// 128 + n where signal n ended it.
    #[error("the program ended with code {0}")]
    Failed(i32),
}

impl Program {
    /// Runs it to its end. Dropping the future ends the program and everything it started.
    pub async fn run(
        &self,
        input: RunInput,
        listener: &mut dyn OutputListener,
    ) -> Result<(), RunError> {
        let mut supervisor = self.spawn(&input)?;
        let (Some(mut leash), Some(mut stdout), Some(mut stderr)) = (
            supervisor.stdin.take(),
            supervisor.stdout.take(),
            supervisor.stderr.take(),
        ) else {
            return Err(RunError::Broken(io::ErrorKind::BrokenPipe.into()));
        };
        let text = input.stdin.unwrap_or_default();
        // A supervisor that could not start says so by its exit code.
        let _told = leash.write_all(text.as_bytes()).await;
        drop(text);

        let mut standard_error = StandardError::default();
        let mut left = self.max_output;
        let (mut output, mut error) = (vec![0; CHUNK], vec![0; CHUNK]);
        let (mut is_output_open, mut is_error_open) = (true, true);
        // Both end when the supervisor does, which is when nothing of the program is left.
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
                    standard_error.take(&error[..read], |line| listener.error_line(line));
                }
            }
        }
        let status = supervisor.wait().await.map_err(RunError::Broken)?;
        if status.success() {
            return Ok(());
        }
        debug!(program = %self.name, %status, "a program of a tool failed");
        // It may hold arguments and results: only a filter that names the target lets it through.
        debug!(target: "wardgate::standard_error", program = %self.name, text = %standard_error.end(), "a program wrote to standard error");
        // Without a code the supervisor itself was killed.
        Err(RunError::Failed(status.code().unwrap_or(128 + 9)))
    }

    fn spawn(&self, input: &RunInput) -> Result<Child, RunError> {
        let order = LaunchOrder {
            program: self.path.clone(),
            stdin: input.stdin.as_ref().map(String::len),
            limits: self.limits.clone(),
            sandbox: self.sandbox.clone(),
        };
        let order =
            serde_json::to_string(&order).map_err(|error| RunError::NotStarted(error.into()))?;
        Command::new(&self.launcher)
            .args([LAUNCH, LaunchStep::Keep.as_str(), &order, &self.name])
            .args(&input.words)
            .env_clear()
            .envs(input.environment.iter().map(|(name, value)| (name, value)))
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
