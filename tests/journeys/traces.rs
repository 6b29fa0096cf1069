//! One call is one trace, which goes on from its client's.

use wardgate_testkit::{System, TestApp};

use crate::WARDGATE;
use crate::journeys::collector::collector;
use crate::journeys::people::doctor;

/// A call of a client in the trace with this id, which it names in the message, and by headers.
async fn call(app: &TestApp, id: u128, headers: &[(&str, &str)]) {
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

// Two threads: the collector must answer while this test waits for the process to end.
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
