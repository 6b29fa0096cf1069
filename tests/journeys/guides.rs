//! Tests of prompts and resources of the demo hospital: visible as the policies permit, on record, and reloaded when
//! their file changes.

use serde_json::{Value, json};
use wardgate_testkit::{Reply, System, TestApp, until};

use super::people::{auditor, billing, doctor, nurse};
use crate::{REPOSITORY, WARDGATE};

const VERSIONS: [&str; 2] = ["2025-03-26", "2025-11-25"];
const TRIAGE: &str = "guide://triage";

/// Sends a request as a client of `version`, or of the newest version if it is `None`.
async fn send_request(
    app: &TestApp,
    version: Option<&str>,
    token: &str,
    method: &str,
    params: Value,
) -> Reply {
    let client = app.client();
    match version {
        Some(version) => client.legacy(token, version, method, params).await,
        None => client.modern(token, method, params).await,
    }
}

fn every_version() -> impl Iterator<Item = Option<&'static str>> {
    VERSIONS.into_iter().map(Some).chain([None])
}

/// Returns the values of one member of each entry in a list.
async fn list_values(
    app: &TestApp,
    token: &str,
    list: &str,
    of: &str,
    member: &str,
) -> Vec<String> {
    let reply = send_request(app, None, token, list, json!({})).await;
    let result = reply.result();
    let entries = result[of].as_array().unwrap();
    let name = |entry: &Value| entry[member].as_str().unwrap().to_owned();
    entries.iter().map(name).collect()
}

#[tokio::test]
async fn whoever_works_on_the_wards_has_guides_and_nobody_else_sees_them() {
    let app = TestApp::start(WARDGATE);
    for token in [doctor(&app), nurse(&app)] {
        let prompts = list_values(&app, &token, "prompts/list", "prompts", "name").await;
        assert_eq!(prompts, ["summarise_chart"]);
        let resources = list_values(&app, &token, "resources/list", "resources", "uri").await;
        assert_eq!(resources, [TRIAGE]);
        let list = ("resources/templates/list", "resourceTemplates");
        let templates = list_values(&app, &token, list.0, list.1, "uriTemplate").await;
        assert_eq!(
            templates,
            ["memory://conversation/{id}", "guide://ward/{ward}"]
        );
        for version in every_version() {
            let params = json!({ "uri": TRIAGE });
            let read = send_request(&app, version, &token, "resources/read", params).await;
            let contents = &read.result()["contents"][0];
            assert_eq!(contents["mimeType"], "text/markdown");
            assert!(contents["text"].as_str().unwrap().contains("| orange |"));
        }
    }
    for token in [billing(&app), auditor(&app)] {
        let prompts = list_values(&app, &token, "prompts/list", "prompts", "name").await;
        assert!(prompts.is_empty(), "{prompts:?}");
        for (version, code) in [(None, -32602), (Some("2025-11-25"), -32002)] {
            let read = async |uri| {
                let params = json!({ "uri": uri });
                let reply = send_request(&app, version, &token, "resources/read", params).await;
                reply.error()
            };
            let hidden = read(TRIAGE).await;
            assert_eq!(hidden, read("guide://nothing").await);
            assert_eq!(hidden.0, code);
        }
    }
}

#[tokio::test]
async fn a_prompt_is_filled_in_and_its_arguments_are_completed_and_checked() {
    let app = TestApp::start(WARDGATE);
    let token = nurse(&app);
    for version in every_version() {
        let arguments = json!({ "patient_id": "NUGWI", "tone": "plain", "sentences": "3" });
        let params = json!({ "name": "summarise_chart", "arguments": arguments });
        let prompt = send_request(&app, version, &token, "prompts/get", params).await;
        let messages = prompt.result()["messages"].clone();
        let text = messages[0]["content"]["text"].as_str().unwrap();
        assert!(text.contains("patient NUGWI") && text.contains("at most 3 sentences, in plain"));
        assert_eq!(messages[1]["content"]["resource"]["uri"], TRIAGE);
        let wrong = json!({ "name": "summarise_chart", "arguments": { "patient_id": "nugwi" } });
        let (code, message) = send_request(&app, version, &token, "prompts/get", wrong)
            .await
            .error();
        assert_eq!(code, -32602);
        assert!(
            message.contains("`patient_id`") && !message.contains("nugwi"),
            "{message}"
        );
        let reference = json!({ "type": "ref/prompt", "name": "summarise_chart" });
        let argument = json!({ "name": "tone", "value": "pl" });
        let params = json!({ "ref": reference, "argument": argument });
        let completed = send_request(&app, version, &token, "completion/complete", params).await;
        assert_eq!(completed.result()["completion"]["values"], json!(["plain"]));
    }
    let reference = json!({ "type": "ref/resource", "uri": "guide://ward/{ward}" });
    let params = json!({ "ref": reference, "argument": { "name": "ward", "value": "" } });
    let completed = send_request(&app, None, &token, "completion/complete", params).await;
    let values = completed.result()["completion"]["values"].clone();
    assert_eq!(values, json!(["W1", "W2", "W3", "W4", "W5", "W6"]));
}

