//! Tests of chats over HTTP, with the agent in the process of the gateway and in its own.

use std::path::Path;

use serde_json::{Value, json};
use wardgate_testkit::{Client, Reply, System, TestApp, WardgateProcess, until};

use super::people::doctor;
use crate::{REPOSITORY, WARDGATE};

const CHAT: &str = "/api/chat/message/";
const COMPLETIONS: &str = "/v1/chat/completions";

/// Sends a message to the first assistant. That of the demo has no model.
async fn send_message(client: &Client, token: Option<&str>) -> Reply {
    client
        .post(CHAT, token, &[], r#"{"message":"hello"}"#)
        .await
}

/// Returns the last event of a stream.
fn last(reply: &Reply) -> Value {
    assert_eq!(reply.status, 200, "{}", reply.body);
    let line = reply.body.lines().last().unwrap_or_default();
    serde_json::from_str(line).unwrap_or_else(|_| panic!("no event: {}", reply.body))
}

#[tokio::test]
async fn chats_are_served_beside_the_gateway_where_the_configuration_has_an_agent() {
    let app = TestApp::start_with(WARDGATE, &[("WARDGATE_AGENT__RELOAD_SECONDS", "2")]);
    assert!(app.process.ready_line().contains(CHAT));
    let (client, token) = (app.client(), doctor(&app));
    let done = last(&send_message(client, Some(&token)).await);
    assert_eq!(
        (&done["type"], &done["finish_reason"]),
        (&json!("done"), &json!("error"))
    );
    let body = r#"{"model":"nobody","messages":[{"role":"user","content":"hello"}]}"#;
    let reply = client.post(COMPLETIONS, Some(&token), &[], body).await;
    assert_eq!(reply.status, 404, "{}", reply.body);
    assert_eq!(reply.json()["error"]["code"], "model_not_found");
    // The agent accepts the same callers as the gateway, and the gateway works as before.
    let refused = send_message(client, None).await;
    assert_eq!(refused.status, 401);
    assert!(refused.headers.contains_key("www-authenticate"));
    let tools = client.modern(&token, "tools/list", json!({})).await;
    assert!(tools.result()["tools"].is_array());
}

#[tokio::test]
async fn without_a_section_of_its_own_there_is_no_agent() {
    let example = tempfile::tempdir().unwrap();
    let policies = format!("{REPOSITORY}/deploy/examples/hospital/policies");
    let config =
        json!({ "policy": { "policies": policies }, "tool_runner": { "catalogue": "tools.yaml" } });
    std::fs::write(example.path().join("wardgate.yaml"), config.to_string()).unwrap();
    std::fs::write(example.path().join("tools.yaml"), "tools: []\n").unwrap();
    let app = TestApp::start_example(WARDGATE, example.path(), "bare", &[]);
    assert_eq!(
        send_message(app.client(), Some(&doctor(&app))).await.status,
        404
    );
}

/// Starts `wardgate agent` with the keys of a running system and with its gateway at `gateway`.
pub(super) fn agent(app: &TestApp, gateway: &str) -> (WardgateProcess, Client) {
    let keys = app.data_dir().join("keys").display().to_string();
    let config = json!({ "agent": {
        "listen": "127.0.0.1:0",
        "approval_key_file": format!("{keys}/approval.key"),
        "auth": { "issuers": [{
            "issuer": "https://issuer.wardgate.internal",
            "audience": "wardgate",
            "jwks": { "file": format!("{keys}/jwks.json") },
        }]},
        "links": { "gateway": gateway },
    }});
    let file = app.data_dir().join("agent.yaml");
    std::fs::write(&file, config.to_string()).unwrap();
    let file = file.display().to_string();
    let process = WardgateProcess::start(Path::new(WARDGATE), &["agent", "--config", &file], &[]);
    let url = process.ready_line().split_whitespace().nth(1).unwrap();
    let client = Client::new(url.strip_suffix(CHAT).unwrap());
    (process, client)
}

#[tokio::test]
async fn an_agent_by_itself_takes_the_tokens_of_its_gateway() {
    let app = TestApp::start(WARDGATE);
    let (mut process, client) = agent(&app, app.client().base());
    until("the agent has found its gateway", async || {
        (client.get("/ready").await.status == 200).then_some(())
    })
    .await;
    assert_eq!(
        last(&send_message(&client, Some(&doctor(&app))).await)["type"],
        "done"
    );
    assert_eq!(send_message(&client, None).await.status, 401);
    assert_eq!(
        client.get("/nowhere").await.json()["error"]["code"],
        "not_found"
    );
    assert_eq!(process.terminate().code(), Some(0), "{}", process.log());
}

#[tokio::test]
async fn an_agent_starts_without_its_gateway_and_says_so() {
    let app = TestApp::start(WARDGATE);
    let (process, client) = agent(&app, "http://127.0.0.1:9");
    assert_eq!(client.get("/health").await.status, 200);
    let ready = client.get("/ready").await;
    assert_eq!(
        (ready.status, &ready.json()["parts"]["gateway"]),
        (503, &json!("not ready"))
    );
    until("the log tells", async || {
        process
            .log()
            .contains("the gateway does not answer")
            .then_some(())
    })
    .await;
    assert_eq!(
        last(&send_message(&client, Some(&doctor(&app))).await)["type"],
        "done"
    );
}
