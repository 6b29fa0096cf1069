//! Tests of the revocation of a person by an operator, after which the person's tokens are refused.

use serde_json::{Value, json};
use wardgate_testkit::{System, TestApp, run};

use super::people::{doctor, nurse, of_patient};
use crate::WARDGATE;

#[tokio::test]
async fn a_revoked_person_is_refused_at_every_door_until_the_revocation_is_lifted() {
    let app = TestApp::start(WARDGATE);
    let (nurse, doctor) = (nurse(&app), doctor(&app));
    let operator = app.token("security.elm", "SecurityOperator", &[]);
    let url = app.client().base().to_owned();
    let revoke = |token: &str, words: &[&str]| {
        let words = [&["revoke"], words, &["--url", &url]].concat();
        run(app.binary(), &words, &[("WARDGATE_TOKEN", token)])
    };

    let denied = revoke(&doctor, &["subject", "nurse.joy"]);
    assert!(
        denied.stderr.contains("`revoke_access`"),
        "{}",
        denied.stderr
    );
    assert_ne!(denied.code, Some(0));
    revoke(
        &operator,
        &["subject", "nurse.joy", "--reason", "lost laptop"],
    )
    .success();

    for path in ["/mcp", "/message", "/mcp/upstream/guides"] {
        let ping = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
        let reply = app
            .client()
            .post(path, Some(&nurse), &[], ping.to_owned())
            .await;
        assert_eq!(reply.status, 401, "{path}");
        let reply = app
            .client()
            .post(path, Some(&doctor), &[], ping.to_owned())
            .await;
        assert_ne!(reply.status, 401, "{path}");
    }
    let listed = revoke(&operator, &["list"]).success();
    assert!(
        listed.contains("nurse.joy") && listed.contains("lost laptop"),
        "{listed}"
    );
    let listed = revoke(&operator, &["list", "-o", "jsonl"]).success();
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed["revokedBy"], "security.elm");

    revoke(&operator, &["subject", "nurse.joy", "--lift"]).success();
    app.client()
        .call(&nurse, "get_medical_records", of_patient("NUGWI"))
        .await
        .rows();

    let changes = app.records().into_iter();
    let changes = changes.filter(|record| record["event"] == "admin_change");
    let changes = changes.filter(|record| record["target"] == "nurse.joy");
    let changes: Vec<_> = changes
        .map(|record| (record["action"].clone(), record["status"].clone()))
        .collect();
    let expected = [
        (json!("subject.revoke"), json!("denied")),
        (json!("subject.revoke"), Value::Null),
        (json!("subject.restore"), Value::Null),
    ];
    assert_eq!(changes, expected);
}
