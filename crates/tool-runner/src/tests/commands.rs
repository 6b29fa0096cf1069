//! Tests of commands: no value changes which program runs, only the output is returned, and no process outlives its
//! call.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use tempfile::TempDir;
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_proto::toolrunner::v1::OutcomeStatus;
use wardgate_testkit::{TestDatabase, until_true};

use super::harness::{Answer, Harness};
use crate::tests::database;

const TOOLS: &str = r#"
tools:
  - name: list_words
    description: Keeps the arguments it gets.
    input_schema:
      type: object
      properties: { values: { type: array, items: { type: string } } }
    execute:
      type: command
      argv: [/bin/sh, -c, 'printf "%s\0" "$@" > received', sh, --, "{values}"]
      cwd: DIRECTORY
  - name: one_word
    description: Keeps the arguments it gets.
    input_schema:
      type: object
      properties: { value: { type: string }, other: { type: string } }
    execute:
      type: command
      argv: [/bin/sh, -c, 'printf "%s\0" "$@" > received']
      template: |
        sh first "--option={value}" '{other}' "a {value} b" -- {value}
      cwd: DIRECTORY
  - name: documents
    description: Gives back what it reads, as JSON.
    input_schema: { type: object, properties: { text: { type: string } } }
    execute: { type: command, argv: [cat], stdin: "{text}", output: json }
    result: { error: /error }
  - name: lines
    description: Gives back what it reads, line by line.
    annotations: { readOnlyHint: true }
    input_schema: { type: object, properties: { text: { type: string } } }
    execute: { type: command, argv: [cat], stdin: "{text}", output: lines }
    result: { max_rows: 3 }
  - name: script
    description: Runs a script.
    input_schema: { type: object, properties: { text: { type: string } } }
    time_limit: 5s
    execute:
      type: command
      argv: [sh, -c, "{text}", DIRECTORY]
      env: { TOLD: "<{text}>" }
      headers: { x-destination: network }
      limits: { output: 10KiB }
      progress: true
      cwd: DIRECTORY
  - name: hanging_script
    description: Runs a script that hangs.
    input_schema: { type: object, properties: { text: { type: string } } }
    time_limit: 1s
    execute: { type: command, argv: [sh, -c, "{text}", DIRECTORY] }
"#;

/// The service with these tools, and their working directory, which contains a canary file.
struct Commands {
    harness: Harness,
    directory: TempDir,
    _database: TestDatabase,
}

impl Commands {
    async fn start() -> Self {
        let directory = TempDir::new().unwrap();
        fs::write(directory.path().join("canary"), "alive").unwrap();
        let database = database::sqlite().await;
        let tools = TOOLS.replace("DIRECTORY", directory.path().to_str().unwrap());
        Self {
            harness: Harness::with(&database, &tools, |_| ()).await,
            directory,
            _database: database,
        }
    }

    async fn call(&self, tool: &str, arguments: &Value) -> Answer {
        self.harness.call(tool, &arguments.to_string()).await
    }

    async fn text(&self, tool: &str, text: &str) -> Answer {
        self.call(tool, &json!({ "text": text })).await
    }

    /// Returns the arguments that the program received, and deletes the record of them.
    fn take_arguments(&self) -> Vec<String> {
        let file = self.directory.path().join("received");
        let bytes = String::from_utf8(fs::read(&file).unwrap()).unwrap();
        fs::remove_file(file).unwrap();
        let words = bytes.strip_suffix('\0').unwrap().split('\0');
        words.map(str::to_owned).collect()
    }

    /// Asserts that the directory contains only the unchanged canary file.
    fn assert_untouched(&self) {
        let entries = fs::read_dir(self.directory.path()).unwrap();
        let paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        let canary = self.directory.path().join("canary");
        assert_eq!(paths, [canary.as_path()]);
        assert_eq!(fs::read_to_string(canary).unwrap(), "alive");
    }
}

