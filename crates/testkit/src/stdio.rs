//! A client of `wardgate stdio`.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde_json::Value;

/// Maximum time until the next line or the end, on a machine that is busy with builds.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running bridge, killed when dropped.
#[derive(Debug)]
pub struct StdioClient {
    child: Child,
    input: Option<ChildStdin>,
    lines: mpsc::Receiver<String>,
}

impl StdioClient {
    /// Starts `binary stdio` with these options.
    pub fn start(binary: &Path, options: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut child = Command::new(binary)
            .arg("stdio")
            .args(options)
            .env_remove("WARDGATE_TOKEN")
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a bridge");
        let output = child.stdout.take().expect("stdout is piped");
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Self {
            input: child.stdin.take(),
            child,
            lines,
        }
    }

    /// Sends a message.
    pub fn send_message(&mut self, message: &Value) {
        let input = self.input.as_mut().expect("its input is open");
        writeln!(input, "{message}").expect("it reads");
    }

    /// Receives the next message.
    pub fn receive_message(&mut self) -> Value {
        let line = self.lines.recv_timeout(PATIENCE).expect("a line");
        serde_json::from_str(&line).expect("a line is JSON")
    }

    /// Sends a request, and receives the next message.
    pub fn send_request(&mut self, message: &Value) -> Value {
        self.send_message(message);
        self.receive_message()
    }

    /// Closes the input, and returns the exit code and the remaining lines of the output.
    pub fn end(mut self) -> (Option<i32>, Vec<String>) {
        self.input = None;
        let mut rest = Vec::new();
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            rest.push(line);
        }
        let ended = self.child.try_wait().ok().flatten();
        let ended = ended.or_else(|| self.child.wait().ok());
        (ended.and_then(|status| status.code()), rest)
    }
}

impl Drop for StdioClient {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
