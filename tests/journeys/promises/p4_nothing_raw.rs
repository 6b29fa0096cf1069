//! Tests of P4: the record, logs, metrics and traces contain no raw data.

use serde_json::json;
use wardgate_testkit::{Client, System, TestApp};

use super::super::bad_bodies::bad_bodies;
use super::super::collector::collector;
use super::super::extra_tools::{Counter, LOOK_OFTEN};
use super::super::people::{auditor, billing, doctor, nurse, of_patient, patient};
use crate::WARDGATE;

/// Returns the content of every file of the record.
fn record_bytes(app: &TestApp) -> Vec<u8> {
    let files = std::fs::read_dir(app.data_dir())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let record = files.filter(|path| {
        path.file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .starts_with("audit.sqlite")
    });
    record
        .flat_map(|path| std::fs::read(path).unwrap())
        .collect()
}

/// Texts from requests or from the database, which must not be found elsewhere.
const RAW: [&str; 16] = [
    "Nuria",
    "Gwilym",
    "Omar Aziz",
    "Hypertension",
    "Lisinopril",
    "Stage 2",
    "Alder Street",
    "HP-4711",
    "206 555 0142",
    "Penicillin",
    "1968-",
    "NUGWI",
    "NOGWI",
    "DOSRO",
    "CANARYCODE",
    "canary",
];

/// Makes valid, invalid and denied requests of everyone, most of them with a canary.
async fn session(client: &Client, tokens: &[String]) {
    let tools = [
        "get_patient_overview",
        "get_medical_records",
        "get_patient_admissions",
        "get_appointments",
    ];
    let arguments = [
        json!({ "patient_id": "NUGWI", "canary_argument": "canary-value" }),
        json!({ "patient_id": ["canary-value"], "limit": "canary-value" }),
        json!({ "note": "canary-note" }),
    ];
    let header = [("x-canary", "canary-header")];
    for token in tokens {
        for (tool, code) in tools.iter().flat_map(|tool| CODES.map(|code| (tool, code))) {
            client.call(token, tool, of_patient(code)).await;
        }
        for arguments in &arguments {
            client
                .call(token, "get_medical_records", arguments.clone())
                .await;
            client.call(token, "count_up", arguments.clone()).await;
        }
        client
            .post("/message", Some(token), &[], r#"{"canary-body":"#)
            .await;
        client
            .post("/mcp", Some(&format!("{token}canary-token")), &[], "{}")
            .await;
        client.send("GET", "/mcp?canary-query=1", &header, "").await;
        client.send("GET", "/canary-path", &[], "").await;
    }
    for case in bad_bodies() {
        client.post("/mcp", Some(&tokens[0]), &[], case.body).await;
    }
}

const CODES: [&str; 4] = ["NUGWI", "NOGWI", "DOSRO", "CANARYCODE"];

// Two threads are needed because the collector must respond while this test waits for the process to end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p4_nothing_raw_in_record_logs_metrics_or_traces() {
    let (url, traces) = collector().await;
    let environment = [
        ("WARDGATE_TELEMETRY__LOG", "debug"),
        ("WARDGATE_TELEMETRY__OTLP_ENDPOINT", url.as_str()),
        LOOK_OFTEN,
    ];
    let mut app = TestApp::start_with(WARDGATE, &environment);
    let mut counter = Counter::add_to(&app).await;
    let tokens = [
        doctor(&app),
        nurse(&app),
        billing(&app),
        patient(&app),
        auditor(&app),
    ];
    session(app.client(), &tokens).await;
    let written = counter.notes().await;
    assert_eq!(
        written, ["canary-note"; 2],
        "a doctor's and a nurse's canary was alive"
    );

    let metrics = app.metrics().await;
    let record = record_bytes(&app);
    assert_eq!(app.process.terminate().code(), Some(0));
    let (log, traces) = (app.process.log(), traces.lock().unwrap().clone());
    let looked_into = [
        (
            "the record",
            String::from_utf8_lossy(&record).into_owned(),
            "billing.ruiz",
        ),
        (
            "the record, closed",
            String::from_utf8_lossy(&record_bytes(&app)).into_owned(),
            "billing.ruiz",
        ),
        ("the log", log, "DEBUG"),
        ("the metrics", metrics, "wardgate_tool_calls_total"),
        (
            "the traces",
            String::from_utf8_lossy(&traces).into_owned(),
            "tools/call",
        ),
    ];
    for (place, text, expected) in &looked_into {
        assert!(text.contains(expected), "{place} held something");
        let signatures = tokens.iter().map(|token| token.rsplit('.').next().unwrap());
        for raw in RAW.into_iter().chain(signatures) {
            let line = text.lines().find(|line| line.contains(raw));
            assert_eq!(line, None, "{raw} is in {place}");
        }
    }
}