/// Values with a meaning for a shell, for the options of a program, or for a careless splitter.
fn hostile_value() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => prop::sample::select(vec![
            "$(touch made)", "`touch made`", "; touch made", "| tee made", "&& rm canary", "> made", "< canary",
            "-rf", "--help", "--", "-", "-o made", "*", "?", "[a-z]*", "~", "{value}", "{{", "}", "$HOME", "${IFS}",
            "'", "\"", "'\"'\"'", "\\", "\\\"", "\n", "\r\n", "\t", " ", "\u{1b}[2J", "\u{202e}", "\u{feff}", "é", "\u{1F980}",
            "../canary", "/etc/passwd", "!!", "#", "%s", "%n", "=", "a=b", "\u{7f}", "\u{85}", "canary",
        ]).prop_map(str::to_owned),
        1 => "\\PC{0,12}",
        1 => "[ -~]{0,24}",
    ];
    prop_oneof![
        60 => prop::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat()),
        1 => (1_000..4_000_usize).prop_map(|length| "-x \"$(touch made)".repeat(length / 16)),
    ]
}

fn hostile_values(count: usize) -> Vec<String> {
    let mut runner = TestRunner::deterministic();
    let mut value = || hostile_value().new_tree(&mut runner).unwrap().current();
    (0..count).map(|_| value()).collect()
}

#[tokio::test]
async fn ten_thousand_hostile_values_arrive_as_they_are_and_do_nothing() {
    let commands = Commands::start().await;
    for values in hostile_values(10_000).chunks(50) {
        let answer = commands
            .call("list_words", &json!({ "values": values }))
            .await;
        assert!(!answer.0.is_error, "{}", answer.text());
        let received = commands.take_arguments();
        assert_eq!(received[0], "--");
        assert_eq!(received[1..], *values);
        commands.assert_untouched();
    }
}

#[tokio::test]
async fn a_template_keeps_its_words_whatever_the_values() {
    let commands = Commands::start().await;
    let values = hostile_values(600);
    let mut refused = 0;
    for pair in values.chunks(2) {
        let (value, other) = (&pair[0], &pair[1]);
        let answer = commands
            .call("one_word", &json!({ "value": value, "other": other }))
            .await;
        if other.starts_with('-') {
            let text = "Invalid arguments: `other` must not begin with `-`";
            assert_eq!(answer.text(), text);
            assert_eq!(answer.facts().status(), OutcomeStatus::InvalidArguments);
            refused += 1;
        } else {
            assert!(!answer.0.is_error, "{}", answer.text());
            let option = format!("--option={value}");
            let inside = format!("a {value} b");
            let words = ["first", &option, other, &inside, "--", value];
            assert_eq!(commands.take_arguments(), words);
        }
        commands.assert_untouched();
    }
    assert!((20..280).contains(&refused), "{refused}");
}

