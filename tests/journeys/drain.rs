//! Tests of a graceful shutdown: processes announce it first, continue to serve for a while, finish their requests, and
//! end in order.

use std::time::{Duration, Instant};

use axum::Router;
use serde_json::json;
use wardgate_testkit::{SeparateProcesses, System, TestApp, serve, until};

use super::agent::agent;
use super::extra_tools::{LOOK_OFTEN, add_with_source};
use super::people::{doctor, of_patient};
use crate::{REPOSITORY, WARDGATE};

/// A drain delay that is long enough to test what is still served, on a machine that is busy with builds.
const DELAY: Duration = Duration::from_secs(10);

/// Tools whose service never responds.
const ENDLESS: &str = r"
  - name: endless_read
    description: Never returns.
    tags: [staff]
    annotations: { readOnlyHint: true }
    time_limit: 60s
    input_schema: { type: object }
    execute: { type: http, source: endless, path: /read }
    result: { classes: { any: none } }
  - name: endless_write
    description: Never returns.
    tags: [staff]
    time_limit: 60s
    input_schema: { type: object }
    execute: { type: http, source: endless, path: /write, method: POST }
    result: { classes: { any: none } }
";

/// Starts five processes, each with that drain delay.
async fn start() -> SeparateProcesses {
    let names = ["GATEWAY", "POLICY", "TOOL_RUNNER", "AUDIT", "MEMORY"];
    let names = names.map(|name| format!("WARDGATE_{name}__DRAIN__DELAY_SECONDS"));
    let delay = DELAY.as_secs().to_string();
    let environment = names.each_ref().map(|name| (name.as_str(), delay.as_str()));
    SeparateProcesses::start_with(WARDGATE, REPOSITORY.as_ref(), &environment).await
}

#[tokio::test]
async fn a_gateway_that_is_told_to_stop_sends_new_clients_away_and_serves_those_it_has() {
    let mut system = start().await;
    let (client, token) = (system.client().clone(), doctor(&system));
    let told = Instant::now();
    system.gateway.signal("TERM");
    system.until_ready(false).await;
    let ready = client.get("/ready").await;
    assert_eq!(ready.json()["parts"]["gateway"], "not ready");
    assert_eq!(ready.json()["parts"]["policy"], "ready");
    assert_eq!(client.get("/health").await.status, 200, "it is alive");
    let reply = client
        .call(&token, "get_medical_records", of_patient("NUGWI"))
        .await;
    assert_eq!(reply.rows().len(), 2);
    assert_eq!(reply.headers["connection"], "close", "come back elsewhere");
    let status = system.gateway.wait_for_exit();
    assert_eq!(status.code(), Some(0), "{}", system.gateway.log());
    assert!(told.elapsed() >= DELAY);
}

#[tokio::test]
async fn streams_of_a_gateway_that_stops_come_to_a_clean_end() {
    let mut system = start().await;
    let token = doctor(&system);
    let (base, http) = (system.client().base().to_owned(), reqwest::Client::new());
    let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    let began = system
        .client()
        .legacy(&token, "2025-11-25", "initialize", hello)
        .await;
    let stream = |path: &str| {
        let request = http.get(format!("{base}{path}")).bearer_auth(&token);
        request.header("accept", "text/event-stream")
    };
    let changes = stream("/mcp")
        .header("mcp-session-id", &began.headers["mcp-session-id"])
        .header("mcp-protocol-version", "2025-11-25");
    let streams = [
        changes.send().await.unwrap(),
        stream("/sse").send().await.unwrap(),
    ];
    system.gateway.signal("TERM");
    for stream in streams {
        assert_eq!(stream.status(), 200);
        // The stream ends properly and is not broken.
        stream.bytes().await.unwrap();
    }
    assert_eq!(system.gateway.wait_for_exit().code(), Some(0));
}

