//! Child processes: one that says when it is ready, and one that runs to its end.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

/// How long a start, or a command, may take on a machine that is busy building.
const PATIENCE: Duration = Duration::from_mins(2);

/// A small server in Python that prints its URL once it serves; killed when dropped.
#[derive(Debug)]
pub struct PythonServer {
    child: Child,
    /// Where it answers.
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
        let log = OutputLog::of(child.stderr.take());
        let (sender, lines) = mpsc::channel();
        let stdout = child.stdout.take().expect("stdout is piped");
        // Reads to the end, so that the process never blocks on a full pipe.
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

    /// The `ready` line.
    pub fn ready_line(&self) -> &str {
        &self.ready
    }

    /// Everything on standard error so far.
    pub fn log(&self) -> String {
        self.log.text()
    }

    /// What came on standard error since this was last asked, which [`Self::log`] no longer has: for long runs.
    pub fn take_log(&self) -> String {
        std::mem::take(&mut *self.log.lines.lock().expect("log"))
    }

    /// What the operating system calls it.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal, by its name without `SIG`.
    pub fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &id]).status();
        assert!(
            sent.is_ok_and(|status| status.success()),
            "SIG{name} could not be sent"
        );
    }

    /// SIGKILL, and waits until it is gone.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// SIGTERM, and waits until it ended by itself.
    pub fn terminate(&mut self) -> ExitStatus {
        self.signal("TERM");
        self.ended()
    }

    /// Waits until it ended by itself.
    pub fn ended(&mut self) -> ExitStatus {
        self.child.wait().expect("the process ends")
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for WardgateProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A command that ended.
#[derive(Debug)]
pub struct ProcessExit {
    /// Exit code; none when a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl ProcessExit {
    /// What it printed, once it succeeded.
    pub fn success(self) -> String {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        self.stdout
    }

    pub(crate) fn of(mut command: Command) -> Self {
        let mut child = spawn(&mut command);
        let (stdout, stderr) = (
            OutputLog::of(child.stdout.take()),
            OutputLog::of(child.stderr.take()),
        );
        // Whoever closes both streams has ended, or is about to.
        if !(stdout.ended() && stderr.ended()) {
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

/// Runs `binary` to its end; one that does not come to it fails the test.
pub fn run(binary: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> ProcessExit {
    ProcessExit::of(command(binary, arguments, environment))
}

/// The developer's own database has no place in a test.
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

/// What a stream said so far.
#[derive(Debug)]
struct OutputLog {
    lines: Arc<Mutex<String>>,
    end: mpsc::Receiver<()>,
}

impl OutputLog {
    fn of(stream: Option<impl Read + Send + 'static>) -> Self {
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

    /// Waits until the stream is closed.
    fn ended(&self) -> bool {
        self.end.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Disconnected)
    }
}
