//! Child processes: servers that announce when they are ready, and commands that run to completion.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

/// Maximum time for a start or a command, on a machine that is busy with builds.
const PATIENCE: Duration = Duration::from_mins(5);

/// A small Python server that prints its URL once it serves, and is killed when dropped.
#[derive(Debug)]
pub struct PythonServer {
    child: Child,
    /// The URL of the server.
    pub url: String,
}

impl PythonServer {
    /// Runs `script` with port 0.
    pub fn start(script: &Path) -> Self {
        let mut command = Command::new("python3");
        let mut child = command
            .arg(script)
            .arg("0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 is installed");
        let stdout = child.stdout.take().expect("stdout is piped");
        let mut url = String::new();
        BufReader::new(stdout).read_line(&mut url).expect("a line");
        Self {
            child,
            url: url.trim().to_owned(),
        }
    }
}

impl Drop for PythonServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A running `wardgate`, killed when dropped.
#[derive(Debug)]
pub struct WardgateProcess {
    child: Child,
    ready: String,
    log: OutputLog,
}

impl WardgateProcess {
    /// Starts `binary` and waits for its `ready` line.
    pub fn start(binary: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut child = spawn(&mut command(binary, arguments, environment));
        let log = OutputLog::from_stream(child.stderr.take());
        let (sender, lines) = mpsc::channel();
        let stdout = child.stdout.take().expect("stdout is piped");
        // The thread reads to the end, so that the process never blocks on a full pipe.
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let ready = loop {
            match lines.recv_timeout(PATIENCE) {
                Ok(line) if line.starts_with("ready") => break line,
                Ok(_) => {}
                Err(_) => {
                    let _ = child.kill();
                    let _ = child.wait();
                    panic!("{arguments:?} did not become ready:\n{}", log.text());
                }
            }
        };
        Self { child, ready, log }
    }

    /// Returns the `ready` line.
    pub fn ready_line(&self) -> &str {
        &self.ready
    }

    /// Returns everything on standard error so far.
    pub fn log(&self) -> String {
        self.log.text()
    }

    /// Removes and returns the standard error output that [`Self::log`] has, so that it does not grow in long runs.
    pub fn take_log(&self) -> String {
        std::mem::take(&mut *self.log.lines.lock().expect("log"))
    }

    /// Returns the process ID.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal, which is named without `SIG`.
    pub fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &id]).status();
        assert!(
            sent.is_ok_and(|status| status.success()),
            "SIG{name} could not be sent"
        );
    }

    /// Sends SIGKILL, and waits until the process has ended.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends SIGTERM, and waits until the process has ended.
    pub fn terminate(&mut self) -> ExitStatus {
        self.signal("TERM");
        self.wait_for_exit()
    }

    /// Waits until the process has ended by itself.
    pub fn wait_for_exit(&mut self) -> ExitStatus {
        self.child.wait().expect("the process ends")
    }

    /// Returns whether the process is still running.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for WardgateProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The result of a command that has ended.
#[derive(Debug)]
pub struct ProcessExit {
    /// The exit code, or `None` if a signal ended the process.
    pub code: Option<i32>,
    /// Everything on standard output.
    pub stdout: String,
    /// Everything on standard error.
    pub stderr: String,
}

impl ProcessExit {
    /// Returns the standard output, and panics unless the exit code is 0.
    pub fn success(self) -> String {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        self.stdout
    }

    pub(crate) fn run(mut command: Command) -> Self {
        let mut child = spawn(&mut command);
        let (stdout, stderr) = (
            OutputLog::from_stream(child.stdout.take()),
            OutputLog::from_stream(child.stderr.take()),
        );
        // A process that closes both streams has ended or is about to end.
        if !(stdout.wait_until_closed() && stderr.wait_until_closed()) {
            let _ = child.kill();
            let _ = child.wait();
            panic!(
                "{command:?} does not end:\n{}{}",
                stdout.text(),
                stderr.text()
            );
        }
        let status = child.wait().expect("the process ends");
        Self {
            code: status.code(),
            stdout: stdout.text(),
            stderr: stderr.text(),
        }
    }
}

/// Runs `binary` to completion, and panics if it does not end in time.
pub fn run(binary: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> ProcessExit {
    ProcessExit::run(command(binary, arguments, environment))
}

/// Returns a command without the environment variables of the developer's own database.
fn command(binary: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Command {
    let mut command = Command::new(binary);
    command
        .args(arguments)
        .env_remove("HOSPITAL_DB_URL")
        .env_remove("HOSPITAL_DB_TYPE");
    command.envs(environment.iter().copied());
    command
}

fn spawn(command: &mut Command) -> Child {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// The output of a stream so far.
#[derive(Debug)]
struct OutputLog {
    lines: Arc<Mutex<String>>,
    end: mpsc::Receiver<()>,
}

impl OutputLog {
    fn from_stream(stream: Option<impl Read + Send + 'static>) -> Self {
        let stream = stream.expect("the stream is piped");
        let lines = Arc::new(Mutex::new(String::new()));
        let (open, end) = mpsc::channel();
        let into = Arc::clone(&lines);
        thread::spawn(move || {
            let _open = open;
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                let mut lines = into.lock().expect("log");
                lines.push_str(&line);
                lines.push('\n');
            }
        });
        Self { lines, end }
    }

    fn text(&self) -> String {
        self.lines.lock().expect("log").clone()
    }

    /// Waits until the stream is closed, and returns whether it was closed in time.
    fn wait_until_closed(&self) -> bool {
        self.end.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Disconnected)
    }
}
