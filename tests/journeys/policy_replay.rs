//! Tests of `wardgate policy replay` with recorded calls of many callers and tools.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::time::{Duration, Instant};

use aws_lc_rs::signature::Ed25519KeyPair;
use futures::{StreamExt, stream};
use serde_json::Value;
use tempfile::TempDir;
use wardgate_audit::{AuditKeys, CallingProcesses, Config, DetailsKey, LogKey, MacKey};
use wardgate_domain::{
    Ambient, CallFacts, CallId, DecisionId, Digest, Event, Outcome, Record, Status, Timestamp,
};
use wardgate_rpc::client::AuditClient;
use wardgate_rpc::{Peer, link};
use wardgate_testkit::{ProcessExit, corrupt_sqlite_index, run};

use crate::{REPOSITORY, WARDGATE};

const ROLES: [&str; 5] = ["Doctor", "Nurse", "Patient", "Billing", "Auditor"];
const TOOLS: [&str; 5] = [
    "get_patient_overview",
    "get_admissions",
    "get_appointments",
    "get_medical_records",
    "get_shifts",
];
const CALLERS: usize = 1_000;
/// The time of the first call, midnight at the beginning of a Monday.
const FIRST_CALL: i64 = 1_783_296_000;

/// `count` recorded calls, all allowed, spread evenly over callers, roles, tools, minutes and two networks.
struct RecordedCalls {
    dir: TempDir,
    count: usize,
}

impl RecordedCalls {
    async fn write(count: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let ambient = Ambient::system();
        let key = Ed25519KeyPair::generate().unwrap();
        let keys = AuditKeys {
            details: DetailsKey::from_bytes(&[9; 32]).into(),
            mac: MacKey::from_bytes(&[7; 32]),
            log: LogKey::from_pkcs8(key.to_pkcs8().unwrap().as_ref()).unwrap(),
        };
        let store = format!("sqlite:{}", dir.path().join("record.db").display());
        let process = CallingProcesses::ThisProcess;
        let opening = wardgate_audit::service(
            Config::for_store(store),
            keys,
            process,
            None,
            ambient.clone(),
        );
        let (audit, closer) = Box::pin(opening).await.unwrap();
        let audit = link::local(audit, Peer::Gateway).link;
        let audit = AuditClient::new(audit, Duration::from_secs(30));
        let calls = stream::iter(0..count).map(|number| {
            let record = outcome(number, &ambient);
            let audit = &audit;
            async move { audit.append(&record, false).await.map(drop) }
        });
        let appended = calls.buffered(256).collect::<Vec<_>>().await;
        assert!(appended.into_iter().all(|it| it.is_ok()));
        drop(audit);
        closer.close().await;
        std::fs::write(
            dir.path().join("wardgate.yaml"),
            "audit: { store: \"sqlite:record.db\" }",
        )
        .unwrap();
        Self { dir, count }
    }

    /// Returns the IDs of the calls, in the order of the record.
    fn ids(&self) -> Vec<Value> {
        let config = self.dir.path().join("wardgate.yaml").display().to_string();
        let words = [
            "audit",
            "query",
            "--offline",
            "--config",
            &config,
            "-o",
            "jsonl",
        ];
        let records = run(WARDGATE.as_ref(), &words, &[]).success();
        let id = |line: &str| serde_json::from_str::<Value>(line).unwrap()["call_id"].take();
        records.lines().map(id).collect()
    }

    /// Runs `policy replay` with the hospital's policies and `more`, and returns its report and its duration.
    fn replay(&self, more: &str) -> (Value, Duration) {
        let began = Instant::now();
        let report = self.run_replay(more, &[]).success();
        let report: Value = serde_json::from_str(&report).unwrap();
        assert_eq!(report["calls"], self.count);
        (report, began.elapsed())
    }

    /// Runs `policy replay` with the hospital's policies, `more`, and further options.
    fn run_replay(&self, more: &str, options: &[&str]) -> ProcessExit {
        let hospital = Path::new(REPOSITORY).join("deploy/examples/hospital");
        let policies = self.dir.path().join("policies");
        std::fs::create_dir_all(&policies).unwrap();
        for entry in std::fs::read_dir(hospital.join("policies")).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                std::fs::copy(&path, policies.join(path.file_name().unwrap())).unwrap();
            }
        }
        std::fs::write(policies.join("more.cedar"), more).unwrap();
        let path = |path: &Path| path.display().to_string();
        let (policies, tools) = (path(&policies), path(&hospital.join("tools.yaml")));
        let config = path(&self.dir.path().join("wardgate.yaml"));
        let words = ["policy", "replay", "--with", &policies, "--tools", &tools];
        let words = [
            &words[..],
            &["--offline", "--config", &config, "-o", "json"],
            options,
        ]
        .concat();
        run(WARDGATE.as_ref(), &words, &[])
    }
}

