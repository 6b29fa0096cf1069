//! Tests of calls that require an approval: by their caller, whatever the client supports, and by others in the console.

use serde_json::{Value, json};
use wardgate_testkit::{EventStreamClient, Reply, System, TestApp, run};

use super::console::Browser;
use super::people::{billing, doctor, nurse};
use crate::WARDGATE;

/// Nurses may read the records after they confirmed the call, and doctors after a person with the role `Billing` approved it.
const POLICIES: &str = r#"
@id("nurse-reads-on-second-thought") @approval("caller")
permit (principal in Role::"Nurse", action == Action::"call_tool", resource == Tool::"get_medical_records");

@id("doctor-reads-what-billing-approves") @approval("Billing")
permit (principal in Role::"Doctor", action == Action::"call_tool", resource == Tool::"get_medical_records");
"#;

/// Starts the demo with [`POLICIES`].
async fn start() -> TestApp {
    let app = TestApp::start(WARDGATE);
    let policies = app.example_dir().join("policies");
    for name in ["nurse.cedar", "doctor.cedar"] {
        let path = policies.join(name);
        let text = std::fs::read_to_string(&path).unwrap();
        // Only these policies permit calls. The existing policies for rows and columns are kept.
        let kept: Vec<_> = text
            .split("@id(")
            .filter(|policy| !policy.contains("call_tool"))
            .collect();
        std::fs::write(&path, kept.join("@id(")).unwrap();
    }
    std::fs::write(policies.join("approvals.cedar"), POLICIES).unwrap();
    wardgate_testkit::until("the policies are in force", async || {
        let reply = app
            .client()
            .call(&nurse(&app), "get_medical_records", arguments())
            .await;
        (reply.json()["error"]["data"]["reason"] == "approval_required").then_some(())
    })
    .await;
    app
}

fn arguments() -> Value {
    json!({ "patient_id": "NUGWI" })
}

fn waits(reply: &Reply) -> String {
    let answer = reply.json();
    assert_eq!(
        answer["error"]["data"]["reason"], "approval_required",
        "{answer}"
    );
    answer["error"]["data"]["approval"]["id"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// Makes a call as a modern client whose user can fill in forms.
async fn call_with_elicitation(app: &TestApp, token: &str, more: Value) -> Value {
    let mut params = json!({
        "name": "get_medical_records",
        "arguments": arguments(),
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": { "elicitation": { "form": {} } },
        },
    });
    params
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let headers = [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "get_medical_records"),
    ];
    let reply = app
        .client()
        .post("/mcp", Some(token), &headers, body.to_string())
        .await;
    reply.json()
}

#[tokio::test]
async fn a_caller_approves_their_own_call_by_whatever_their_client_can_do() {
    let app = start().await;
    let nurse = nurse(&app);
    // The caller approves in a form of a modern client, which is valid once.
    let asked = call_with_elicitation(&app, &nurse, json!({})).await;
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    let form = &asked["result"]["inputRequests"]["approval"]["params"];
    assert!(
        form["message"]
            .as_str()
            .unwrap()
            .contains("\"patient_id\": \"NUGWI\""),
        "{form}"
    );
    let answer = json!({
        "requestState": asked["result"]["requestState"],
        "inputResponses": { "approval": { "action": "accept", "content": {} } },
    });
    let run_once = call_with_elicitation(&app, &nurse, answer.clone()).await;
    assert_eq!(run_once["result"]["isError"], false, "{run_once}");
    let again = call_with_elicitation(&app, &nurse, answer).await;
    assert_eq!(again["error"]["data"]["reason"], "unknown_state", "{again}");

    // A caller whose client has no forms approves with a command. Then the call runs once.
    let id = waits(
        &app.client()
            .call(&nurse, "get_medical_records", arguments())
            .await,
    );
    let url = app.client().base();
    let approve = ["approvals", "approve", id.as_str(), "--url", url];
    run(app.binary(), &approve, &[("WARDGATE_TOKEN", &nurse)]).success();
    app.client()
        .call(&nurse, "get_medical_records", arguments())
        .await
        .rows();
    waits(
        &app.client()
            .call(&nurse, "get_medical_records", arguments())
            .await,
    );
}

