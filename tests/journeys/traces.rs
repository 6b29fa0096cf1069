//! Tests that a call is one trace, which continues the trace of its client.

use wardgate_testkit::{SeparateProcesses, System, TestApp};

use crate::journeys::collector::collector;
use crate::journeys::extra_tools::LOG_RUNS;
use crate::journeys::people::doctor;
use crate::{REPOSITORY, WARDGATE};

/// Makes a call in the trace with this ID, which the message names, and with these headers.
async fn call(app: &impl System, id: u128, headers: &[(&str, &str)]) {
    let version = ("mcp-protocol-version", "2026-07-28");
    let named = [
        ("mcp-method", "tools/call"),
        ("mcp-name", "get_medical_records"),
    ];
    let headers = [&[version][..], &named, headers].concat();
    let body = serde_json::json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "get_medical_records", "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "traceparent": parent(id),
        }},
    });
    let token = doctor(app);
    let client = app.client();
    let answer = client
        .post("/mcp", Some(&token), &headers, body.to_string())
        .await;
    assert_eq!(answer.status, 200, "{}", answer.body);
}

fn parent(id: u128) -> String {
    format!("00-{id:032x}-00f067aa0ba902b7-01")
}

// Two threads are needed because the collector must respond while this test waits for the process to end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_goes_on_with_the_trace_of_its_message_unless_a_header_names_one() {
    let (url, traces) = collector().await;
    let environment = [("WARDGATE_TELEMETRY__OTLP_ENDPOINT", url.as_str())];
    let mut app = TestApp::start_with(WARDGATE, &environment);
    let [of_message, of_header, hidden] = [7_u128, 8, 9].map(|number| (number << 64) | 0xace);
    call(&app, of_message, &[]).await;
    call(&app, hidden, &[("traceparent", &parent(of_header))]).await;
    assert_eq!(app.process.terminate().code(), Some(0));
    let traces = traces.lock().unwrap().clone();
    let has = |id: u128| traces.windows(16).any(|bytes| bytes == id.to_be_bytes());
    assert!(has(of_message), "the trace that the message names");
    assert!(has(of_header), "the trace that the header names");
    assert!(!has(hidden), "headers come first");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_is_one_trace_through_every_process_and_its_log_lines_say_which() {
    let (url, traces) = collector().await;
    let environment = [
        ("WARDGATE_TELEMETRY__OTLP_ENDPOINT", url.as_str()),
        ("WARDGATE_TELEMETRY__LOG_FORMAT", "json"),
        LOG_RUNS,
    ];
    let mut system =
        SeparateProcesses::start_with(WARDGATE, REPOSITORY.as_ref(), &environment).await;
    let id = (7_u128 << 64) | 0xace;
    call(&system, id, &[]).await;
    for process in [
        &mut system.gateway,
        &mut system.tool_runner,
        &mut system.policy,
        &mut system.audit,
    ] {
        assert_eq!(process.terminate().code(), Some(0), "{}", process.log());
    }
    let traces = traces.lock().unwrap().clone();
    for service in ["gateway", "policy", "tool-runner", "audit"] {
        let name = format!("wardgate-{service}");
        let exported = sent_by(&traces, &name);
        let is_in = exported.windows(16).any(|bytes| bytes == id.to_be_bytes());
        assert!(is_in, "the trace goes through the {service}");
    }
    let line = format!(r#""trace_id":"{id:032x}""#);
    for process in [&system.gateway, &system.tool_runner] {
        let log = process.log();
        assert!(log.contains(&line), "{line} in {log}");
    }
}

/// Returns the exported bytes of the service of this name. Each export begins with the name of its service.
fn sent_by(traces: &[u8], name: &str) -> Vec<u8> {
    const KEY: &[u8] = b"service.name";
    let starts: Vec<_> = (0..traces.len())
        .filter(|at| traces[*at..].starts_with(KEY))
        .chain([traces.len()])
        .collect();
    let exports = starts.windows(2).map(|ends| &traces[ends[0]..ends[1]]);
    let own = exports.filter(|export| {
        let head = &export[..export.len().min(64)];
        head.windows(name.len())
            .any(|bytes| bytes == name.as_bytes())
    });
    own.flatten().copied().collect()
}
