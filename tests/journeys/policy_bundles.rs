//! Policies that are rolled out as signed bundles, made by the command line and taken up by a running system.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;
use wardgate_testkit::{ProcessExit, System, TestApp, run, until};

use crate::WARDGATE;

const CATALOGUE: &str = r#"
sources:
  memory: { type: sqlite, url: "sqlite::memory:" }
tools:
  - name: read_shift
    description: The next shift.
    annotations: { readOnlyHint: true }
    input_schema: { type: object, properties: {} }
    execute: { type: sql, source: memory, statement: "SELECT 7 AS shift" }
    result: { classes: { shift: none } }
"#;

const TESTS: &str = r"
callers:
  nurse: { subject: nurse.joy, roles: [Nurse] }
tests:
  - name: a nurse reads the next shift
    callers: [nurse]
    tools: [read_shift]
    expect: { decision: allowed }
";

/// Makes an Ed25519 key pair, `NAME.pem` and `NAME.pub.pem`.
fn make_key(directory: &Path, name: &str) {
    let path = |ending: &str| directory.join(format!("{name}{ending}"));
    let openssl = |arguments: &[&str]| {
        let done = Command::new("openssl").args(arguments).output().unwrap();
        assert!(done.status.success(), "{done:?}");
    };
    let (key, public) = (path(".pem"), path(".pub.pem"));
    let (key, public) = (key.to_str().unwrap(), public.to_str().unwrap());
    openssl(&["genpkey", "-algorithm", "ed25519", "-out", key]);
    openssl(&["pkey", "-in", key, "-pubout", "-out", public]);
}

/// A directory of policies that is packed as bundles, and the directory in which these are published.
struct BundlePublisher {
    dir: TempDir,
}

impl BundlePublisher {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["policies/tests", "bundles"] {
            fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        let publisher = Self { dir };
        publisher.write("tools.yaml", CATALOGUE);
        publisher.write("policies/tests/shifts.yaml", TESTS);
        publisher.write_policies("v1");
        make_key(publisher.dir.path(), "own");
        make_key(publisher.dir.path(), "other");
        let config = json!({
            "policy": { "bundle": {
                "source": publisher.path("bundles"),
                "public_key_files": [publisher.path("own.pub.pem")],
                "poll_interval": 1,
            }},
            "tool_runner": { "catalogue": "tools.yaml" },
        });
        publisher.write("wardgate.yaml", &config.to_string());
        publisher
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Writes policies whose only rule has this id.
    fn write_policies(&self, id: &str) {
        let rule = format!(
            "@id(\"{id}\")\npermit (principal in Role::\"Nurse\", action == Action::\"call_tool\", resource);\n"
        );
        self.write("policies/shifts.cedar", &rule);
    }

    fn create(&self, version: u64, key: &str) -> ProcessExit {
        let (policies, out) = (self.path("policies"), self.path("new.bundle"));
        let (version, key) = (version.to_string(), self.path(&format!("{key}.pem")));
        let words = [
            "policy",
            "bundle",
            "create",
            &policies,
            "--version",
            &version,
        ];
        let options = ["--key", &key, "--out", &out, "--json"];
        run(Path::new(WARDGATE), &[&words[..], &options].concat(), &[])
    }