fn outcome(number: usize, ambient: &Ambient) -> Record {
    let minute = i64::try_from(number).unwrap() * 7 % (14 * 24 * 60);
    let call = CallFacts {
        call_id: CallId::new(ambient),
        issuer: "https://issuer.example".to_owned(),
        subject: format!("person.{}", number % CALLERS),
        tenant: String::new(),
        roles: vec![ROLES[number % ROLES.len()].to_owned()],
        token_id: "t".to_owned(),
        client_ip: format!("10.{}.0.7", 20 + number / 5 % 2),
        protocol: "2026-07-28".to_owned(),
        requested_tool: TOOLS[number / CALLERS % TOOLS.len()].to_owned(),
        tool: TOOLS[number / CALLERS % TOOLS.len()].parse().ok(),
        definition_digest: None,
        tags: None,
        arguments_digest: Digest::compute(b"arguments"),
        decision_id: Some(DecisionId::new(ambient)),
        policy_hash: Some(Digest::compute(b"policies")),
        bundle: None,
        policies: vec!["some".to_owned()],
        permit_id: None,
        method: String::new(),
        approval_id: None,
        conversation: None,
    };
    let outcome = Outcome {
        call,
        status: Status::Ok,
        reason: String::new(),
        rows: 10,
        rows_withheld: 0,
        fields_redacted: 20,
        phi: true,
        result_digest: Some(Digest::compute(b"result")),
        duration: Duration::from_millis(2),
        details: None,
    };
    Record {
        time: Timestamp::from_seconds(FIRST_CALL + minute * 60),
        event: Event::Outcome(outcome),
    }
}

/// Policies that permit clinical tools only in office hours and from one network.
const OFFICE_HOURS: &str = r#"
@id("closed") forbid (principal, action == Action::"call_tool", resource in Tag::"clinical")
unless { context.local.weekday <= 5 && context.local.minute >= 420 && context.local.minute < 1140 };
@id("far") forbid (principal, action == Action::"call_tool", resource in Tag::"clinical")
unless { context has client_ip && context.client_ip.isInRange(ip("10.20.0.0/16")) };
"#;

/// Returns the number of calls that change to a denial, for each set of deciding policies.
fn flips(report: &Value) -> Vec<(String, usize)> {
    let mut counted = BTreeMap::new();
    for flip in report["flips"].as_array().unwrap() {
        assert_eq!([&flip["was"], &flip["is"]], ["allowed", "denied"]);
        *counted.entry(flip["policies"].to_string()).or_default() += 1;
    }
    counted.into_iter().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn many_recorded_calls_are_decided_anew_each_at_its_own_time() {
    let calls = RecordedCalls::write(6_000).await;
    let (report, _) = calls.replay("");
    let undetermined: u64 = report["undetermined"]
        .as_object()
        .unwrap()
        .values()
        .map(|count| count.as_u64().unwrap())
        .sum();
    let flipped = report["flips"].as_array().unwrap().len() as u64;
    assert_eq!(
        report["same"].as_u64().unwrap() + undetermined + flipped,
        6_000
    );
    // Auditors may call no tool, and the others not all of them.
    let forbidden = ("[\"auditor-calls-no-tool\"]".to_owned(), 1_200);
    assert!(flips(&report).contains(&forbidden), "{:?}", flips(&report));

    let (at_hours, _) = calls.replay(OFFICE_HOURS);
    let by = |policies: &[&str]| {
        let policies = serde_json::to_string(policies).unwrap();
        let found = flips(&at_hours);
        let count = found.iter().find(|(by, _)| *by == policies);
        count.map_or(0, |(_, count)| *count)
    };
    assert!(by(&["closed"]) > 0 && by(&["far"]) > 0 && by(&["closed", "far"]) > 0);
    assert!(at_hours["same"].as_u64() < report["same"].as_u64());
    let flipped = at_hours["flips"].as_array().unwrap().iter();
    let flipped: Vec<_> = flipped.map(|flip| &flip["call_id"]).collect();
    let by_id: HashSet<_> = flipped.iter().map(ToString::to_string).collect();
    let mut recorded = calls.ids();
    recorded.retain(|id| by_id.contains(&id.to_string()));
    assert!(recorded.iter().eq(flipped), "in the order of the record");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_corrupt_index_is_a_warning_because_every_call_is_decided_anew() {
    let calls = RecordedCalls::write(40).await;
    corrupt_sqlite_index(&calls.dir.path().join("record.db"), "record_time").await;
    let replay = calls.run_replay("", &["--since", "2026-07-01T00:00:00Z"]);
    let is_told = replay
        .stderr
        .contains("an index of the database is corrupt");
    assert!(is_told, "{}", replay.stderr);
    let report: Value = serde_json::from_str(&replay.success()).unwrap();
    assert_eq!(report["calls"], 40);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "it measures, on a record that takes a while to write: `make bench`"]
async fn a_hundred_thousand_recorded_calls_are_decided_anew_within_ten_seconds() {
    let calls = RecordedCalls::write(100_000).await;
    for (policies, more) in [("hospital", ""), ("hospital at office hours", OFFICE_HOURS)] {
        let (report, took) = calls.replay(more);
        println!(
            "{policies}: {took:?}, {} the same, {} flips, {} undetermined",
            report["same"],
            report["flips"].as_array().unwrap().len(),
            report["undetermined"]
        );
        assert!(took < Duration::from_secs(10), "{took:?}");
    }
}
