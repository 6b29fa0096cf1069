//! Tests of tools of MCP 2025-11-25 that run only as tasks.

use serde_json::{Value, json};
use wardgate_proto::toolrunner::v1 as pb;

use super::{ALL, FORM, Says, World, interaction_offering, interaction_resuming, result};

fn task(status: &str) -> Value {
    json!({ "taskId": "t-1", "status": status, "createdAt": "x", "ttl": null, "pollInterval": 1 })
}

fn begins(world: &World, states: &[&str]) {
    let (first, later) = states.split_first().unwrap();
    world
        .server
        .says(Says::Result(json!({ "task": task(first) })));
    for state in later {
        world.server.says(Says::Result(task(state)));
    }
}

async fn call_look_tool(world: &World, interaction: pb::Interaction) -> super::Round {
    call(world, "look", interaction).await
}

async fn call(world: &World, tool: &str, interaction: pb::Interaction) -> super::Round {
    let request = world.request(tool, interaction).await;
    let request = pb::CallToolRequest {
        arguments_json: "{}".into(),
        ..request
    };
    world.send(request).await.unwrap()
}

#[tokio::test]
async fn a_task_is_followed_to_its_result() {
    let world = World::start(false).await;
    for (number, interaction) in [
        (1, interaction_offering("")),
        (2, interaction_offering(ALL)),
    ] {
        begins(&world, &["working", "working", "completed"]);
        world.server.says(Says::Result(result("done")));
        assert_eq!(
            call_look_tool(&world, interaction).await.text().await,
            "done"
        );
        let call = world.saw("tools/call", number).await;
        assert!(call["params"]["task"]["ttl"].is_u64(), "{call}");
        let collected = world.saw("tasks/result", number).await;
        assert_eq!(collected["params"]["taskId"], "t-1");
        assert_eq!(
            world.server.received_messages("tasks/get").len(),
            2 * number
        );
    }
    assert!(world.server.received_messages("tasks/cancel").is_empty());
}

#[tokio::test]
async fn a_task_may_ask_and_a_failed_one_is_an_error() {
    let world = World::start(false).await;
    begins(&world, &["input_required"]);
    let said = world.server.says_events();
    let round = call_look_tool(&world, interaction_offering(ALL)).await;
    let collecting = world.saw("tasks/result", 1).await;
    said.send_request("q", "elicitation/create", FORM);
    let (waits, _) = round.waits().await;
    let answers = json!({ "1": { "action": "accept", "content": {} } });
    let round = call_look_tool(&world, interaction_resuming(&waits, &answers)).await;
    world.was_answered(1).await;
    said.end(&collecting["id"], "done");
    assert_eq!(round.text().await, "done");

    begins(&world, &["working", "failed"]);
    let error = json!({ "code": -32603, "message": "no" });
    world.server.says(Says::Error(error));
    assert_eq!(
        call_look_tool(&world, interaction_offering(ALL))
            .await
            .fails()
            .await,
        "tool_error"
    );
    assert!(world.server.received_messages("tasks/cancel").is_empty());
}

#[tokio::test]
async fn a_task_whose_session_is_forgotten_is_not_begun_again() {
    for status in [404, 400] {
        for interaction in [interaction_offering(""), interaction_offering(ALL)] {
            for states in [["working"].as_slice(), &["working", "completed"]] {
                let world = World::start(false).await;
                begins(&world, states);
                world.server.says(Says::Status(status));
                // Only an erroneous second run would get this far.
                begins(&world, &["completed"]);
                world.server.says(Says::Result(result("again")));
                let round = call(&world, "keep", interaction.clone()).await;
                assert_eq!(round.fails().await, "source_unavailable");
                world.saw("tools/call", 1).await;
            }
        }
    }
}

#[tokio::test]
async fn a_task_that_nobody_waits_for_is_cancelled() {
    let world = World::start(false).await;
    begins(&world, &["input_required"]);
    let said = world.server.says_events();
    let round = call_look_tool(&world, interaction_offering(ALL)).await;
    world.saw("tasks/result", 1).await;
    drop(round);
    let cancelled = world.saw("tasks/cancel", 1).await;
    assert_eq!(cancelled["params"]["taskId"], "t-1");
    drop(said);
}