#[tokio::test]
async fn what_was_read_is_on_record_without_a_word_that_somebody_typed() {
    let app = TestApp::start(WARDGATE);
    let params = json!({ "name": "summarise_chart", "arguments": { "patient_id": "NUGWI" } });
    send_request(&app, None, &doctor(&app), "prompts/get", params)
        .await
        .result();
    let uri = json!({ "uri": "guide://ward/W2" });
    send_request(&app, None, &nurse(&app), "resources/read", uri.clone())
        .await
        .result();
    send_request(&app, None, &billing(&app), "resources/read", uri)
        .await
        .error();
    let uri = json!({ "uri": "guide://ward/NUGWI" });
    send_request(&app, None, &nurse(&app), "resources/read", uri)
        .await
        .error();
    let records = app.records();
    let seen: Vec<_> = records
        .iter()
        .map(|record| {
            json!([
                record["user"],
                record["action"],
                record["record_id"],
                record["status"]
            ])
        })
        .collect();
    assert_eq!(
        seen,
        [
            json!(["dr.yenji", "prompts/get", "guides", "ok"]),
            json!(["nurse.joy", "resources/read", "guides", "ok"]),
            json!(["billing.ruiz", "resources/read", "guides", "denied"]),
            json!(["nurse.joy", "resources/read", "guides", "invalid_arguments"]),
        ]
    );
    assert!(!json!(records).to_string().contains("NUGWI"));
}

#[tokio::test]
async fn a_changed_guide_is_read_without_a_restart() {
    let app = TestApp::start(WARDGATE);
    let token = doctor(&app);
    let guide = app.example_dir().join("guides/triage.md");
    std::fs::write(guide, "# Triage, rewritten").unwrap();
    until("the changed guide is read", async || {
        let params = json!({ "uri": TRIAGE });
        let read = send_request(&app, None, &token, "resources/read", params).await;
        let text = read.json()["result"]["contents"][0]["text"].clone();
        (text == "# Triage, rewritten").then_some(())
    })
    .await;
}

#[tokio::test]
async fn prompts_and_resources_of_a_server_are_used_under_names_that_tell_whose_they_are() {
    let app = TestApp::start(WARDGATE);
    let (doctor, billing) = (doctor(&app), billing(&app));
    let catalogue = app.example_dir().join("tools.yaml");
    let server = std::path::Path::new(REPOSITORY).join("tests/journeys/guides_upstream.py");
    let source = format!(
        "\nsources:\n  pages: {{ type: mcp, command: [python3, {}], prompts: all, resources: all, tags: [guides], classes: {{ content: none }} }}\n",
        json!(server)
    );
    let text = std::fs::read_to_string(&catalogue).unwrap();
    std::fs::write(&catalogue, text.replace("\nsources:\n", &source)).unwrap();
    until("the server's prompt is listed", async || {
        let prompts = list_values(&app, &doctor, "prompts/list", "prompts", "name").await;
        (prompts == ["pages__greet", "summarise_chart"]).then_some(())
    })
    .await;
    until("the server's resource is listed", async || {
        let resources = list_values(&app, &doctor, "resources/list", "resources", "uri").await;
        (resources == [TRIAGE, "pages+file:///ward/a.txt"]).then_some(())
    })
    .await;
    assert!(
        list_values(&app, &billing, "prompts/list", "prompts", "name")
            .await
            .is_empty()
    );
    for version in every_version() {
        let params = json!({ "name": "pages__greet", "arguments": { "who": "Ann" } });
        let prompt = send_request(&app, version, &doctor, "prompts/get", params.clone()).await;
        assert_eq!(
            prompt.result()["messages"][0]["content"]["text"],
            "Greet Ann."
        );
        send_request(&app, version, &billing, "prompts/get", params)
            .await
            .error();
        // The first resource is listed, and the second is one of the template.
        for (uri, words) in [
            ("pages+file:///ward/a.txt", "Ward A"),
            ("pages+file:///ward/b.txt", "Ward B"),
        ] {
            let read = send_request(
                &app,
                version,
                &doctor,
                "resources/read",
                json!({ "uri": uri }),
            )
            .await;
            let expected = json!([{ "uri": uri, "text": words }]);
            assert_eq!(read.result()["contents"], expected);
        }
        let gone = json!({ "uri": "pages+file:///ward/c.txt" });
        let (_, message) = send_request(&app, version, &doctor, "resources/read", gone)
            .await
            .error();
        assert_eq!(message, "Resource not found");
    }
}
