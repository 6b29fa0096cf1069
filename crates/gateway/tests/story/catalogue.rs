//! The tool-runner's catalogue, as the gateway's clients see it.

use serde_json::json;

use crate::fakes::tool;
use crate::world::{MODERN, Reply, World, definition, until};

async fn names(world: &World) -> Vec<String> {
    let reply = Reply::to(world.message(MODERN, "tools/list", "")).await;
    let tools = reply.at("/result/tools");
    let tools = tools.as_array().unwrap_or_else(|| panic!("{reply:?}"));
    let name = |tool: &serde_json::Value| tool["name"].as_str().unwrap().to_owned();
    tools.iter().map(name).collect()
}

#[tokio::test]
async fn the_list_follows_the_catalogue() {
    let world = World::start().await;
    assert_eq!(names(&world).await, ["reads", "writes", "slow"]);
    let added = tool("added", &definition());
    world.tool_runner.configure(vec![added]);
    until("the list is the new one", async || {
        names(&world).await == ["added"]
    })
    .await;
    assert!(world.call("added").await.is_released());
    assert_eq!(world.call("reads").await.code(), -32602);
}

#[tokio::test]
async fn a_changed_tool_needs_a_new_permit() {
    let world = World::start().await;
    until("a permit is used again", async || {
        let before = world.policy.asked.count();
        assert!(world.call("reads").await.is_released());
        world.policy.asked.count() == before
    })
    .await;
    let before = world.policy.asked.count();
    let other = json!({ "description": "Does more.", "inputSchema": { "type": "object" } });
    world.tool_runner.configure(vec![tool("reads", &other)]);
    // Whether the gateway has heard of the change or not, the call runs, under a permit for the tool as it is now.
    until("the tool is decided on anew", async || {
        let reply = world.call("reads").await;
        assert!(reply.is_released() || reply.code() == -32603, "{reply:?}");
        reply.is_released()
    })
    .await;
    let decided = world.policy.asked.all();
    assert!(decided.len() > before);
    let digest = tool("reads", &other).facts.unwrap().definition_digest;
    let last = decided.last().unwrap().tool.clone().unwrap();
    assert_eq!(last.definition_digest, digest);
}

#[tokio::test]
async fn while_the_tool_runner_is_away_the_last_list_stays() {
    let world = World::start().await;
    world.tool_runner.withdraw_catalogue();
    world.tool_runner.turned_away.reaches(1).await;
    assert_eq!(names(&world).await, ["reads", "writes", "slow"]);
    world
        .tool_runner
        .configure(vec![tool("back", &definition())]);
    until("the list is the new one", async || {
        names(&world).await == ["back"]
    })
    .await;
}

#[tokio::test]
async fn a_tool_whose_definition_is_no_object_is_left_out_alone() {
    let world = World::start().await;
    let mut broken = tool("broken", &json!(["not", "an", "object"]));
    broken.aliases = vec!["broken_alias".to_owned()];
    let mut worse = tool("worse", &json!({}));
    worse.definition_json = "{".into();
    let good = tool("good", &definition());
    world.tool_runner.configure(vec![broken, worse, good]);
    until("the good one is listed", async || {
        names(&world).await == ["good"]
    })
    .await;
    for name in ["broken", "broken_alias", "worse"] {
        assert_eq!(world.call(name).await.code(), -32602, "{name}");
    }
}
