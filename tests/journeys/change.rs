//! Tests of policies and tools that change while the system runs, and of calls that take long.

use std::time::{Duration, Instant};

use serde_json::json;
use wardgate_testkit::{System, TestApp, until};

use super::extra_tools::{COUNT_LONG, Counter, LOOK_OFTEN, add};
use super::people::{billing, column, doctor, of_patient};
use crate::WARDGATE;

#[tokio::test]
async fn a_tool_that_writes_has_its_intent_on_record_before_its_outcome() {
    let app = TestApp::start_with(WARDGATE, &[LOOK_OFTEN]);
    let mut counter = Counter::add_to(&app).await;
    let token = doctor(&app);
    let reply = app
        .client()
        .call(&token, "count_up", json!({ "note": "once" }))
        .await;
    assert_eq!(reply.rows(), [json!({ "id": 1 })]);
    assert_eq!(counter.notes().await, ["once"]);
    let recorded = app.records_with(&["--tool", "count_up"]);
    assert_eq!(column(&recorded, "event"), ["intent", "outcome"]);
    assert_eq!(recorded[0]["call_id"], recorded[1]["call_id"]);
    assert_eq!(recorded[0]["decision"], recorded[1]["decision"]);
    // A call by a role without the right does not run the tool.
    let refused = app
        .client()
        .call(&billing(&app), "count_up", json!({ "note": "twice" }))
        .await;
    assert_eq!(refused.error().0, -32602);
    assert_eq!(counter.notes().await, ["once"]);
}

#[tokio::test]
async fn a_call_that_takes_too_long_is_ended_and_the_next_one_works() {
    let app = TestApp::start_with(WARDGATE, &[LOOK_OFTEN]);
    add(&app, COUNT_LONG).await;
    let token = doctor(&app);
    let started = Instant::now();
    let reply = app
        .client()
        .call(&token, "count_long", json!({ "to": 1_000_000_000_i64 }))
        .await;
    assert_eq!(reply.tool_error(), "Timeout after 2s");
    assert!(
        started.elapsed() < Duration::from_secs(30),
        "{:?}",
        started.elapsed()
    );
    let reply = app
        .client()
        .call(&token, "count_long", json!({ "to": 10 }))
        .await;
    assert_eq!(reply.rows(), [json!({ "counted": 10 })]);
    let recorded = app.records_with(&["--tool", "count_long"]);
    assert_eq!(column(&recorded, "status"), ["timeout", "ok"]);
}

#[tokio::test]
async fn a_modern_client_that_hangs_up_cancels_its_call_and_an_older_one_does_not() {
    let app = TestApp::start_with(WARDGATE, &[LOOK_OFTEN]);
    add(&app, COUNT_LONG).await;
    let token = doctor(&app);
    let forever = json!({ "to": 1_000_000_000_i64 });
    let hangs_up = Duration::from_secs(1);
    let modern = app.client().call(&token, "count_long", forever.clone());
    assert!(tokio::time::timeout(hangs_up, modern).await.is_err());
    let params = json!({ "name": "count_long", "arguments": forever });
    let older = app
        .client()
        .legacy(&token, "2025-11-25", "tools/call", params);
    assert!(tokio::time::timeout(hangs_up, older).await.is_err());
    let recorded = until("both calls ended", async || {
        Some(app.records_with(&["--tool", "count_long"])).filter(|records| records.len() == 2)
    })
    .await;
    assert_eq!(column(&recorded, "status"), ["cancelled", "timeout"]);
}

#[tokio::test]
async fn a_faulty_catalogue_changes_nothing_and_says_why() {
    let app = TestApp::start_with(WARDGATE, &[LOOK_OFTEN]);
    let token = doctor(&app);
    let before = app.client().tool_names(&token).await;
    let catalogue = app.example_dir().join("tools.yaml");
    let text = std::fs::read_to_string(&catalogue).unwrap();
    std::fs::write(&catalogue, text.replace("type: sql\n", "type: sqll\n")).unwrap();
    until("the fault is logged", async || {
        app.process
            .log()
            .contains("`sqll` is not a type")
            .then_some(())
    })
    .await;
    let ready = app.client().get("/ready").await;
    let said = "ready: the changed catalogue has an error; the previous one stays in force";
    assert_eq!(ready.status, 200);
    assert_eq!(ready.json()["parts"]["tool-runner"], said);
    assert_eq!(app.client().tool_names(&token).await, before);
    let reply = app
        .client()
        .call(&token, "get_medical_records", of_patient("NUGWI"))
        .await;
    assert_eq!(reply.rows().len(), 2);
}

#[tokio::test]
async fn a_right_that_is_taken_away_is_gone_and_a_faulty_rule_takes_none() {
    let app = TestApp::start(WARDGATE);
    let token = doctor(&app);
    let rule = app.example_dir().join("policies/doctor.cedar");
    let original = std::fs::read_to_string(&rule).unwrap();
    let rows = async || {
        let reply = app
            .client()
            .call(&token, "get_medical_records", of_patient("NUGWI"))
            .await;
        reply.json()["result"]["structuredContent"]["data"]
            .as_array()
            .map(Vec::len)
    };
    assert_eq!(rows().await, Some(2));

    std::fs::write(
        &rule,
        original.replace("principal.subject", "principal.subjct"),
    )
    .unwrap();
    until("the fault is logged", async || {
        app.process.log().contains("subjct").then_some(())
    })
    .await;
    assert_eq!(rows().await, Some(2), "the old rules stay in force");
    let ready = app.client().get("/ready").await.json();
    let said = "ready: the changed policies have an error; the previous ones stay in force";
    assert_eq!(ready["parts"]["policy"], said);

    std::fs::write(&rule, "").unwrap();
    until("no doctor may call", async || {
        rows().await.is_none().then_some(())
    })
    .await;
    assert!(app.client().tool_names(&token).await.is_empty());

    std::fs::write(&rule, original).unwrap();
    until("doctors may call again", async || rows().await).await;
}