#[tokio::test]
async fn somebody_else_approves_in_the_console_and_the_call_runs_once() {
    let app = start().await;
    let (doctor, billing) = (doctor(&app), billing(&app));
    let id = waits(
        &app.client()
            .call(&doctor, "get_medical_records", arguments())
            .await,
    );

    let mut own = Browser::sign_in(app.client().base(), &doctor).await;
    let page = own.get("/console/approvals").await;
    assert!(
        page.body.contains("No call waits for your approval."),
        "{}",
        page.body
    );

    let mut browser = Browser::sign_in(app.client().base(), &billing).await;
    let list = browser.get("/console/approvals").await;
    assert_eq!(list.status, 200);
    let path = list.body.split_once("<h2><a href=\"").unwrap().1;
    let path = path.split_once('"').unwrap().0.to_owned();
    let page = browser.get(&path).await;
    assert!(
        page.body.contains("NUGWI") && page.body.contains("get_medical_records"),
        "{}",
        page.body
    );
    let person = page.body.split_once("name=\"person\" value=\"").unwrap().1;
    let person = person.split_once('"').unwrap().0.to_owned();
    let foreign = browser.post(&path, &[("decision", "approve")]).await;
    assert_eq!(foreign.status, 409, "whose page it was is to be said");
    let done = browser
        .post(&path, &[("person", &person), ("decision", "approve")])
        .await;
    assert_eq!(
        (done.status, done.to.as_str()),
        (303, "/console/approvals"),
        "{}",
        done.body
    );
    let gone = browser.get(&path).await;
    assert_eq!(gone.status, 403, "{}", gone.body);

    app.client()
        .call(&doctor, "get_medical_records", arguments())
        .await
        .rows();
    waits(
        &app.client()
            .call(&doctor, "get_medical_records", arguments())
            .await,
    );
    let records = app.records();
    let of = records.iter().filter(|record| record["approval_id"] == *id);
    let outcomes = of.filter(|record| record["event"] == "outcome");
    let methods: Vec<_> = outcomes
        .map(|record| record["method"].as_str().unwrap_or("tools/call"))
        .collect();
    let expected = [
        "tools/call",
        "approvals/get",
        "approvals/approve",
        "tools/call",
    ];
    assert_eq!(methods, expected);
}

#[tokio::test]
async fn an_older_client_is_asked_for_its_callers_approval_on_the_stream_of_the_call() {
    let app = start().await;
    let nurse = nurse(&app);
    let http = reqwest::Client::new();
    let post = |session: Option<&str>, message: &Value| {
        let request = http
            .post(format!("{}/mcp", app.client().base()))
            .bearer_auth(&nurse)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", "2025-11-25")
            .body(message.to_string());
        match session {
            Some(session) => request.header("mcp-session-id", session),
            None => request,
        }
    };
    let begin = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": { "elicitation": {} },
        "clientInfo": { "name": "test", "version": "1" },
    } });
    let begun = post(None, &begin).send().await.unwrap();
    let session = begun.headers()["mcp-session-id"]
        .to_str()
        .unwrap()
        .to_owned();
    let call = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
        "name": "get_medical_records", "arguments": arguments(),
    } });
    for (action, runs) in [("accept", true), ("decline", false)] {
        let mut stream = EventStreamClient::open(post(Some(&session), &call)).await;
        let asked = stream.next_message().await.unwrap();
        assert_eq!(asked["method"], "elicitation/create", "{asked}");
        assert!(
            asked["params"]["message"]
                .as_str()
                .unwrap()
                .contains("get_medical_records")
        );
        let result = json!({ "action": action, "content": {} });
        let answer = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": result });
        let taken = post(Some(&session), &answer).send().await.unwrap();
        assert_eq!(taken.status(), 202);
        let ended = stream.next_message().await.unwrap();
        assert_eq!(ended["id"], 2);
        if runs {
            assert_eq!(ended["result"]["isError"], false, "{ended}");
        } else {
            assert_eq!(
                ended["error"]["data"]["reason"], "approval_refused",
                "{ended}"
            );
        }
    }
    let records = app.records();
    let methods = records
        .iter()
        .filter_map(|record| record["method"].as_str());
    let methods: Vec<_> = methods
        .filter(|method| method.starts_with("approvals/"))
        .collect();
    assert_eq!(methods, ["approvals/approve", "approvals/refuse"]);
}
