//! Tests of startup with faults: the process reports the fault and its place and exits, or it starts and logs the fault.

mod configuration;
mod services;

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use wardgate_testkit::{ProcessExit, System, TestApp, WardgateProcess, run};

use super::people::{doctor, of_patient};
use crate::{REPOSITORY, WARDGATE};

/// A copy of the hospital example, to be modified.
struct Example(TempDir);

impl Example {
    fn copy() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let from = format!("{REPOSITORY}/deploy/examples/hospital/.");
        let copied = Command::new("cp")
            .args(["-r", &from])
            .arg(dir.path())
            .status()
            .unwrap();
        assert!(copied.success());
        Self(dir)
    }

    /// Copies the example and replaces its configuration by this text.
    fn with_config(text: &str) -> Self {
        let example = Self::copy();
        std::fs::write(example.path("wardgate.yaml"), text).unwrap();
        example
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn spoil(&self, name: &str, from: &str, to: &str) {
        let text = std::fs::read_to_string(self.path(name)).unwrap();
        assert!(text.contains(from), "{name} has no {from:?}");
        std::fs::write(self.path(name), text.replacen(from, to, 1)).unwrap();
    }

    /// Runs `wardgate up` on the example, and expects it to exit.
    fn up(&self) -> ProcessExit {
        let (config, data) = (self.path("wardgate.yaml"), self.path("data"));
        let arguments = [
            "up",
            "--config",
            &config,
            "--data-dir",
            &data,
            "--listen",
            "127.0.0.1:0",
        ];
        run(
            Path::new(WARDGATE),
            &arguments,
            &[("HOSPITAL_DB_URL", "sqlite:none.sqlite")],
        )
    }

    /// Runs one service on the example, and expects it to exit.
    fn service(&self, name: &str) -> ProcessExit {
        run(
            Path::new(WARDGATE),
            &[name, "--config", &self.path("wardgate.yaml")],
            &[],
        )
    }
}

/// Checks that the process failed to start, and that its message contains each of `says`.
fn assert_failed(ended: &ProcessExit, says: &[&str]) {
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(!ended.stdout.contains("ready"), "{}", ended.stdout);
    assert!(ended.stderr.contains("wardgate: "), "{}", ended.stderr);
    for words in says {
        assert!(
            ended.stderr.contains(words),
            "no {words:?} in {}",
            ended.stderr
        );
    }
    assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
}

#[test]
fn a_port_that_is_taken_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let example = Example::copy();
    let arguments = [
        "up",
        "--data-dir",
        &example.path("data"),
        "--listen",
        &address,
    ];
    assert_failed(
        &run(Path::new(WARDGATE), &arguments, &[]),
        &["cannot listen on", &address],
    );
}

#[test]
fn a_data_directory_that_is_a_file_is_named() {
    let example = Example::copy();
    let file = example.path("README.md");
    for arguments in [
        &["up", "--data-dir", &file][..],
        &["certs", "dev", "--data-dir", &file],
    ] {
        assert_failed(&run(Path::new(WARDGATE), arguments, &[]), &[&file]);
    }
}

#[test]
fn a_command_without_its_data_directory_makes_none() {
    let example = Example::copy();
    let absent = example.path("absent");
    for arguments in [
        &["token", "--sub", "a", "--role", "b", "--data-dir", &absent][..],
        &["audit", "query", "--offline", "--data-dir", &absent],
    ] {
        assert_failed(&run(Path::new(WARDGATE), arguments, &[]), &[&absent]);
    }
    assert!(!Path::new(&absent).exists());
}

