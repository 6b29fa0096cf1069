//! Tests of API keys for machines that cannot get tokens, and of their revocation by an operator.

use serde_json::json;
use wardgate_testkit::{ProcessExit, Reply, System, TestApp, run, until};

use super::people::{column, of_patient};
use super::refusals::refusal;
use crate::WARDGATE;

fn api_key(app: &TestApp, arguments: &[&str]) -> ProcessExit {
    let directory = app.data_dir().display().to_string();
    let words = [&["api-key"], arguments, &["--data-dir", &directory]].concat();
    run(WARDGATE.as_ref(), &words, &[])
}

async fn records(app: &TestApp, key: &str) -> Reply {
    let arguments = of_patient("NUGWI");
    app.client()
        .call(key, "get_medical_records", arguments)
        .await
}

#[tokio::test]
async fn a_machine_calls_with_an_api_key_under_the_same_policies_until_it_is_revoked() {
    let app = TestApp::start(WARDGATE);
    let new = ["create", "round", "--sub", "nurse.joy", "--role", "Nurse"];
    let new = [&new[..], &["--attribute", "ward=W2", "--days", "30"]].concat();
    let key = api_key(&app, &new).success();
    let key = key.trim();

    let file = app.data_dir().join("keys/api-keys.json");
    let file = std::fs::read_to_string(file).unwrap();
    assert!(!file.contains(key), "the key itself is kept nowhere");

    let rows = until("the key is known", async || {
        let reply = records(&app, key).await;
        (reply.status == 200).then(|| reply.rows())
    })
    .await;
    assert_eq!(column(&rows, "patient_id"), ["•••WI", "•••WI"]);
    let records_of_calls = app.records();
    let outcome = records_of_calls.last().unwrap();
    assert_eq!(outcome["user"], "nurse.joy");
    assert_eq!(outcome["caller"]["issuer"], "urn:wardgate:api-keys");
    assert_eq!(outcome["caller"]["token_id"], "round");

    let listed = api_key(&app, &["list", "-o", "jsonl"]).success();
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed["name"], "round");
    assert_eq!(listed["attributes"], json!({ "ward": "W2" }));
    let twice = api_key(&app, &new);
    assert_eq!(twice.code, Some(1));
    assert!(
        twice
            .stderr
            .contains("a key with the name `round` exists already")
    );

    api_key(&app, &["revoke", "round"]).success();
    let refused = until("the key is refused", async || {
        let reply = records(&app, key).await;
        (reply.status == 401).then_some(reply)
    })
    .await;
    assert_eq!(refusal(&refused).0, "api_key_unknown");
    let unknown = api_key(&app, &["revoke", "round"]);
    assert!(
        unknown.stderr.contains("has no key `round`"),
        "{}",
        unknown.stderr
    );
}
