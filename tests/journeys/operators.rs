//! Tests of the access of an auditor to the record of a running system, with a token, as the policy permits, and on record.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;
use wardgate_testkit::{ProcessExit, SeparateProcesses, System, TestApp, run, until};

use super::audit_log::verify_with;
use super::bad_tokens::Forge;
use super::people::{auditor, column, doctor, of_patient};
use crate::{REPOSITORY, WARDGATE};

/// A directory of token files.
struct Tokens(TempDir);

impl Tokens {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn write_file(&self, name: &str, token: &str) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, format!("{token}\n")).unwrap();
        path
    }
}

/// The address of the system, and the token of a reader.
struct Reader {
    reach: [String; 2],
    token: PathBuf,
}

impl Reader {
    fn for_system(system: &impl System, token: PathBuf) -> Self {
        let reach = [
            "--data-dir".to_owned(),
            system.data_dir().display().to_string(),
        ];
        Self { reach, token }
    }

    fn words<'a>(&'a self, words: &[&'a str]) -> Vec<&'a str> {
        let own = [&self.reach[0], &self.reach[1], "--token-file"];
        [&["audit"], words, &own, &[self.token.to_str().unwrap()]].concat()
    }

    fn audit(&self, words: &[&str]) -> ProcessExit {
        run(Path::new(WARDGATE), &self.words(words), &[])
    }

    fn lines(&self, words: &[&str]) -> Vec<Value> {
        let text = self
            .audit(&[&["query", "-o", "jsonl"], words].concat())
            .success();
        let lines = text.lines().map(serde_json::from_str);
        lines.collect::<Result<_, _>>().unwrap()
    }

    /// Runs `audit tail -f` until the value is dropped.
    fn follow(&self, words: &[&str]) -> FollowedRecord {
        let words = [&["tail", "-f", "-o", "jsonl"], words].concat();
        let mut child = Command::new(WARDGATE)
            .args(self.words(&words))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        FollowedRecord { child, lines }
    }
}

struct FollowedRecord {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl FollowedRecord {
    fn next(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }
}

impl Drop for FollowedRecord {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn call(system: &impl System) {
    let (token, arguments) = (doctor(system), of_patient("NUGWI"));
    let reply = system
        .client()
        .call(&token, "get_medical_records", arguments);
    reply.await.rows();
}

#[tokio::test]
async fn an_auditor_reads_the_record_of_a_running_system_and_that_is_on_record() {
    let app = TestApp::start(WARDGATE);
    let tokens = Tokens::new();
    call(&app).await;
    let lee = Reader::for_system(&app, tokens.write_file("lee", &auditor(&app)));
    assert_eq!(column(&lee.lines(&[]), "user"), ["dr.yenji"]);
    // The result is the same as for a reader with access to the files.
    let by_files = app.records_with(&["--details", "--limit", "1"]);
    assert_eq!(lee.lines(&["--details", "--limit", "1"]), by_files);
    let table = lee.audit(&["query", "--subject", "NUGWI"]).success();
    assert!(
        table
            .lines()
            .nth(1)
            .unwrap()
            .contains("get_medical_records"),
        "{table}"
    );
    let csv = lee
        .audit(&["query", "-o", "csv", "--user", "dr.yenji"])
        .success();
    let row = csv.lines().nth(1).unwrap();
    assert!(
        row.starts_with("0,2") && row.contains(",outcome,dr.yenji,LLM_TOOL_CALL,"),
        "{csv}"
    );

    let own = app.records_with(&["--user", "auditor.lee"]);
    assert_eq!(column(&own, "action"), ["audit.query"; 4]);
    assert_eq!(own[0]["target"], "all");
    assert_eq!(
        own[0]["caller"]["issuer"],
        "https://issuer.wardgate.internal"
    );
    assert_eq!(own[1]["target"], "limit=1 details");
    let subject = own[2]["target"].as_str().unwrap();
    assert!(
        subject.starts_with("subject=hmac:") && !subject.contains("NUGWI"),
        "{subject}"
    );
}

#[tokio::test]
async fn whoever_the_policy_does_not_let_reads_nothing_of_a_running_system() {
    let app = TestApp::start(WARDGATE);
    let tokens = Tokens::new();
    call(&app).await;
    let forge = Forge::with_key_of(&app);
    let auditor = |claims: &mut Value| {
        claims["sub"] = json!("auditor.lee");
        claims["roles"] = json!(["Auditor"]);
    };
    let forged = |claim: &'static str, value: Value| {
        forge.token(
            |_| {},
            |claims| {
                auditor(claims);
                claims[claim] = value;
            },
        )
    };
    for (name, token, answer) in [
        (
            "doctor",
            doctor(&app),
            "no policy permits `dr.yenji` to read the record",
        ),
        ("expired", forged("exp", json!(1_000_000_000)), "expired"),
        ("elsewhere", forged("aud", json!("elsewhere")), "audience"),
        ("none", String::new(), "an operator must send a token"),
        ("garbage", "garbage".to_owned(), "cannot be verified"),
    ] {
        let reader = Reader::for_system(&app, tokens.write_file(name, &token));
        for words in [
            &["query"][..],
            &["checkpoint"],
            &["proof", "0"],
            &["query", "--follow"],
        ] {
            let refused = reader.audit(words);
            assert_eq!(refused.code, Some(1), "{name}: {}", refused.stdout);
            assert!(
                refused.stderr.contains(answer),
                "{name}: {}",
                refused.stderr
            );
            assert!(!refused.stdout.contains("yenji"), "{}", refused.stdout);
        }
    }
    // The attempts are on record with the users of the tokens.
    let records = app.records();
    let denied: Vec<_> = records[1..]
        .iter()
        .map(|it| (&it["user"], &it["status"]))
        .collect();
    assert_eq!(denied, [(&json!("dr.yenji"), &json!("denied")); 4]);
    // `--follow` requires a running system.
    assert_eq!(app.query(&["--follow"]).code, Some(2));
}

#[tokio::test]
async fn without_a_token_nobody_reads_the_record_unless_they_ask_for_the_store_itself() {
    let app = TestApp::start(WARDGATE);
    call(&app).await;
    let files = TempDir::new().unwrap();
    let data_dir = app.data_dir().display().to_string();
    let audit = |token: &str, words: &[&str]| {
        let words = [&["audit"], words, &["--data-dir", &data_dir]].concat();
        let environment = [
            ("WARDGATE_TOKEN", token),
            ("WARDGATE_CONFIG_DIR", files.path().to_str().unwrap()),
        ];
        run(Path::new(WARDGATE), &words, &environment)
    };
    let out = files.path().join("export");
    for words in [
        &["query"][..],
        &["query", "--follow"],
        &["checkpoint"],
        &["proof", "0"],
        &["export", "--out", out.to_str().unwrap()],
    ] {
        let refused = audit("", words);
        assert_eq!((refused.code, refused.stdout.as_str()), (Some(1), ""));
        for way in [
            "wardgate login",
            "--token-file",
            "WARDGATE_TOKEN",
            "--offline",
        ] {
            assert!(refused.stderr.contains(way), "{}", refused.stderr);
        }
    }
    assert!(!out.exists());
    let query = ["query", "--offline", "-o", "jsonl"];
    assert_eq!(audit("", &query).success().lines().count(), 1);

    let table = audit(&auditor(&app), &["query"]).success();
    assert!(table.contains("dr.yenji"), "{table}");
    let refused = audit(&doctor(&app), &["query"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(1), ""));
    assert!(
        refused
            .stderr
            .contains("no policy permits `dr.yenji` to read the record"),
        "{}",
        refused.stderr
    );
    let records = app.records();
    assert_eq!(
        column(&records[1..], "action"),
        ["audit.query", "audit.query"]
    );
    assert_eq!(column(&records[1..], "user"), ["auditor.lee", "dr.yenji"]);
    assert_eq!(
        column(&records[1..], "status"),
        [&Value::Null, &json!("denied")]
    );
}

#[tokio::test]
async fn recorded_calls_are_explained_and_replayed_as_the_policy_permits_and_that_is_on_record() {
    let app = TestApp::start(WARDGATE);
    call(&app).await;
    let call_id = app.records()[0]["call_id"].as_str().unwrap().to_owned();
    let policies = app.example_dir().join("policies").display().to_string();
    let explain = ["policy", "explain", &policies, "--call", &call_id];
    let replay = ["policy", "replay", "--with", &policies];
    let files = TempDir::new().unwrap();
    let data_dir = app.data_dir().display().to_string();
    let run_with = |token: &str, words: &[&str], options: &[&str]| {
        let words = [words, &["--data-dir", &data_dir], options].concat();
        let environment = [
            ("WARDGATE_TOKEN", token),
            ("WARDGATE_CONFIG_DIR", files.path().to_str().unwrap()),
        ];
        run(Path::new(WARDGATE), &words, &environment)
    };
    let (lee, yenji) = (auditor(&app), doctor(&app));
    let explained = run_with(&lee, &explain, &[]).success();
    assert!(
        explained.starts_with("recorded: allowed by "),
        "{explained}"
    );
    let replayed = run_with(&lee, &replay, &[]).success();
    assert!(replayed.contains(" of 1 calls would change"), "{replayed}");

    for words in [&explain[..], &replay] {
        let refused = run_with(&yenji, words, &[]);
        assert_eq!((refused.code, refused.stdout.as_str()), (Some(1), ""));
        assert!(
            refused
                .stderr
                .contains("no policy permits `dr.yenji` to read the record"),
            "{}",
            refused.stderr
        );
        let unknown = run_with("", words, &[]);
        assert_eq!((unknown.code, unknown.stdout.as_str()), (Some(1), ""));
        assert!(unknown.stderr.contains("--offline"), "{}", unknown.stderr);
        run_with("", words, &["--offline"]).success();
    }
    let accesses = app.records().split_off(1);
    assert_eq!(column(&accesses, "action"), ["audit.query"; 4]);
    assert_eq!(accesses[0]["target"], format!("call_id={call_id}"));
    assert_eq!(accesses[1]["target"], "all");
    let users = ["auditor.lee", "auditor.lee", "dr.yenji", "dr.yenji"];
    assert_eq!(column(&accesses, "user"), users);
    let (none, denied) = (&Value::Null, &json!("denied"));
    assert_eq!(column(&accesses, "status"), [none, none, denied, denied]);
}

#[tokio::test]
async fn proofs_and_exports_of_a_running_system_verify_offline() {
    let app = TestApp::start(WARDGATE);
    let tokens = Tokens::new();
    call(&app).await;
    let lee = Reader::for_system(&app, tokens.write_file("lee", &auditor(&app)));
    let call_id = lee.lines(&[])[0]["call_id"].as_str().unwrap().to_owned();
    let proof = until("a checkpoint covers the call", async || {
        let proof = lee.audit(&["proof", &call_id]);
        (proof.code == Some(0)).then_some(proof.stdout)
    })
    .await;
    let key = app.audit(&["key"]).success();
    let file = tokens.write_file("call.tlog-proof", "");
    std::fs::write(&file, proof).unwrap();
    verify_with(&file, key.trim(), &[]).unwrap();
    let kept = tokens.write_file("kept", "");
    std::fs::write(&kept, lee.audit(&["checkpoint"]).success()).unwrap();
    let out = tokens.0.path().join("export");
    lee.audit(&["export", "--out", out.to_str().unwrap()])
        .success();
    verify_with(&out, key.trim(), &[]).unwrap();
    let kept = kept.to_str().unwrap();
    let verify = [
        "audit",
        "verify",
        out.to_str().unwrap(),
        "--key",
        key.trim(),
        "--since",
        kept,
    ];
    run(Path::new(WARDGATE), &verify, &[]).success();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_auditor_follows_the_record_of_separate_services_while_the_policy_answers() {
    let mut system = SeparateProcesses::start(WARDGATE, REPOSITORY.as_ref()).await;
    let tokens = Tokens::new();
    call(&system).await;
    let config = system.config().display().to_string();
    let lee = Reader {
        reach: ["--config".to_owned(), config],
        token: tokens.write_file("lee", &auditor(&system)),
    };
    let mut following = lee.follow(&["--user", "dr.yenji", "--since", "2020-01-01"]);
    let earlier = [following.next(), following.next()];
    assert_eq!(column(&earlier, "event"), ["execution", "outcome"]);
    call(&system).await;
    let new = [following.next(), following.next()];
    assert_eq!(column(&new, "event"), ["execution", "outcome"]);
    let own = system.records_with(&["--user", "auditor.lee"]);
    assert_eq!(column(&own, "action"), ["audit.watch"]);

    tokio::task::block_in_place(|| system.policy.kill());
    let refused = lee.audit(&["query"]);
    assert_eq!(refused.code, Some(1), "{}", refused.stdout);
    assert!(
        refused
            .stderr
            .contains("the policy service cannot decide now"),
        "{}",
        refused.stderr
    );
    assert_eq!(system.records_with(&["--user", "auditor.lee"]).len(), 1);
}

#[tokio::test]
async fn an_operator_holds_and_erases_the_details_of_a_patient_and_applies_retention_on_record() {
    let app = TestApp::start(WARDGATE);
    let tokens = Tokens::new();
    call(&app).await;
    let manager = app.token("records.oak", "RecordManager", &[]);
    let oak = Reader::for_system(&app, tokens.write_file("oak", &manager));
    let lee = Reader::for_system(&app, tokens.write_file("lee", &auditor(&app)));
    let details =
        || app.records_with(&["--details", "--status", "ok"]).remove(0)["details"].clone();
    assert!(details().is_object());
    // The right to read does not include the right to erase, and vice versa.
    assert_eq!(lee.audit(&["erase", "--subject", "NUGWI"]).code, Some(1));
    assert_eq!(oak.audit(&["query"]).code, Some(1));
    oak.audit(&["retention", "--hold", "case-7", "--subject", "NUGWI"])
        .success();
    let held = oak.audit(&["erase", "--subject", "NUGWI"]);
    assert_eq!(held.code, Some(1));
    assert!(
        held.stderr.contains("the legal hold `case-7`"),
        "{}",
        held.stderr
    );
    let shown = lee.audit(&["retention"]).success();
    assert!(
        shown.contains("case-7: data subject hmac:") && shown.contains("2192 days"),
        "{shown}"
    );
    assert!(details().is_object());
    oak.audit(&["retention", "--lift", "case-7"]).success();
    oak.audit(&["erase", "--subject", "NUGWI"]).success();
    assert!(!details().is_object());
    // No record is six years old.
    let applied = oak.audit(&["retention", "--apply"]).success();
    assert!(
        applied.contains("the records below 0 were removed"),
        "{applied}"
    );
    let shown: Value =
        serde_json::from_str(&lee.audit(&["retention", "-o", "json"]).success()).unwrap();
    assert_eq!(
        (&shown["removed_below"], &shown["holds"]),
        (&json!(0), &json!([]))
    );
    let own = app.records_with(&["--user", "records.oak"]);
    let expected = [
        "audit.query",
        "audit.hold",
        "audit.erase",
        "audit.erase",
        "audit.lift_hold",
        "audit.erase",
        "audit.prune",
    ];
    assert_eq!(column(&own, "action"), expected);
}

#[tokio::test]
async fn calls_go_on_while_the_details_key_is_replaced_and_a_patient_is_still_found_and_erased() {
    let mut app = TestApp::start(WARDGATE);
    call(&app).await;
    assert!(app.process.terminate().success(), "{}", app.process.log());
    let keys = app.data_dir().join("keys");
    let former = keys.join("audit-details-former.key");
    std::fs::rename(keys.join("audit-details.key"), &former).unwrap();
    app.restart();
    call(&app).await;

    let dir = app.data_dir().display().to_string();
    let rekey = || {
        let arguments = ["audit", "rekey", "--data-dir", &dir];
        run(Path::new(WARDGATE), &arguments, &[]).success()
    };
    let moved = rekey();
    assert!(
        moved.starts_with("moved to the current key: 2 keys of data subjects"),
        "{moved}"
    );
    call(&app).await;
    let again = rekey();
    assert!(again.contains("under the current key already"), "{again}");

    assert!(app.process.terminate().success(), "{}", app.process.log());
    std::fs::remove_file(former).unwrap();
    app.restart();
    let of_nugwi = || app.records_with(&["--subject", "NUGWI"]);
    let readable = |records: &[Value]| {
        let details = records.iter().map(|record| record["details"].is_object());
        details.collect::<Vec<_>>()
    };
    assert_eq!(readable(&of_nugwi()), [true; 3]);
    let tokens = Tokens::new();
    let manager = app.token("records.oak", "RecordManager", &[]);
    let oak = Reader::for_system(&app, tokens.write_file("oak", &manager));
    oak.audit(&["erase", "--subject", "NUGWI"]).success();
    assert_eq!(readable(&of_nugwi()), [false; 3]);
}