#[tokio::test]
async fn json_is_one_document() {
    let commands = Commands::start().await;
    let rows = commands
        .text("documents", r#" [{"a": 1}, {"a": [2]}] "#)
        .await;
    assert_eq!(rows.rows(), [json!({"a": 1}), json!({"a": [2]})]);
    let deep = "[".repeat(2_000) + &"]".repeat(2_000);
    for bad in ["", "{", "{} {}", "nonsense", r#"{"a": 1,}"#, &deep] {
        let answer = commands.text("documents", bad).await;
        assert!(answer.0.is_error);
        assert_eq!(answer.facts().error_kind, "bad_result", "{bad}");
    }
    let own = commands
        .text("documents", r#"{"error": "its own words"}"#)
        .await;
    assert!(
        own.0.is_error && own.text().contains("its own words"),
        "{}",
        own.text()
    );
}

#[tokio::test]
async fn lines_are_rows_and_text_is_one() {
    let commands = Commands::start().await;
    let lines = commands.text("lines", "one\r\n\nthree").await;
    let line = |line| json!({ "line": line });
    assert_eq!(lines.rows(), [line("one"), line(""), line("three")]);
    let many = commands.text("lines", &"x\n".repeat(100_000)).await;
    assert_eq!(many.rows().len(), 3);

    let text = commands.text("script", "printf 'a\\nb\\n'").await;
    assert_eq!(text.rows(), [json!({ "text": "a\nb\n" })]);
    let binary = commands.text("script", "printf '\\377'").await;
    assert_eq!(binary.facts().error_kind, "bad_result");
}

#[tokio::test]
async fn a_failure_tells_its_code_and_never_what_the_program_said() {
    let commands = Commands::start().await;
    let answer = commands
        .text("hanging_script", "echo secret >&2; echo secret; exit 3")
        .await;
    assert!(answer.0.is_error);
    assert_eq!(
        answer.text(),
        "Tool execution failed: the program exited with code 3"
    );
    assert_eq!(answer.facts().error_kind, "command_failed");
    let answer = commands.text("script", "head -c 20000 /dev/zero").await;
    assert_eq!(answer.facts().error_kind, "result_too_large");
    let answer = commands
        .text("script", &format!(": {}", "x".repeat(140_000)))
        .await;
    let text = "Invalid arguments: `text` exceeds the maximum length of a command line";
    assert_eq!(answer.text(), text);
}

#[tokio::test]
async fn the_environment_is_what_is_configured() {
    let commands = Commands::start().await;
    let answer = commands.text("script", "exec /usr/bin/env").await;
    let rows = answer.rows();
    let text = rows[0]["text"].as_str().unwrap();
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    // The shell itself adds its working directory.
    let directory = format!("PWD={}", commands.directory.path().display());
    let told = [
        "TOLD=<exec /usr/bin/env>",
        "WARDGATE_HEADER_X_DESTINATION=network",
    ];
    let expected: Vec<_> = [directory.as_str()].into_iter().chain(told).collect();
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn standard_error_is_told_as_progress_where_configured() {
    let commands = Commands::start().await;
    let harness = &commands.harness;
    let permit = harness.signer.sign(&harness.terms("script").await);
    let arguments =
        json!({ "text": "echo half >&2; until [ -e go ]; do :; done; echo done" }).to_string();
    let request = harness.request("script", arguments.as_bytes(), Some(&permit));
    let mut client = harness.client.clone();
    let mut events = client.call_tool(request).await.unwrap().into_inner();
    let mut progress = Vec::new();
    let go = commands.directory.path().join("go");
    while let Some(event) = events.message().await.unwrap() {
        match event.event.unwrap() {
            pb::call_tool_response::Event::Progress(told) => {
                progress.push(told.message);
                fs::write(&go, "").unwrap();
            }
            pb::call_tool_response::Event::Result(result) => assert!(!result.is_error),
            other => panic!("a program neither logs nor asks: {other:?}"),
        }
    }
    assert_eq!(progress, ["half"]);
}

#[tokio::test]
async fn at_the_time_limit_nothing_of_a_program_is_left() {
    let commands = Commands::start().await;
    let family = "trap '' TERM; setsid tail -f $0/canary </dev/null >/dev/null 2>&1 & tail -f $0/canary & wait";
    let answer = commands.text("hanging_script", family).await;
    assert_eq!(answer.facts().status(), OutcomeStatus::Timeout);
    until_true("nothing is left", || async {
        !is_mentioned(commands.directory.path())
    })
    .await;
    commands.assert_untouched();
}

/// Returns whether the command line of any process mentions `path`.
fn is_mentioned(path: &Path) -> bool {
    let path = path.to_str().unwrap();
    let processes = fs::read_dir("/proc").unwrap();
    let mut lines =
        processes.filter_map(|process| fs::read(process.ok()?.path().join("cmdline")).ok());
    lines.any(|line| String::from_utf8_lossy(&line).contains(path))
}

#[tokio::test]
async fn calls_of_one_command_run_at_the_same_time() {
    let commands = Commands::start().await;
    let calls = (0..16).map(|n| {
        let commands = &commands;
        async move {
            let answer = commands.text("lines", &format!("{n}")).await;
            assert_eq!(answer.rows(), [json!({ "line": n.to_string() })]);
        }
    });
    futures::future::join_all(calls).await;
}
