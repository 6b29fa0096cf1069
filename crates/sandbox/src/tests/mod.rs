//! Tests with real programs, launched as in production.

mod limits;
mod sandbox;
mod tree;

use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::testing::launcher;
use crate::{OutputListener, Program, ResourceLimits, RunError, RunInput};

/// A program and the directory it runs in.
struct Case {
    directory: TempDir,
    program: Program,
}

#[derive(Default)]
struct RecordedOutput {
    output: Vec<u8>,
    error_lines: Vec<String>,
}

impl OutputListener for RecordedOutput {
    fn output(&mut self, bytes: &[u8]) -> ControlFlow<()> {
        self.output.extend_from_slice(bytes);
        ControlFlow::Continue(())
    }

    fn error_line(&mut self, line: &str) {
        self.error_lines.push(line.to_owned());
    }
}

impl Case {
    fn for_program(path: &str) -> Self {
        let directory = TempDir::new().unwrap();
        fs::write(directory.path().join("log"), "").unwrap();
        let program = Program {
            name: path.to_owned(),
            path: path.into(),
            launcher: launcher(),
            directory: directory.path().into(),
            limits: ResourceLimits::default(),
            max_output: 1 << 20,
            sandbox: None,
        };
        Self { directory, program }
    }

    fn shell() -> Self {
        Self::for_program("/bin/sh")
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    async fn run(&self, given: RunInput) -> Result<RecordedOutput, RunError> {
        let mut heard = RecordedOutput::default();
        self.program.run(given, &mut heard).await?;
        Ok(heard)
    }

    /// Runs a shell script and returns its output. `$0` is the case's directory.
    async fn script(&self, script: &str) -> Result<String, RunError> {
        let heard = self.run(self.script_input(script)).await?;
        Ok(String::from_utf8(heard.output).unwrap())
    }

    fn script_input(&self, script: &str) -> RunInput {
        let directory = self.path().to_str().unwrap().to_owned();
        RunInput {
            words: vec!["-c".to_owned(), script.to_owned(), directory],
            ..RunInput::default()
        }
    }

    /// Returns the number of processes that have the case's directory on their command line.
    fn count_processes(&self) -> usize {
        let marker = self.path().to_str().unwrap();
        let processes = fs::read_dir("/proc").unwrap();
        processes
            .filter_map(|process| fs::read(process.ok()?.path().join("cmdline")).ok())
            .filter(|line| String::from_utf8_lossy(line).contains(marker))
            .count()
    }
}

/// Waits until the condition is true.
async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(20), "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn the_environment_holds_only_what_is_listed() {
    let case = Case::for_program("/usr/bin/env");
    let environment = vec![("ONLY".to_owned(), "a b\n$(c)".to_owned())];
    let given = RunInput {
        environment,
        ..RunInput::default()
    };
    let heard = case.run(given).await.unwrap();
    assert_eq!(heard.output, b"ONLY=a b\n$(c)\n");
    let heard = case.run(RunInput::default()).await.unwrap();
    assert_eq!(heard.output, b"");
}

#[tokio::test]
async fn a_program_starts_as_if_from_a_plain_shell() {
    let case = Case::for_program("/bin/cat");
    let given = RunInput {
        words: vec!["/proc/self/status".to_owned()],
        ..RunInput::default()
    };
    let heard = case.run(given).await.unwrap();
    let status = String::from_utf8(heard.output).unwrap();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line[name.len()..].trim().to_owned()
    };
    assert_eq!(field("SigBlk:"), "0000000000000000");
    let ignored = u64::from_str_radix(&field("SigIgn:"), 16).unwrap();
    assert_eq!(ignored & (1 << (Signal::SIGPIPE as i32 - 1)), 0);
    assert_eq!(field("NoNewPrivs:"), "1");

    let case = Case::shell();
    let place = case.script("pwd; ls /proc/self/fd | wc -l").await.unwrap();
    let directory = case.path().to_str().unwrap();
    // Standard input, output and error, and the listed directory itself.
    assert_eq!(place, format!("{directory}\n4\n"));
}

