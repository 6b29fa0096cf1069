//! Tests of `wardgate stdio` with clients of either era.

use serde_json::{Value, json};
use wardgate_testkit::{StdioClient, System, TestApp};

use super::people::{column, doctor, nurse, of_patient, tool_manager};
use crate::WARDGATE;

/// Starts a bridge to the gateway of `app`, with a token from a file.
fn bridge(app: &TestApp, token: &str) -> StdioClient {
    let file = app.data_dir().join("my.token");
    std::fs::write(&file, token).unwrap();
    let file = file.display().to_string();
    let options = ["--url", app.client().base(), "--token-file", &file];
    StdioClient::start(app.binary(), &options, &[])
}

fn request(id: u32, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

fn modern(id: u32, method: &str, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    request(id, method, &params)
}

fn records() -> Value {
    json!({ "name": "get_medical_records", "arguments": of_patient("NUGWI") })
}

#[tokio::test]
async fn a_modern_client_discovers_lists_calls_and_listens() {
    let app = TestApp::start(WARDGATE);
    let mut client = bridge(&app, &doctor(&app));
    let discovered = client.send_request(&modern(1, "server/discover", json!({})));
    assert!(discovered["result"]["capabilities"]["tools"].is_object());
    let listen = json!({ "notifications": { "toolsListChanged": true } });
    for id in [2, 3] {
        let acknowledged = client.send_request(&modern(id, "subscriptions/listen", listen.clone()));
        assert_eq!(
            acknowledged["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"],
            id
        );
    }
    let listed = client.send_request(&modern(4, "tools/list", json!({})));
    assert_eq!(listed["result"]["tools"].as_array().unwrap().len(), 5);
    let called = client.send_request(&modern(5, "tools/call", records()));
    assert_eq!(called["id"], 5);
    let rows = &called["result"]["structuredContent"]["data"];
    assert_eq!(rows.as_array().unwrap().len(), 2);
    client.send_message(&json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 2 },
    }));
    let dir = app.data_dir().display().to_string();
    let off = ["tools", "disable", "get_shifts", "--data-dir", &dir];
    let ada = tool_manager(&app);
    wardgate_testkit::run(app.binary(), &off, &[("WARDGATE_TOKEN", &ada)]).success();
    let heard = client.receive_message();
    assert_eq!(heard["method"], "notifications/tools/list_changed");
    let subscription = "io.modelcontextprotocol/subscriptionId";
    assert_eq!(heard["params"]["_meta"][subscription], 3);
    assert_eq!(client.end(), (Some(0), Vec::new()));
    assert_eq!(
        column(
            &app.records_with(&["--tool", "get_medical_records"]),
            "protocol"
        ),
        ["2026-07-28"]
    );
}