#[test]
fn wrong_usage_exits_with_two_and_says_how_it_is_used() {
    for arguments in [
        &[][..],
        &["no-such-command"],
        &["up", "--no-such-option"],
        &["up", "--listen", "nowhere"],
        &["up", "--demo", "hospital", "--config", "x.yaml"],
        &["up", "--demo", "prison"],
        &["gateway"],
        &["policy"],
        &["audit"],
        &["token", "--sub", "a"],
        &["token", "--role", "b"],
        &["token", "--sub", "a", "--role", "b", "--ttl", "soon"],
        &["token", "--sub", "a", "--role", "b", "--claim", "ward"],
        &["audit", "query", "--status", "fine"],
        &["audit", "query", "--since", "yesterday"],
        &["audit", "query", "--limit", "-1"],
        &["audit", "query", "--view", "access"],
        &["audit", "query", "--offline", "--token-file", "a"],
        &[
            "policy",
            "replay",
            "--with",
            "a",
            "--offline",
            "--token-file",
            "b",
        ],
        &[
            "audit",
            "export",
            "--out",
            "a",
            "--offline",
            "--context",
            "b",
        ],
        &["tools", "validate", "a", "b"],
    ] {
        let ended = run(Path::new(WARDGATE), arguments, &[]);
        assert_eq!(ended.code, Some(2), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stdout.is_empty(), "{arguments:?}");
        assert!(
            ended.stderr.contains("--help") || ended.stderr.contains("Usage:"),
            "{}",
            ended.stderr
        );
    }
}

#[test]
fn health_tells_by_its_exit_code() {
    let url = format!("http://127.0.0.1:{}", wardgate_testkit::free_port());
    let ended = run(Path::new(WARDGATE), &["health", "--url", &url], &[]);
    assert_failed(&ended, &[&url]);

    let app = TestApp::start(WARDGATE);
    let url = app.client().base();
    let said = run(Path::new(WARDGATE), &["health", "--url", url], &[]).success();
    assert!(said.contains(r#""status":"ready""#), "{said}");
}

#[tokio::test]
async fn metrics_are_on_loopback_alone_and_where_the_configuration_says() {
    // Another process may use this port already. A second system starts anyway, and reports the address of its metrics.
    let taken = std::net::TcpListener::bind("127.0.0.1:9090");
    let app = TestApp::start_with(WARDGATE, &[("WARDGATE_GATEWAY__LISTEN", "127.0.0.1:1")]);
    let probes = app.probes();
    assert!(
        probes.base().starts_with("http://127.0.0.1:"),
        "{}",
        probes.base()
    );
    assert_ne!(probes.base(), app.client().base());
    assert_eq!(probes.get("/metrics").await.status, 200);

    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().display().to_string();
    let listen = format!("127.0.0.1:{}", wardgate_testkit::free_port());
    let second = WardgateProcess::start(
        Path::new(WARDGATE),
        &["up", "--data-dir", &dir, "--listen", &listen],
        &[],
    );
    let line = second.ready_line();
    // If another test had the port, that test may have ended by now.
    if taken.is_ok() {
        assert!(!line.contains("127.0.0.1:9090"), "{line}");
        wardgate_testkit::until("the log says so", async || {
            let said = second.log().contains("cannot listen on 127.0.0.1:9090");
            said.then_some(())
        })
        .await;
    }

    let own = TestApp::start_with(WARDGATE, &[("WARDGATE_GATEWAY__PROBES", "127.0.0.1:0")]);
    assert_eq!(own.probes().get("/readyz").await.status, 200);
    for path in ["/ready", "/metrics"] {
        assert_eq!(own.client().get(path).await.status, 404, "{path}");
    }
    assert_eq!(own.client().get("/health").await.status, 200);
}

#[tokio::test]
async fn the_probes_answer_without_a_token() {
    let app = TestApp::start(WARDGATE);
    for path in ["/health", "/healthz"] {
        let reply = app.client().get(path).await;
        assert_eq!(
            (reply.status, reply.body.as_str()),
            (200, r#"{"status":"ok"}"#)
        );
    }
    for path in ["/ready", "/readyz"] {
        let reply = app.client().get(path).await;
        assert_eq!(reply.status, 200);
        for part in ["keys", "policy", "tool-runner", "catalogue", "audit"] {
            assert_eq!(reply.json()["parts"][part], "ready", "{part}");
        }
    }
    let token = doctor(&app);
    app.client()
        .call(&token, "get_medical_records", of_patient("NUGWI"))
        .await;
    assert_eq!(app.client().get("/metrics").await.status, 404);
    let metrics = app.probes().get("/metrics").await;
    assert!(
        metrics.headers["content-type"]
            .to_str()
            .unwrap()
            .starts_with("text/plain")
    );
    let counted = r#"wardgate_tool_calls_total{tool="get_medical_records",status="ok"} 1"#;
    assert!(metrics.body.contains(counted), "{}", metrics.body);
}
