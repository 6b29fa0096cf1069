//! A configured program and the execution of one run.

use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::Stdio;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tracing::debug;

use super::launch_order::{LAUNCH, LaunchOrder, LaunchStep, ResourceLimits, Sandbox};
use super::stderr::StandardError;

/// Number of bytes read at once.
const CHUNK: usize = 16 * 1_024;

/// A program as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The name of the program as configured, which is the first word of its command line.
    pub name: String,
    /// The absolute path of the program.
    pub path: PathBuf,
    /// The binary that launches the program: [`THIS_BINARY`](crate::THIS_BINARY), unless that binary has no launcher,
    /// like the binary of a test.
    pub launcher: PathBuf,
    /// The working directory.
    pub directory: PathBuf,
    /// The resource limits of each process.
    pub limits: ResourceLimits,
    /// The maximum size of the standard output of one run, in bytes.
    pub max_output: usize,
    /// The restrictions on files and network, or `None` if the program can access everything that Wardgate itself can.
    pub sandbox: Option<Sandbox>,
}

/// The input of one run.
#[derive(Default)]
pub struct RunInput {
    /// The words after the program's name, each of which is exactly one argument.
    pub words: Vec<String>,
    /// The complete environment.
    pub environment: Vec<(String, String)>,
    /// The text for standard input, or `None` for an empty standard input.
    pub stdin: Option<String>,
}

/// A receiver of a run's output as it is produced.
pub trait OutputListener: Send {
    /// Receives bytes of standard output. Returning `Break` ends the program.
    fn output(&mut self, bytes: &[u8]) -> ControlFlow<()>;
    /// Receives a line of standard error.
    fn error_line(&mut self, line: &str);
}

/// The reason why a run has no result.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The command line is longer than the kernel accepts (`E2BIG`).
    #[error("the arguments are too long for a command line")]
    ArgumentsTooLong,
    /// The process could not be created.
    #[error("the program cannot be started")]
    NotStarted(#[source] io::Error),
    /// The output of the program could not be read to its end.
    #[error("the connection to the program failed")]
    Broken(#[source] io::Error),
    /// The program wrote more than `max_output` bytes.
    #[error("the output of the program exceeds its limit")]
    TooLarge,
    /// The program failed with this exit code, which is 128 + n if signal n ended the program.
    #[error("the program exited with code {0}")]
    Failed(i32),
}

impl Program {
    /// Runs the program until it ends. Dropping the future ends the program and every process that it started.
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
        // The error is ignored, because a supervisor that could not start reports that by its exit code.
        let _told = leash.write_all(text.as_bytes()).await;
        drop(text);

        let mut standard_error = StandardError::default();
        let mut left = self.max_output;
        let (mut output, mut error) = (vec![0; CHUNK], vec![0; CHUNK]);
        let (mut is_output_open, mut is_error_open) = (true, true);
        // Both streams end when the supervisor does, which is when none of the program's processes is left.
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
                    standard_error.push_bytes(&error[..read], |line| listener.error_line(line));
                }
            }
        }
        let status = supervisor.wait().await.map_err(RunError::Broken)?;
        if status.success() {
            return Ok(());
        }
        debug!(program = %self.name, %status, "a program of a tool failed");
        // The text may contain arguments and results, so it is logged only if a filter names this target.
        debug!(target: "wardgate::standard_error", program = %self.name, text = %standard_error.end(), "a program wrote to standard error");
        // There is no exit code if the supervisor itself was killed.
        Err(RunError::Failed(status.code().unwrap_or(128 + 9)))
    }

    fn spawn(&self, input: &RunInput) -> Result<Child, RunError> {
        if !cfg!(target_os = "linux") {
            let error = "programs of tools run only on Linux";
            return Err(RunError::NotStarted(io::Error::other(error)));
        }
        let order = LaunchOrder {
            program: self.path.clone(),
            stdin: input.stdin.as_ref().map(String::len),
            limits: self.limits.clone(),
            sandbox: self.sandbox.clone(),
        };
        let order =
            serde_json::to_string(&order).map_err(|error| RunError::NotStarted(error.into()))?;
        let mut command = Command::new(&self.launcher);
        #[cfg(unix)]
        command.process_group(0);
        command
            .args([LAUNCH, LaunchStep::Keep.as_str(), &order, &self.name])
            .args(&input.words)
            .env_clear()
            .envs(input.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(&self.directory)
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
