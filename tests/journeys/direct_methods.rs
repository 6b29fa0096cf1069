//! Tests of the dialect in which clients call a tool as a method, on `/message` if it is enabled.

use serde_json::json;
use wardgate_testkit::{Reply, System, TestApp};

use super::people::{billing, column, doctor, of_patient};
use crate::WARDGATE;

async fn call_method(app: &TestApp, path: &str, token: &str, method: &str, patient: &str) -> Reply {
    let params = json!({ "name": method, "arguments": of_patient(patient) });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    app.client()
        .post(path, Some(token), &[], body.to_string())
        .await
}

#[tokio::test]
async fn a_tool_is_called_as_a_method_where_that_is_switched_on() {
    let app = TestApp::start_with(WARDGATE, &[("WARDGATE_GATEWAY__DIRECT_METHODS", "true")]);
    let (doctor, billing) = (doctor(&app), billing(&app));

    let reply = call_method(&app, "/message", &doctor, "get_medical_records", "NUGWI").await;
    let body = reply.json();
    let rows = body["result"]["data"].as_array().unwrap();
    assert_eq!(
        column(rows, "content"),
        ["Hypertension", "Lisinopril 10mg daily"]
    );
    assert!(body["result"]["_meta"]["dev.wardgate/receipt"]["leafHash"].is_string());

    let reply = call_method(&app, "/message", &doctor, "get_medical_records", "NOGWI").await;
    assert_eq!(reply.status, 200);
    assert_eq!(
        reply.json()["error"]["message"],
        "Invalid patient_id: NOGWI"
    );

    for method in ["get_medical_records", "no_such_tool"] {
        let reply = call_method(&app, "/message", &billing, method, "NUGWI").await;
        assert_eq!(reply.status, 403, "{method}");
        assert_eq!(
            reply.json()["error"]["message"],
            format!("Forbidden: {method}")
        );
    }

    // The endpoint of the specification accepts only the methods of the protocol.
    let reply = call_method(&app, "/mcp", &doctor, "get_medical_records", "NUGWI").await;
    assert_eq!(reply.error().0, -32601);
}

#[tokio::test]
async fn a_tool_is_no_method_unless_that_is_switched_on() {
    let app = TestApp::start(WARDGATE);
    let reply = call_method(
        &app,
        "/message",
        &doctor(&app),
        "get_medical_records",
        "NUGWI",
    )
    .await;
    assert_eq!(reply.error().0, -32601);
}