#[tokio::test]
async fn standard_input_is_the_text_or_empty() {
    let case = Case::for_program("/bin/cat");
    assert_eq!(case.run(RunInput::default()).await.unwrap().output, b"");
    let text = "line\n\u{1F980}\0".repeat(20_000);
    let given = RunInput {
        stdin: Some(text.clone()),
        ..RunInput::default()
    };
    assert_eq!(case.run(given).await.unwrap().output, text.as_bytes());

    let unread = RunInput {
        stdin: Some(text),
        ..Case::shell().script_input("echo unread")
    };
    let heard = Case::shell().run(unread).await.unwrap();
    assert_eq!(heard.output, b"unread\n");
}

#[tokio::test]
async fn output_over_the_cap_ends_the_program() {
    let mut case = Case::shell();
    case.program.max_output = 100_000;
    let endless = case.script("while :; do echo $0; done").await;
    assert!(matches!(endless, Err(RunError::TooLarge)), "{endless:?}");
    until("nothing is left", || case.count_processes() == 0).await;
    let exact = case.script("head -c 100000 /dev/zero").await.unwrap();
    assert_eq!(exact.len(), 100_000);
}

#[tokio::test]
async fn a_listener_that_has_enough_ends_the_program() {
    struct First(Vec<u8>);
    impl OutputListener for First {
        fn output(&mut self, bytes: &[u8]) -> ControlFlow<()> {
            self.0.extend_from_slice(bytes);
            ControlFlow::Break(())
        }
        fn error_line(&mut self, _line: &str) {}
    }
    let case = Case::shell();
    let mut first = First(Vec::new());
    let given = case.script_input("echo first; exec tail -f $0/log");
    case.program.run(given, &mut first).await.unwrap();
    assert_eq!(first.0, b"first\n");
    until("nothing is left", || case.count_processes() == 0).await;
}

#[tokio::test]
async fn error_lines_are_lines_of_standard_error() {
    let case = Case::shell();
    let script = "printf 'one\\ntwo\\033[1m\\r\\n' >&2; echo result; printf cut >&2; head -c 9000 /dev/zero | tr '\\0' x >&2; echo >&2";
    let heard = case.run(case.script_input(script)).await.unwrap();
    assert_eq!(heard.output, b"result\n");
    let [one, two, long] = heard.error_lines.as_slice() else {
        panic!("{:?}", heard.error_lines);
    };
    assert_eq!((one.as_str(), two.as_str()), ("one", "two[1m"));
    assert!(long.starts_with("cutxxx") && long.len() == 4_096);
}

#[tokio::test]
async fn how_a_program_ended_is_told() {
    let case = Case::shell();
    for (script, code) in [
        ("exit 7", 7),
        ("exit 255", 255),
        ("kill -TERM $$", 128 + 15),
        ("kill -SEGV $$", 128 + 11),
    ] {
        let ended = case.script(script).await;
        assert!(
            matches!(ended, Err(RunError::Failed(told)) if told == code),
            "{script}: {ended:?}"
        );
    }
    for (path, code) in [("/nowhere/program", 127), ("/etc/passwd", 126)] {
        let ended = Case::for_program(path).run(RunInput::default()).await.err();
        assert!(
            matches!(ended, Some(RunError::Failed(told)) if told == code),
            "{path}: {ended:?}"
        );
    }
}

#[tokio::test]
async fn a_command_line_that_is_too_long_is_told_apart() {
    let case = Case::for_program("/bin/echo");
    let given = RunInput {
        words: vec!["x".repeat(200_000)],
        ..RunInput::default()
    };
    let ended = case.run(given).await.err();
    assert!(
        matches!(ended, Some(RunError::ArgumentsTooLong)),
        "{ended:?}"
    );
}

/// Returns the number of processes and threads of the user who runs the tests.
fn tasks_of_the_user() -> usize {
    let user = nix::unistd::geteuid().as_raw();
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    processes
        .filter(|process| process.metadata().is_ok_and(|it| it.uid() == user))
        .filter_map(|process| Some(fs::read_dir(process.path().join("task")).ok()?.count()))
        .sum()
}
