//! Tests of `wardgate doctor`, which reports healthy components as healthy and names the broken ones.

use std::collections::BTreeSet;

use serde_json::Value;
use wardgate_testkit::{ProcessExit, SeparateProcesses, System, TestApp, run};

use crate::{REPOSITORY, WARDGATE};

/// All services of the demo, which includes an agent.
const SERVICES: [&str; 6] = [
    "gateway",
    "policy",
    "tool-runner",
    "audit",
    "memory",
    "operator",
];

fn examine(system: &SeparateProcesses) -> (ProcessExit, Vec<Value>) {
    let config = system.config().display().to_string();
    let mut words = vec!["doctor", "-o", "jsonl", "--config", &config];
    words.extend(SERVICES.iter().flat_map(|name| ["--service", name]));
    let ended = run(system.binary(), &words, &[]);
    let findings = ended.stdout.lines();
    let findings = findings
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    (ended, findings)
}

#[tokio::test]
async fn the_age_of_every_key_in_use_is_measured_and_told() {
    let app = TestApp::start(WARDGATE);
    let metrics = app.probes().get("/metrics").await.body;
    let mut measured = metrics
        .lines()
        .filter(|line| line.starts_with("wardgate_secret_file_modified_timestamp_seconds{"));
    let keys = "permit.pem pseudonym.key audit-mac.key audit-log.pem audit-details.key memory.key session.key";
    for key in keys.split(' ') {
        let file = app.data_dir().join("keys").join(key);
        let label = format!("file=\"{}\"", file.display());
        let line = measured.clone().find(|line| line.contains(&label));
        assert!(
            line.is_some_and(|it| it.contains("kind=\"key\"")),
            "{key}: {metrics}"
        );
    }
    assert!(measured.all(|line| !line.ends_with(" 0")), "{metrics}");
    let dir = app.data_dir().display().to_string();
    let told = run(app.binary(), &["doctor", "--data-dir", &dir], &[]).success();
    assert!(
        told.contains("memory.key can be used, and is 0 days old"),
        "{told}"
    );
}

fn failed_findings(findings: &[Value]) -> Vec<&Value> {
    let failed = findings.iter().filter(|it| it["verdict"] == "fail");
    failed.collect()
}

#[tokio::test]
async fn the_doctor_finds_nothing_wrong_where_nothing_is_and_names_what_breaks() {
    let mut system = SeparateProcesses::start(WARDGATE, REPOSITORY.as_ref()).await;
    let (ended, findings) = examine(&system);
    assert!(failed_findings(&findings).is_empty(), "{}", ended.stdout);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let checks: BTreeSet<&str> = findings
        .iter()
        .map(|it| it["check"].as_str().unwrap())
        .collect();
    let all = "certificate clock configuration edge issuers key log neighbour record store version";
    assert_eq!(checks, all.split(' ').collect());
    let room = findings.iter().find(|it| it["subject"] == "room").unwrap();
    assert_eq!(room["verdict"], "ok", "{room}");
    assert!(
        room["message"].as_str().unwrap().starts_with("uses "),
        "{room}"
    );
    let served = findings.iter().filter(|it| {
        let subject = it["subject"].as_str().unwrap();
        it["check"] == "certificate" && subject.starts_with("served by audit at 127.0.0.1:")
    });
    assert_eq!(served.count(), 1, "{}", ended.stdout);

    system.audit.kill();
    system.until_ready(false).await;
    let (ended, findings) = examine(&system);
    assert_eq!(ended.code, Some(1));
    let failed = failed_findings(&findings);
    let names = |check, subject| {
        let mut of = failed.iter().filter(|it| it["check"] == check);
        of.any(|it| {
            it["subject"].as_str().unwrap().starts_with(subject) && it["remedy"].is_string()
        })
    };
    assert!(names("neighbour", "audit at 127.0.0.1:"), "{failed:?}");
    assert!(names("edge", "gateway at http://127.0.0.1:"), "{failed:?}");
    assert!(names("record", "gateway to audit"), "{failed:?}");
}

#[tokio::test]
async fn the_doctor_reads_the_data_directory_of_a_running_system() {
    let app = TestApp::start(WARDGATE);
    let dir = app.data_dir().display().to_string();
    let ended = run(app.binary(), &["doctor", "--data-dir", &dir], &[]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    std::fs::write(app.data_dir().join("keys/audit-mac.key"), "no key").unwrap();
    let ended = run(app.binary(), &["doctor", "--data-dir", &dir], &[]);
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.stdout.contains("audit-mac.key is not"),
        "{}",
        ended.stdout
    );
}

#[tokio::test]
async fn the_doctor_knows_a_configuration_of_up_with_its_data_directory_and_files() {
    let app = TestApp::start(WARDGATE);
    let (dir, config) = (app.data_dir(), app.example_dir().join("wardgate.yaml"));
    let examine = |dir: &std::path::Path| {
        let (dir, config) = (dir.display().to_string(), config.display().to_string());
        let words = ["doctor", "--config", &config, "--data-dir", &dir];
        let environment = [("HOSPITAL_DB_URL", "sqlite:hospital.sqlite")];
        run(app.binary(), &words, &environment)
    };
    let well = examine(&dir);
    assert_eq!(well.code, Some(0), "{}{}", well.stdout, well.stderr);
    for check in [
        "configuration",
        "files",
        "data directory",
        "store",
        "record",
        "key",
    ] {
        assert!(
            well.stdout.contains(&format!("ok    {check}")),
            "{check}: {}",
            well.stdout
        );
    }
    let unstarted = examine(&dir.join("elsewhere"));
    assert_eq!(unstarted.code, Some(0), "{}", unstarted.stdout);
    assert!(
        unstarted.stdout.contains("does not exist yet"),
        "{}",
        unstarted.stdout
    );
    let policies = app.example_dir().join("policies/doctor.cedar");
    std::fs::write(policies, "permitt (principal, action, resource);").unwrap();
    let ill = examine(&dir);
    assert_eq!(ill.code, Some(1));
    assert!(ill.stdout.contains("doctor.cedar:1:"), "{}", ill.stdout);
}