    /// Publishes the policies as this version, in the place of what was published before.
    fn publish(&self, version: u64, key: &str) -> Value {
        let made = self.create(version, key).success();
        fs::rename(
            self.path("new.bundle"),
            self.path("bundles/policies.bundle"),
        )
        .unwrap();
        serde_json::from_str(&made).unwrap()
    }
}

/// The decision of the newest call, as it is on record.
async fn decision(app: &TestApp, token: &str) -> Value {
    let reply = app.client().call(token, "read_shift", json!({})).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let records = app.records_with(&["--tool", "read_shift"]);
    records.last().unwrap()["decision"].clone()
}

/// The reasons for which bundles were refused so far.
async fn refusals(app: &TestApp) -> Vec<String> {
    let metrics = app.metrics().await;
    let name = "wardgate_policy_bundle_refusals_total{";
    let lines = metrics.lines().filter_map(|line| line.split_once(name));
    let reasons = lines.filter_map(|(_, rest)| rest.split('"').nth(1));
    reasons.map(str::to_owned).collect()
}

async fn until_refused(app: &TestApp, reason: &str) {
    until(&format!("a bundle is refused: {reason}"), async || {
        refusals(app)
            .await
            .contains(&reason.to_owned())
            .then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_running_system_takes_a_newer_bundle_and_refuses_an_older_and_a_forged_one() {
    let publisher = BundlePublisher::new();
    let first = publisher.publish(1, "own");
    let mut app = TestApp::start_example(WARDGATE, publisher.dir.path(), "bundled", &[]);
    let nurse = app.token("nurse.joy", "Nurse", &[]);
    let by = decision(&app, &nurse).await;
    assert_eq!(by["bundle"]["version"], 1);
    assert_eq!(by["bundle"]["digest"], first["digest"]);
    assert_eq!(by["policy_hash"], first["policy_hash"]);
    assert_eq!(by["policies"], json!(["v1"]));

    publisher.write_policies("v2");
    let second = publisher.publish(2, "own");
    let by = until("the decisions name version 2", async || {
        let by = decision(&app, &nurse).await;
        (by["bundle"]["version"] == 2).then_some(by)
    })
    .await;
    assert_eq!(by["bundle"]["digest"], second["digest"]);
    assert_eq!(by["policies"], json!(["v2"]));

    publisher.publish(1, "own");
    until_refused(&app, "older").await;
    publisher.write_policies("v3");
    publisher.publish(3, "other");
    until_refused(&app, "signature").await;
    let after = decision(&app, &nurse).await;
    assert_eq!(after["bundle"], by["bundle"]);
    assert_eq!(after["policies"], by["policies"]);
    let ready = app.client().get("/ready").await;
    assert_eq!(ready.status, 200, "{}", ready.body);

    // A restart starts with version 2, although only the forged bundle is published.
    app.process.kill();
    app.restart();
    assert_eq!(decision(&app, &nurse).await["bundle"]["version"], 2);
    let call = app.records().last().unwrap()["call_id"].clone();
    let data = app.data_dir().display().to_string();
    let policies = publisher.path("policies");
    let call = call.as_str().unwrap();
    let words = [
        "policy",
        "explain",
        &policies,
        "--call",
        call,
        "--offline",
        "--data-dir",
        &data,
    ];
    let explained = run(Path::new(WARDGATE), &words, &[]).success();
    assert!(explained.contains("in bundle 2 (sha256:"), "{explained}");
}

#[test]
fn a_directory_whose_policies_or_tests_have_a_fault_is_not_packed() {
    let publisher = BundlePublisher::new();
    publisher.write_policies("v1");
    let made = publisher.create(1, "own").success();
    let (file, key) = (publisher.path("new.bundle"), publisher.path("own.pub.pem"));
    let words = [
        "policy",
        "bundle",
        "verify",
        &file,
        "--public-key",
        &key,
        "--json",
    ];
    let verified = run(Path::new(WARDGATE), &words, &[]).success();
    assert_eq!(made, verified);
    let bytes = fs::read(&file).unwrap();
    publisher.create(1, "own").success();
    assert_eq!(
        fs::read(&file).unwrap(),
        bytes,
        "the same input gives the same file"
    );
    let other = publisher.path("other.pub.pem");
    let words = ["policy", "bundle", "verify", &file, "--public-key", &other];
    let refused = run(Path::new(WARDGATE), &words, &[]);
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.stderr.contains("not signed by a trusted key"),
        "{}",
        refused.stderr
    );

    fs::remove_file(&file).unwrap();
    for (policies, fault) in [
        ("permit (principal, action, resource)", "shifts.cedar:1"),
        ("// nobody", "a nurse reads the next shift"),
    ] {
        publisher.write("policies/shifts.cedar", policies);
        let refused = publisher.create(2, "own");
        assert_eq!(refused.code, Some(1), "{}", refused.stderr);
        assert!(refused.stderr.contains(fault), "{}", refused.stderr);
        assert!(!Path::new(&file).exists());
    }
}
