//! Tests of servers of MCP 2026-07-28.

use serde_json::{Value, json};
use wardgate_proto::toolrunner::v1::call_tool_response::Event;

use super::{
    ALL, FORM, Says, World, interaction_offering, interaction_resuming, interaction_with_log_level,
    result,
};

fn input_required_result(requests: &str, state: Option<&str>) -> Says {
    let requests: Value = serde_json::from_str(requests).unwrap();
    let mut result = json!({ "resultType": "input_required", "inputRequests": requests });
    if let Some(state) = state {
        result["requestState"] = state.into();
    }
    Says::Result(result)
}

fn form() -> String {
    format!(r#"{{"who":{{"method":"elicitation/create","params":{FORM}}}}}"#)
}

const META: &str = "io.modelcontextprotocol/";

#[tokio::test]
async fn what_a_server_needs_comes_back_and_the_retry_brings_it_exactly_its_state() {
    for state in [Some("é \" exact"), None] {
        let world = World::start(true).await;
        world.server.says(input_required_result(&form(), state));
        let (waits, requests) = world.begin().await.waits().await;
        assert_eq!(requests, serde_json::from_str::<Value>(&form()).unwrap());
        assert!(
            String::from_utf8_lossy(&waits.input_requests_json).contains("1.1"),
            "numbers are as they were"
        );
        let told = world.saw("tools/call", 1).await;
        let meta = &told["params"]["_meta"];
        let capabilities = &meta[format!("{META}clientCapabilities")];
        assert_eq!(*capabilities, serde_json::from_str::<Value>(ALL).unwrap());
        assert!(meta[format!("{META}logLevel")].is_null());
        assert!(told["params"]["requestState"].is_null());

        world.server.says_text("done");
        let answers = json!({ "who": { "action": "accept", "content": { "n": 7 } } });
        assert_eq!(world.resume(&waits, &answers).await.text().await, "done");
        let retry = world.saw("tools/call", 2).await;
        assert_eq!(retry["params"]["inputResponses"], answers);
        assert_eq!(retry["params"]["requestState"], json!(state));
        assert_eq!(retry["params"]["arguments"], json!({ "a": 1 }));
    }
}

#[tokio::test]
async fn what_a_server_says_meanwhile_is_heard_from_the_wanted_level_on() {
    let world = World::start(true).await;
    let said = world.server.says_events();
    let request = world
        .request("ask", interaction_with_log_level("warning"))
        .await;
    let mut round = world.send(request).await.unwrap();
    let call = world.saw("tools/call", 1).await;
    assert_eq!(
        call["params"]["_meta"][format!("{META}logLevel")],
        "warning"
    );
    let log = |level: &str| json!({ "level": level, "logger": "l", "data": { "b": 1, "a": [2] } });
    said.notify("notifications/message", &log("info"));
    said.notify("notifications/message", &log("error"));
    match round.next().await {
        Event::Log(log) => {
            assert_eq!((log.level.as_str(), log.logger.as_str()), ("error", "l"));
            assert_eq!(log.data_json, r#"{"b":1,"a":[2]}"#);
        }
        other => panic!("no log: {other:?}"),
    }
    let token = &call["params"]["_meta"]["progressToken"];
    let report = json!({ "progressToken": token, "progress": 1, "total": 2, "message": "half" });
    said.notify("notifications/progress", &report);
    match round.next().await {
        Event::Progress(step) => assert_eq!((step.progress, step.message.as_str()), (1.0, "half")),
        other => panic!("no progress: {other:?}"),
    }
    said.end(&call["id"], "done");
    assert_eq!(round.text().await, "done");
}

#[tokio::test]
async fn where_the_permit_restricts_the_server_is_offered_nothing_and_no_word_passes() {
    let world = World::start(true).await;
    let terms = world.restricted_terms("ask").await;
    let said = world.server.says_events();
    let request = world.request_under(&terms, interaction_with_log_level("debug"));
    let mut round = world.send(request).await.unwrap();
    let call = world.saw("tools/call", 1).await;
    let meta = &call["params"]["_meta"];
    assert_eq!(meta[format!("{META}clientCapabilities")], json!({}));
    assert!(meta[format!("{META}logLevel")].is_null());
    let log = json!({ "level": "alert", "data": "canary" });
    said.notify("notifications/message", &log);
    let token = &meta["progressToken"];
    let report = json!({ "progressToken": token, "progress": 1, "message": "canary" });
    said.notify("notifications/progress", &report);
    match round.next().await {
        Event::Progress(step) => assert_eq!((step.progress, step.message.as_str()), (1.0, "")),
        other => panic!("no progress: {other:?}"),
    }
    said.end(&call["id"], "done");
    assert!(!round.ends().await.0.is_error);

    world.server.says(input_required_result("{}", Some("s")));
    let request = world.request_under(&terms, interaction_offering(ALL));
    let round = world.send(request).await.unwrap();
    assert_eq!(round.fails().await, "input_required");
}

#[tokio::test]
async fn a_call_that_waits_does_not_go_on_where_the_permit_restricts_now() {
    let world = World::start(true).await;
    world.server.says(input_required_result(&form(), Some("s")));
    let (waits, _) = world.begin().await.waits().await;
    let terms = world.restricted_terms("ask").await;
    let request = world.request_under(&terms, interaction_resuming(&waits, &json!({})));
    let round = world.send(request).await.unwrap();
    assert_eq!(round.fails().await, "not_waiting");
    world.saw("tools/call", 1).await;
}

#[tokio::test]
async fn what_the_client_did_not_offer_is_not_asked() {
    let world = World::start(true).await;
    let roots = r#"{"r":{"method":"roots/list"}}"#;
    for (requests, capabilities) in [
        (form().as_str(), r#"{"roots":{}}"#),
        (roots, r#"{"elicitation":{}}"#),
        (r#"{"t":{"method":"tools/list"}}"#, ALL),
        (r#"{"t":7}"#, ALL),
        ("[]", ALL),
    ] {
        world
            .server
            .says(input_required_result(requests, Some("s")));
        let request = world
            .request("ask", interaction_offering(capabilities))
            .await;
        let round = world.send(request).await.unwrap();
        assert_eq!(round.fails().await, "bad_result", "{requests}");
    }
    world
        .server
        .says(Says::Result(json!({ "resultType": "input_required" })));
    assert_eq!(world.begin().await.fails().await, "bad_result");
}

#[tokio::test]
async fn a_server_that_only_wants_to_be_asked_again_may() {
    let world = World::start(true).await;
    let again = json!({ "resultType": "input_required", "requestState": "later" });
    world.server.says(Says::Result(again));
    let request = world.request("ask", interaction_offering("")).await;
    let (waits, requests) = world.send(request).await.unwrap().waits().await;
    assert_eq!(requests, json!({}));
    world.server.says_text("now");
    let round = world.resume(&waits, &json!({})).await;
    assert_eq!(round.text().await, "now");
}

#[tokio::test]
async fn a_state_is_of_one_caller_one_tool_and_one_set_of_arguments() {
    let mut world = World::start(true).await;
    world.server.says(input_required_result(&form(), Some("s")));
    let (waits, _) = world.begin().await.waits().await;

    let mut other = world
        .request("ask", interaction_resuming(&waits, &json!({})))
        .await;
    other.arguments_json = r#"{"a":2}"#.into();
    let round = world.send(other).await.unwrap();
    assert_eq!(round.fails().await, "not_waiting");

    let other = world
        .request("look", interaction_resuming(&waits, &json!({})))
        .await;
    let round = world.send(pb_arguments(other, "{}")).await.unwrap();
    assert_eq!(round.fails().await, "not_waiting");

    world.harness.caller = crate::tests::harness::caller("other");
    let other = world
        .request("ask", interaction_resuming(&waits, &json!({})))
        .await;
    let round = world.send(other).await.unwrap();
    assert_eq!(round.fails().await, "not_waiting");
    world.saw("tools/call", 1).await;
}

fn pb_arguments(
    request: wardgate_proto::toolrunner::v1::CallToolRequest,
    arguments: &'static str,
) -> wardgate_proto::toolrunner::v1::CallToolRequest {
    wardgate_proto::toolrunner::v1::CallToolRequest {
        arguments_json: arguments.into(),
        ..request
    }
}

#[tokio::test]
async fn what_is_said_of_the_clients_part_and_cannot_be_read_is_refused() {
    let world = World::start(true).await;
    for interaction in [
        interaction_offering("[]"),
        interaction_offering(r#"{"roots":{},"roots":{}}"#),
        interaction_with_log_level("loud"),
        interaction_resuming(
            &wardgate_proto::toolrunner::v1::InputRequired::default(),
            &json!({}),
        ),
    ] {
        let request = world.request("ask", interaction).await;
        let refused = world.send(request).await.err().unwrap();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument);
    }
}

#[tokio::test]
async fn a_call_whose_client_takes_part_is_never_answered_from_memory() {
    let world = World::start(true).await;
    let look = async |interaction| {
        let request = world.request("look", interaction).await;
        world
            .send(pb_arguments(request, "{}"))
            .await
            .unwrap()
            .text()
            .await
    };
    world.server.says_text("one");
    world.server.says_text("two");
    assert_eq!(look(interaction_offering("")).await, "one");
    assert_eq!(look(interaction_offering("{}")).await, "one");
    assert_eq!(look(interaction_offering(ALL)).await, "two");
    assert_eq!(look(interaction_offering("")).await, "one");
    assert_eq!(result("x")["content"][0]["text"], "x");
}
