//! Tests of the skills of a server of the official SDK: what the list says about each file is true of the file, and
//! each caller sees what they may read.

use std::fmt::Write;
use std::path::Path;

use aws_lc_rs::digest::{SHA256, digest};
use serde_json::{Value, json};
use wardgate_testkit::{Reply, System, TestApp, WardgateProcess, until};

use super::clinic;
use crate::WARDGATE;

const CATALOGUE: &str = r#"
sources:
  clinic:
    type: mcp
    url: "${CLINIC_URL}"
    auth: { type: bearer, token: own }
    private: [127.0.0.0/8]
    tools: none
    resources: all
    skills: all
    tags: [clinic]
    classes: { content: public }
"#;

const POLICIES: &str = r#"
@id("all-read")
permit (
  principal,
  action in [Action::"connect", Action::"read_resource"],
  resource in Tag::"clinic"
);
@id("all-see")
permit (principal, action == Action::"show_clear", resource);
@id("clerks-write-no-invoices")
forbid (principal in Role::"Clerk", action == Action::"read_resource", resource) when {
  context.arguments.hasTag("uri") && context.arguments.getTag("uri") like "*invoice*"
};
"#;

const BILLING: &str = "skill://clinic/acme/billing/SKILL.md";

/// Starts the server, and a gateway in front of it that offers its skills.
async fn start() -> (WardgateProcess, TestApp) {
    let program = Path::new(WARDGATE).with_file_name("wardgate-fixture");
    let server = WardgateProcess::start(&program, &["--require-bearer", "own"], &[]);
    let url = server
        .ready_line()
        .split_whitespace()
        .nth(1)
        .unwrap()
        .to_owned();
    let dir = tempfile::tempdir().unwrap();
    let settings = "policy: { policies: policies }\ntool_runner: { catalogue: tools.yaml }\n";
    clinic::configure(dir.path(), settings, CATALOGUE, POLICIES);
    let app = TestApp::start_example(WARDGATE, dir.path(), "clinic", &[("CLINIC_URL", &url)]);
    let doctor = app.token("dr.yenji", "Doctor", &[]);
    until("its skills are known", async || {
        let listed = app.client().modern(&doctor, "skills/list", json!({})).await;
        let listed = (listed.status == 200).then(|| listed.result());
        listed.filter(|listed| listed["skills"].as_array().is_some_and(|it| !it.is_empty()))
    })
    .await;
    (server, app)
}

async fn send_request(app: &TestApp, token: &str, method: &str, params: Value) -> Reply {
    app.client().modern(token, method, params).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_skill_says_of_its_files_is_true_of_what_is_read() {
    let (_server, app) = start().await;
    let doctor = app.token("dr.yenji", "Doctor", &[]);
    let discovered = send_request(&app, &doctor, "server/discover", json!({}))
        .await
        .result();
    assert_eq!(
        discovered["capabilities"]["extensions"]["io.modelcontextprotocol/skills"],
        json!({ "directoryRead": true })
    );
    let listed = send_request(&app, &doctor, "skills/list", json!({}))
        .await
        .result();
    let skills = listed["skills"].as_array().unwrap();
    let names: Vec<_> = skills.iter().map(|it| &it["frontmatter"]["name"]).collect();
    assert_eq!(names, ["billing", "news"]);
    assert_eq!(skills[1]["resources"], "dynamic");
    let got = send_request(&app, &doctor, "skills/get", json!({ "uri": BILLING }))
        .await
        .result();
    assert_eq!(got["skill"], skills[0]);
    assert_eq!(got["skill"]["frontmatter"]["license"], "MIT");
    let files = skills[0]["resources"].as_array().unwrap();
    assert_eq!(files.len(), 2);
    for file in files {
        let read = send_request(
            &app,
            &doctor,
            "resources/read",
            json!({ "uri": file["uri"] }),
        )
        .await;
        let read = read.result();
        let text = read["contents"][0]["text"].as_str().unwrap();
        let hex = digest(&SHA256, text.as_bytes());
        let mut told = "sha256:".to_owned();
        for byte in hex.as_ref() {
            write!(told, "{byte:02x}").unwrap();
        }
        assert_eq!(file["digest"], told);
        assert_eq!(file["size"], text.len());
    }
    // The client goes from the directory to the file, page by page.
    let mut found = Vec::new();
    let mut params = json!({ "uri": "skill://clinic/acme/billing" });
    loop {
        let page = send_request(&app, &doctor, "resources/directory/read", params.clone()).await;
        let page = page.result();
        found.extend(page["resources"].as_array().unwrap().clone());
        match &page["nextCursor"] {
            Value::Null => break,
            next => params["cursor"] = next.clone(),
        }
    }
    let uris: Vec<_> = found.iter().map(|it| &it["uri"]).collect();
    assert_eq!(uris, [BILLING, "skill://clinic/acme/billing/templates"]);
    assert_eq!(found[1]["mimeType"], "inode/directory");
    let unknown = json!({ "uri": "skill://clinic/acme/nothing/SKILL.md" });
    let unknown = send_request(&app, &doctor, "skills/get", unknown).await;
    assert_eq!(unknown.error().0, -32602, "{unknown:?}");

    let records = app.records();
    let of = |method: &str| records.iter().any(|record| record["method"] == method);
    assert!(
        of("skills/get") && of("resources/directory/read"),
        "{records:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_caller_may_not_read_is_in_no_skill_of_theirs() {
    let (_server, app) = start().await;
    let clerk = app.token("clerk.ana", "Clerk", &[]);
    let listed = send_request(&app, &clerk, "skills/list", json!({}))
        .await
        .result();
    let got = send_request(&app, &clerk, "skills/get", json!({ "uri": BILLING }))
        .await
        .result();
    for skill in [&listed["skills"][0], &got["skill"]] {
        let files = skill["resources"].as_array().unwrap();
        assert_eq!(
            (files.len(), &files[0]["uri"]),
            (1, &json!(BILLING)),
            "{skill}"
        );
    }
    let templates = json!({ "uri": "skill://clinic/acme/billing/templates" });
    let read = send_request(&app, &clerk, "resources/directory/read", templates)
        .await
        .result();
    assert_eq!(read["resources"], json!([]));
}