#[tokio::test]
async fn a_service_that_is_told_to_stop_says_so_to_its_neighbours_before_it_goes() {
    let mut system = start().await;
    for name in ["memory", "policy", "tool-runner", "audit"] {
        let service = match name {
            "memory" => &system.memory,
            "policy" => &system.policy,
            "tool-runner" => &system.tool_runner,
            _ => &system.audit,
        };
        let told = Instant::now();
        service.signal("TERM");
        let unready = format!(r#"wardgate_link_endpoints{{neighbour="{name}",state="unready"}} 1"#);
        until("the gateway hears of it", async || {
            let metrics = system.metrics().await;
            metrics.lines().any(|line| line == unready).then_some(())
        })
        .await;
        let service = match name {
            "memory" => &mut system.memory,
            "policy" => &mut system.policy,
            "tool-runner" => &mut system.tool_runner,
            _ => &mut system.audit,
        };
        assert_eq!(
            service.wait_for_exit().code(),
            Some(0),
            "{name}: {}",
            service.log()
        );
        assert!(told.elapsed() >= DELAY, "{name}");
        // The gateway is ready without the memory service.
        if name != "memory" {
            system.until_ready(false).await;
        }
        system.restart(name);
        system.until_ready(true).await;
    }
}

#[tokio::test]
async fn a_second_signal_ends_a_process_at_once() {
    let mut system = start().await;
    system.gateway.signal("TERM");
    system.until_ready(false).await;
    let again = Instant::now();
    assert_eq!(system.gateway.terminate().code(), Some(1));
    assert!(again.elapsed() < DELAY / 2);
}

#[tokio::test]
async fn an_agent_that_is_told_to_stop_is_not_ready_and_answers_on() {
    let app = TestApp::start(WARDGATE);
    let (mut process, client) = agent(&app, app.client().base());
    until("the agent is ready", async || {
        (client.get("/ready").await.status == 200).then_some(())
    })
    .await;
    process.signal("TERM");
    let ready = until("the agent says that it stops", async || {
        let ready = client.get("/ready").await;
        (ready.status == 503).then_some(ready)
    })
    .await;
    assert_eq!(ready.json()["parts"]["agent"], "not ready");
    let models = client.get("/v1/models").await;
    assert_eq!(models.status, 401, "it still answers, and knows nobody yet");
    assert_eq!(process.wait_for_exit().code(), Some(0), "{}", process.log());
}

#[tokio::test]
async fn a3_a_call_that_outlasts_the_drain_is_cancelled_and_its_outcome_is_on_record() {
    let environment = [
        ("WARDGATE_GATEWAY__DRAIN__DELAY_SECONDS", "0"),
        ("WARDGATE_GATEWAY__DRAIN__GRACE_SECONDS", "1"),
        LOOK_OFTEN,
    ];
    let mut system =
        SeparateProcesses::start_with(WARDGATE, REPOSITORY.as_ref(), &environment).await;
    let (arrived, mut arrivals) = tokio::sync::mpsc::unbounded_channel();
    let wait_forever = async move || {
        arrived.send(()).unwrap();
        std::future::pending::<()>().await;
    };
    let upstream = serve(Router::new().fallback(wait_forever)).await;
    let sources = format!(
        "  endless: {{ type: http, base_url: \"http://{upstream}\", private: [\"127.0.0.0/8\"] }}\n"
    );
    add_with_source(&system, &sources, ENDLESS).await;
    let token = doctor(&system);
    for tool in ["endless_read", "endless_write"] {
        let (client, token) = (system.client().clone(), token.clone());
        tokio::spawn(async move { client.call(&token, tool, json!({})).await });
        arrivals.recv().await.unwrap();
    }
    system.gateway.signal("TERM");
    assert_eq!(
        system.gateway.wait_for_exit().code(),
        Some(0),
        "{}",
        system.gateway.log()
    );
    let outcomes = system.records();
    for tool in ["endless_read", "endless_write"] {
        let mut of_tool = outcomes
            .iter()
            .filter(|record| record["tool"] == tool && record["event"] == "outcome");
        let outcome = of_tool.next().expect(tool);
        assert_eq!(outcome["reason"], "gateway_stopping", "{outcome}");
        assert!(of_tool.next().is_none());
    }
}
