//! The fixture and the scripted servers as programs: the test binary, started again with a single test.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, Write};
use std::path::PathBuf;

use rmcp::ServiceExt;

use super::fixture::Fixture;
use super::script::{Script, ScriptedAction};
use crate::{Program, Transport};

const KIND: &str = "WARDGATE_TEST_UPSTREAM";

/// Starts [`run`] with its output on another descriptor, because the test harness prints to the standard output.
pub const START: &str = r#"exec "$0" --ignored --exact tests::program 3>&1 >/dev/null"#;

/// Returns [`settings`] as a source in `tools.yaml`.
pub fn source(kind: &str) -> String {
    let this = std::env::current_exe().unwrap();
    let argv = serde_json::json!(["sh", "-c", START, this]);
    format!("{{ type: mcp, command: {argv}, env: {{ {KIND}: {kind} }} }}")
}

/// Returns the settings of a program of that kind: `rmcp-ERA`, or a kind of [`Script`].
pub fn settings(kind: &str) -> Transport {
    started_by(START, kind)
}

/// Returns the settings of a program of that kind that ignores SIGTERM.
pub fn deaf_to_sigterm(kind: &str) -> Transport {
    started_by(&format!("trap '' TERM; {START}"), kind)
}

pub fn started_by(shell: &str, kind: &str) -> Transport {
    let this = std::env::current_exe().unwrap();
    let argv = ["sh", "-c", shell, this.to_str().unwrap()];
    Transport::Stdio(Program {
        argv: argv.map(str::to_owned).to_vec(),
        env: BTreeMap::from([(KIND.to_owned(), kind.to_owned())]),
        directory: PathBuf::from("/"),
    })
}

/// Runs as a server. The test `tests::program` of a crate calls this function in the process that is started again.
pub fn run() {
    let Ok(kind) = std::env::var(KIND) else {
        return;
    };
    let out = OpenOptions::new().write(true).open("/dev/fd/3").unwrap();
    match kind.strip_prefix("rmcp-") {
        Some(era) => serve(era, out),
        None => follow_script(&kind, out),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn serve(era: &str, out: File) {
    let out = tokio::fs::File::from_std(out);
    let transport = (tokio::io::stdin(), out);
    let server = Fixture::new(era).serve(transport).await.unwrap();
    server.waiting().await.unwrap();
}

fn follow_script(kind: &str, mut out: File) {
    eprintln!("a line of standard error");
    let mut script = Script::new(kind);
    let flood = vec![b'x'; 1 << 16];
    for line in std::io::stdin().lock().lines() {
        for act in script.acts(&line.unwrap()) {
            match act {
                ScriptedAction::Say(line) => writeln!(out, "{line}").unwrap(),
                ScriptedAction::Exit => std::process::exit(7),
                ScriptedAction::Flood => while out.write_all(&flood).is_ok() {},
            }
        }
    }
    if kind == "stubborn" {
        loop {
            std::thread::park();
        }
    }
}
