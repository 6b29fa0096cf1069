//! Tests of a witness beside the demo: checkpoints that a quorum cosigned, and the receipt of a call, at the command line.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use wardgate_testkit::{Reply, System, TestApp, WardgateProcess, run};

use super::audit_log::{verify_with, wait_until_covered};
use super::people::{doctor, of_patient};
use crate::WARDGATE;

/// An Ed25519 key in the format of `openssl genpkey` (RFC 8410).
const WITNESS_KEY: &str = "-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIAsLCwsLCwsLCwsLCwsLCwsLCwsLCwsLCwsLCwsLCwsL
-----END PRIVATE KEY-----
";

/// The demo, a witness of its log, and a policy that requires this witness or another one, whose key has an unknown type.
struct WitnessedApp {
    app: TestApp,
    key: String,
    files: TempDir,
    witness: WardgateProcess,
}

impl WitnessedApp {
    async fn start() -> Self {
        let files = TempDir::new().unwrap();
        let policy = files.path().join("policy");
        fs::write(&policy, "quorum none\n").unwrap();
        let mut app = TestApp::start_with(
            WARDGATE,
            &[
                (
                    "WARDGATE_AUDIT__WITNESSES__POLICY_FILE",
                    policy.to_str().unwrap(),
                ),
                ("WARDGATE_AUDIT__WITNESSES__PRIVATE_ADDRESSES", "true"),
            ],
        );
        call(&app).await;
        let key = wait_until_covered(&app, 1);
        fs::write(files.path().join("witness.pem"), WITNESS_KEY).unwrap();
        let config = format!(
            "witness:\n  listen: 127.0.0.1:0\n  name: witness.example/w1\n  key_file: witness.pem\n  state_dir: seen\n  logs: [\"{key}\"]\n"
        );
        let file = files.path().join("wardgate.yaml");
        fs::write(&file, config).unwrap();
        run(
            Path::new(WARDGATE),
            &["config", "check", "--config", file.to_str().unwrap()],
            &[],
        )
        .success();
        let witness = start_witness(&file);
        let witness_key = [
            "audit",
            "witness",
            "key",
            "--config",
            file.to_str().unwrap(),
        ];
        let witness_key = run(Path::new(WARDGATE), &witness_key, &[]).success();
        let url = url(&witness);
        let trust = format!(
            "log {key}\nwitness own {} {url}\nwitness new new.example+0123abcd+BgA= https://new.example\n\
             group either any own new\nquorum either\n",
            witness_key.trim()
        );
        fs::write(&policy, trust).unwrap();
        app.process.terminate();
        app.restart();
        Self {
            app,
            key,
            files,
            witness,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// Waits until a cosigned checkpoint has `size` records.
    fn wait_until_cosigned(&self, size: usize) {
        let begun = Instant::now();
        loop {
            let checkpoint = self.app.audit(&["checkpoint", "--offline", "--cosigned"]);
            if checkpoint.code == Some(0)
                && checkpoint.stdout.lines().nth(1) == Some(&size.to_string())
            {
                return;
            }
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "{}{}",
                checkpoint.stdout,
                checkpoint.stderr
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

fn start_witness(config: &Path) -> WardgateProcess {
    let arguments = ["audit", "witness", "--config", config.to_str().unwrap()];
    WardgateProcess::start(Path::new(WARDGATE), &arguments, &[])
}

/// Returns the URL at which a witness accepts checkpoints.
fn url(witness: &WardgateProcess) -> String {
    witness.ready_line().split(' ').nth(1).unwrap().to_owned()
}

async fn call(app: &TestApp) -> Reply {
    let (token, arguments) = (doctor(app), of_patient("NUGWI"));
    let client = app.client();
    client.call(&token, "get_medical_records", arguments).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a9_a_witness_of_its_own_cosigns_the_log_and_both_verifiers_want_its_quorum() {
    let mut log = WitnessedApp::start().await;
    for _ in 0..3 {
        call(&log.app).await.rows();
    }
    log.wait_until_cosigned(4);
    let policy = log.path("policy").display().to_string();
    let with_policy = ["--policy", policy.as_str()];
    let out = log.path("cosigned");
    log.app
        .audit(&[
            "export",
            "--offline",
            "--cosigned",
            "--out",
            out.to_str().unwrap(),
        ])
        .success();
    verify_with(&out, &log.key, &with_policy).unwrap();
    let proof = log.path("cosigned.tlog-proof");
    fs::write(
        &proof,
        log.app
            .audit(&["proof", "3", "--offline", "--cosigned"])
            .success(),
    )
    .unwrap();
    verify_with(&proof, &log.key, &with_policy).unwrap();
    let doctor = run(
        Path::new(WARDGATE),
        &["doctor", "--data-dir", log.app.data_dir().to_str().unwrap()],
        &[],
    );
    assert!(
        doctor.stdout.contains("checkpoint: covers 4 records"),
        "{}",
        doctor.stdout
    );
    // Without the line of the witness, or with an invalid signature in it, the quorum is missing.
    let note = fs::read_to_string(out.join("checkpoint")).unwrap();
    let (signed, cosignature) = note.split_at(note.rfind("\u{2014} witness.example/w1 ").unwrap());
    let mut forged = cosignature.as_bytes().to_vec();
    let last = forged.len() - 10;
    forged[last] = if forged[last] == b'A' { b'B' } else { b'A' };
    for wrong in [
        signed.to_owned(),
        format!("{signed}{}", String::from_utf8(forged).unwrap()),
    ] {
        fs::write(out.join("checkpoint"), wrong).unwrap();
        verify_with(&out, &log.key, &with_policy).unwrap_err();
    }
    fs::write(out.join("checkpoint"), signed).unwrap();
    verify_with(&out, &log.key, &[]).unwrap();
    // After a restart the witness continues from the last checkpoint that it saw. Meanwhile the log is signed and not cosigned.
    log.witness.kill();
    call(&log.app).await.rows();
    wait_until_covered(&log.app, 5);
    let config = log.path("wardgate.yaml");
    let address = url(&log.witness).replace("http://", "");
    let text = fs::read_to_string(&config)
        .unwrap()
        .replace("127.0.0.1:0", &address);
    fs::write(&config, text).unwrap();
    log.witness = start_witness(&config);
    log.wait_until_cosigned(5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a7_the_receipt_of_a_call_proves_its_record_and_no_other() {
    let app = TestApp::start(WARDGATE);
    let files = TempDir::new().unwrap();
    let mut answers = Vec::new();
    for number in 0..3 {
        let path = files.path().join(format!("answer{number}.json"));
        fs::write(&path, call(&app).await.json().to_string()).unwrap();
        answers.push(path.display().to_string());
    }
    let key = wait_until_covered(&app, answers.len());
    let proof = files.path().join("proof");
    for (number, answer) in answers.iter().enumerate() {
        fs::write(
            &proof,
            app.audit(&["proof", "--offline", "--receipt", answer])
                .success(),
        )
        .unwrap();
        verify_with(&proof, &key, &["--receipt", answer]).unwrap();
        let other = &answers[(number + 1) % answers.len()];
        let refused = verify_with(&proof, &key, &["--receipt", other]).unwrap_err();
        assert!(
            refused.contains("that its receipt names is missing"),
            "{refused}"
        );
    }
    // The record of this receipt is not in the log.
    let forged = fs::read_to_string(&answers[0]).unwrap();
    let at = forged.find("leafHash").unwrap() + "leafHash\":\"".len();
    let digit = if forged.as_bytes()[at] == b'0' {
        "1"
    } else {
        "0"
    };
    let forged = format!("{}{digit}{}", &forged[..at], &forged[at + 1..]);
    fs::write(&answers[0], forged).unwrap();
    let missing = app.audit(&["proof", "--offline", "--receipt", &answers[0]]);
    assert!(
        missing
            .stderr
            .contains("that its receipt names does not exist"),
        "{}",
        missing.stderr
    );
}