#[tokio::test]
async fn a_client_with_a_handshake_hears_of_changes_and_calls() {
    let app = TestApp::start(WARDGATE);
    for version in ["2025-11-25", "2025-06-18", "2025-03-26"] {
        let mut client = bridge(&app, &nurse(&app));
        let hello = json!({ "protocolVersion": version, "capabilities": {} });
        let answer = client.send_request(&request(0, "initialize", &hello));
        assert_eq!(answer["result"]["protocolVersion"], version);
        client.send_message(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        assert_eq!(
            client.send_request(&request(1, "ping", &json!({})))["result"],
            json!({})
        );
        let called = client.send_request(&request(2, "tools/call", &records()));
        assert_eq!(called["result"]["isError"], false);
        let dir = app.data_dir().display().to_string();
        for change in ["disable", "reset"] {
            let words = ["tools", change, "get_shifts", "--data-dir", &dir];
            let ada = tool_manager(&app);
            wardgate_testkit::run(app.binary(), &words, &[("WARDGATE_TOKEN", &ada)]).success();
        }
        while client.receive_message()["method"] != "notifications/tools/list_changed" {}
        assert_eq!(client.end().0, Some(0));
    }
    let recorded = app.records_with(&["--tool", "get_medical_records"]);
    let protocols = column(&recorded, "protocol");
    assert_eq!(protocols, ["2025-11-25", "2025-06-18", "2025-03-26"]);
}

#[tokio::test]
async fn with_a_wrong_token_every_request_ends_and_a_good_one_needs_no_new_start() {
    let app = TestApp::start(WARDGATE);
    let token = doctor(&app);
    let mut client = bridge(&app, "a.b.c");
    let file = app.data_dir().join("my.token");
    let listen = json!({ "notifications": {} });
    for request in [
        modern(1, "server/discover", json!({})),
        modern(1, "subscriptions/listen", listen),
        modern(1, "tools/call", records()),
        request(1, "initialize", &json!({ "protocolVersion": "2025-11-25" })),
        request(1, "ping", &json!({})),
    ] {
        let answer = client.send_request(&request);
        assert_eq!(answer["id"], 1);
        let told = answer["error"]["message"].as_str().unwrap();
        assert!(told.contains(&file.display().to_string()), "{told}");
        assert!(!told.contains("a.b.c"), "{told}");
    }
    std::fs::write(&file, &token).unwrap();
    let called = client.send_request(&modern(2, "tools/call", records()));
    assert_eq!(called["result"]["isError"], false, "{called}");
    assert_eq!(client.end(), (Some(0), Vec::new()));
    // A token in the environment works too.
    let options = ["--url", app.client().base()];
    let environment = [("WARDGATE_TOKEN", token.as_str())];
    let mut client = StdioClient::start(app.binary(), &options, &environment);
    assert!(client.send_request(&request(1, "ping", &json!({})))["result"].is_object());
}

#[tokio::test]
async fn what_is_asked_before_the_input_ends_is_answered() {
    let app = TestApp::start(WARDGATE);
    let mut client = bridge(&app, &doctor(&app));
    for id in 1..=100 {
        client.send_message(&modern(id, "tools/call", records()));
    }
    let (code, lines) = client.end();
    assert_eq!(code, Some(0));
    let ids = lines.iter().map(|line| {
        let answer: Value = serde_json::from_str(line).unwrap();
        assert_eq!(answer["result"]["isError"], false, "{answer}");
        answer["id"].as_u64().unwrap()
    });
    let mut ids: Vec<_> = ids.collect();
    ids.sort_unstable();
    assert_eq!(ids, (1..=100).collect::<Vec<u64>>());
}

#[tokio::test]
async fn a_gateway_that_goes_and_comes_back_costs_the_requests_of_that_time() {
    let mut app = TestApp::start(WARDGATE);
    let token = doctor(&app);
    let mut client = bridge(&app, &token);
    assert!(client.send_request(&modern(1, "server/discover", json!({})))["result"].is_object());
    app.process.kill();
    let answer = client.send_request(&modern(2, "tools/call", records()));
    assert_eq!(answer["id"], 2);
    let told = answer["error"]["message"].as_str().unwrap();
    assert!(told.contains("gateway"), "{told}");
    // The gateway may get another port, so the test checks only that the bridge still responds.
    app.restart();
    assert!(client.send_request(&modern(3, "ping", json!({})))["error"].is_object());
    assert_eq!(client.end().0, Some(0));
}

#[tokio::test]
async fn a_body_that_the_gateway_does_not_take_is_an_error_with_its_reason() {
    let app = TestApp::start(WARDGATE);
    let mut client = bridge(&app, &doctor(&app));
    let large = json!({ "name": "x", "arguments": { "a": "x".repeat(2 << 20) } });
    let answer = client.send_request(&modern(1, "tools/call", large));
    assert_eq!(answer["id"], 1);
    assert!(answer["error"]["message"].is_string());
    assert!(client.send_request(&modern(2, "server/discover", json!({})))["result"].is_object());
}
