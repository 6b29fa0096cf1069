//! Tests of the product as five processes, linked by mTLS.

use serde_json::json;
use wardgate_testkit::{Client, SeparateProcesses, System, WardgateProcess, free_port, run, until};

use super::hospital::main_calls;
use super::people::{doctor, of_patient};
use crate::{REPOSITORY, WARDGATE};

async fn start() -> SeparateProcesses {
    SeparateProcesses::start(WARDGATE, REPOSITORY.as_ref()).await
}

#[tokio::test]
async fn the_main_calls_work_between_five_processes() {
    main_calls(&start().await).await;
}

#[tokio::test]
async fn every_process_ends_in_order_when_asked_to() {
    let mut system = start().await;
    let reply = system
        .client()
        .call(&doctor(&system), "get_medical_records", of_patient("NUGWI"))
        .await;
    assert_eq!(reply.rows().len(), 2);
    // This refusal is counted and not yet on record. The gateway must record it before it ends.
    assert_eq!(
        system.client().post("/mcp", None, &[], "{}").await.status,
        401
    );
    for process in system.processes() {
        let status = process.terminate();
        assert_eq!(status.code(), Some(0), "{}", process.log());
    }
    let records = system.records();
    let events: Vec<_> = records.iter().map(|record| &record["event"]).collect();
    assert_eq!(events, ["execution", "outcome", "refusals"]);
    assert_eq!(records[2]["counts"][0]["reason"], "token_missing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_never_heard_of_the_tools_says_so_and_not_that_there_are_none() {
    let mut system = start().await;
    let token = doctor(&system);
    system.tool_runner.kill();
    tokio::task::block_in_place(|| system.restart("gateway"));
    let reply = system
        .client()
        .modern(&token, "tools/list", json!({}))
        .await;
    let words = "The tools have not been loaded yet. Try again later.".to_owned();
    assert_eq!(reply.error(), (-32603, words));
}

#[tokio::test]
async fn readiness_names_the_part_that_is_missing() {
    let mut system = start().await;
    system.policy.kill();
    system.until_ready(false).await;
    let ready = system.client().get("/ready").await;
    assert_eq!(ready.status, 503);
    let parts = &ready.json()["parts"];
    // The reason why the service is not ready is in the log, and is not in the response.
    assert_eq!(parts["policy"], "not ready");
    assert_eq!([&parts["tool-runner"], &parts["audit"]], ["ready"; 2]);
    assert_eq!(
        system.client().get("/health").await.status,
        200,
        "a missing neighbour is no reason to restart"
    );
    system.restart("policy");
    system.until_ready(true).await;
}

fn free_address() -> String {
    format!("127.0.0.1:{}", free_port())
}

#[tokio::test]
async fn probes_with_an_address_of_their_own_are_not_shown_to_clients() {
    let system = start().await;
    let (listen, at) = (free_address(), free_address());
    let environment = [
        ("WARDGATE_GATEWAY__LISTEN", listen.as_str()),
        ("WARDGATE_GATEWAY__PROBES", at.as_str()),
        ("WARDGATE_GATEWAY__STORE", "sqlite:data/second.sqlite"),
    ];
    let config = system.config().display().to_string();
    let words = ["gateway", "--config", &config];
    let _second = WardgateProcess::start(system.binary(), &words, &environment);
    let clients = Client::new(&format!("http://{listen}"));
    let probes = Client::new(&format!("http://{at}"));
    until("the second gateway is ready", async || {
        (probes.get("/readyz").await.status == 200).then_some(())
    })
    .await;
    for path in ["/ready", "/readyz", "/metrics"] {
        assert_eq!(clients.get(path).await.status, 404, "{path}");
        assert_eq!(probes.get(path).await.status, 200, "{path}");
    }
    assert_eq!(clients.get("/health").await.body, r#"{"status":"ok"}"#);
    assert_eq!(probes.get("/mcp").await.status, 404);
    let words = ["doctor", "--service", "gateway", "--config", &config];
    let told = run(system.binary(), &words, &environment).stdout;
    for finding in [
        format!("gateway at http://{listen}"),
        format!("probes of the gateway at http://{at}"),
    ] {
        let line = told.lines().find(|line| line.contains(&finding));
        assert!(line.is_some_and(|line| line.starts_with("ok")), "{told}");
    }
}

#[tokio::test]
async fn a_service_that_was_killed_is_missed_in_plain_words_and_found_again() {
    let mut system = start().await;
    let token = doctor(&system);
    for (name, code) in [
        ("policy", -32603),
        ("tool-runner", -32603),
        ("audit", -32603),
    ] {
        match name {
            "policy" => system.policy.kill(),
            "tool-runner" => system.tool_runner.kill(),
            _ => system.audit.kill(),
        }
        system.until_ready(false).await;
        let reply = system
            .client()
            .try_call(&token, "get_medical_records", of_patient("NUGWI"))
            .await
            .unwrap();
        assert_eq!(reply.error().0, code, "{name}");
        assert!(
            reply.error().1.ends_with("Try again later."),
            "{name}: {}",
            reply.body
        );
        system.restart(name);
        system.until_ready(true).await;
        let reply = system
            .client()
            .call(&token, "get_medical_records", of_patient("NUGWI"))
            .await;
        assert_eq!(reply.rows().len(), 2, "{name}");
    }
    system.restart("gateway");
    system.until_ready(true).await;
    let reply = system
        .client()
        .call(&token, "get_my_shifts", json!({ "limit": 1 }))
        .await;
    assert_eq!(reply.rows().len(), 1);
}

#[tokio::test]
async fn the_record_is_found_by_the_configuration_too() {
    let system = start().await;
    system
        .client()
        .call(&doctor(&system), "get_medical_records", of_patient("NUGWI"))
        .await
        .rows();
    let config = system.config().display().to_string();
    let lines = wardgate_testkit::run(
        WARDGATE.as_ref(),
        &[
            "audit",
            "query",
            "--offline",
            "-o",
            "jsonl",
            "--config",
            &config,
        ],
        &[],
    )
    .success();
    let record = |line| serde_json::from_str::<serde_json::Value>(line).unwrap();
    let records: Vec<_> = lines.lines().map(record).collect();
    assert_eq!(records, system.records());
    assert_eq!(records.len(), 2, "the tool-runner's and the gateway's");
}
