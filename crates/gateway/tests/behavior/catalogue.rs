//! The tool-runner's catalogue, as the gateway's clients see it.

use serde_json::json;
use wardgate_domain::{Status, SwitchScope};
use wardgate_proto::common::v1::ErrorReason;

use crate::world::{LEGACY, MODERN, Reply, World, definition};
use wardgate_testkit::{RunBehavior, listed_tool, until_true};

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
    let added = listed_tool("added", &definition());
    world.tool_runner.configure(vec![added]);
    until_true("the list is the new one", async || {
        names(&world).await == ["added"]
    })
    .await;
    assert!(world.call("added").await.is_released());
    assert_eq!(world.call("reads").await.code(), -32602);
}

#[tokio::test]
async fn a_toolset_has_a_path_where_there_is_nothing_else() {
    let world = World::start().await;
    let mut inside = listed_tool("inside", &definition());
    inside.toolsets = vec!["ward".to_owned()];
    let outside = listed_tool("outside", &definition());
    world.tool_runner.configure(vec![outside, inside]);
    until_true("both are listed", async || names(&world).await.len() == 2).await;

    let at = async |toolset: &str, request: reqwest::RequestBuilder| {
        let (client, request) = request.build_split();
        let mut request = request.unwrap();
        request.url_mut().set_path(&format!("/mcp/{toolset}"));
        Reply::to(reqwest::RequestBuilder::from_parts(client, request)).await
    };
    let listed = at("ward", world.message(MODERN, "tools/list", "")).await;
    let tools = listed.at("/result/tools");
    assert_eq!(tools.as_array().unwrap().len(), 1);
    assert_eq!(tools[0]["name"], "inside");
    let none = at("nonesuch", world.message(MODERN, "tools/list", "")).await;
    assert_eq!(none.at("/result/tools"), json!([]));

    let called = at("ward", world.tools_call(MODERN, "inside", "{}")).await;
    assert!(called.is_released());
    let refused = at("ward", world.tools_call(MODERN, "outside", "{}")).await;
    assert_eq!(refused.at("/error/message"), "Unknown tool: outside");
    assert!(world.call("outside").await.is_released());
}

#[tokio::test]
async fn a_thousand_tools_are_listed_without_asking_the_tool_runner() {
    let world = World::start().await;
    let many = (0..1_000).map(|number| listed_tool(&format!("t{number}"), &definition()));
    world.tool_runner.configure(many.collect());
    until_true("all are listed", async || {
        names(&world).await.len() == 1_000
    })
    .await;
    let before = world.tool_runner.listed.count();
    for _ in 0..20 {
        assert_eq!(names(&world).await.len(), 1_000);
    }
    assert_eq!(world.tool_runner.listed.count(), before);
    assert_eq!(world.tool_runner.asked.count(), 0);
}

#[tokio::test]
async fn a_list_names_the_missing_upstreams_of_the_tools_in_it_and_no_others() {
    let world = World::start().await;
    let key = "/result/_meta/dev.wardgate~1missingUpstreams";
    let reply = Reply::to(world.message(MODERN, "tools/list", "")).await;
    assert!(reply.at(key).is_null(), "{reply:?}");
    let mut imported = listed_tool("imported", &definition());
    imported.facts.as_mut().unwrap().tags = vec!["upstream:files".to_owned()];
    *world.tool_runner.missing.lock().unwrap() = vec!["files".to_owned(), "other".to_owned()];
    world.tool_runner.configure(vec![imported]);
    for version in [MODERN, LEGACY] {
        until_true("the list says so", async || {
            let reply = Reply::to(world.message(version, "tools/list", "")).await;
            reply.at(key) == json!(["files"])
        })
        .await;
    }
}

/// Returns the tool `reads`, switched off for `scope`.
fn off_for(scope: &SwitchScope) -> wardgate_proto::toolrunner::v1::Tool {
    let switch = wardgate_proto::toolrunner::v1::ToolSwitch {
        scope: Some(scope.into()),
        enabled: false,
    };
    let mut tool = listed_tool("reads", &definition());
    tool.switches = vec![switch];
    tool
}

#[tokio::test]
async fn a_tool_that_is_off_for_the_caller_is_hidden_and_the_record_says_disabled() {
    let world = World::start().await;
    let doctors = SwitchScope::Role("Doctor".to_owned());
    let nurses = SwitchScope::Role("Nurse".to_owned());
    for (scope, listed) in [
        (SwitchScope::Everyone, false),
        (nurses, true),
        (doctors, false),
    ] {
        let tools = vec![off_for(&scope), listed_tool("writes", &definition())];
        world.tool_runner.configure(tools);
        until_true("the list follows the switch", async || {
            names(&world).await.contains(&"reads".to_owned()) == listed
        })
        .await;
    }
    let (asked, decided) = (world.tool_runner.asked.count(), world.policy.asked.count());
    for name in ["reads", "reads_alias"] {
        let off = world.call(name).await;
        let message = format!("Unknown tool: {name}");
        assert_eq!(
            (off.code(), off.at("/error/message")),
            (-32602, json!(message))
        );
    }
    for outcome in world.audit.outcomes.entries() {
        assert_eq!(
            (outcome.status, outcome.reason.as_str()),
            (Status::Denied, "disabled")
        );
        assert_eq!(outcome.call.tool.unwrap().as_str(), "reads");
    }
    assert_eq!(world.audit.outcomes.count(), 2);
    assert_eq!(world.tool_runner.asked.count(), asked);
    assert_eq!(world.policy.asked.count(), decided);
}

#[tokio::test]
async fn a_tool_that_the_tool_runner_no_longer_has_is_unknown() {
    let world = World::start().await;
    for name in ["reads", "writes"] {
        world
            .tool_runner
            .next([RunBehavior::Fail(ErrorReason::UnknownTool)]);
        let reply = world.call(name).await;
        let unknown = world.call("no_such_tool").await;
        assert_eq!(reply.code(), unknown.code());
        let words = reply.at("/error/message").to_string();
        assert_eq!(
            words.replace(name, "no_such_tool"),
            unknown.at("/error/message").to_string()
        );
    }
    for outcome in world.audit.outcomes.entries() {
        assert_eq!(outcome.status, Status::UnknownTool);
    }
}

#[tokio::test]
async fn a_changed_tool_needs_a_new_permit() {
    let world = World::start().await;
    until_true("a permit is used again", async || {
        let before = world.policy.asked.count();
        assert!(world.call("reads").await.is_released());
        world.policy.asked.count() == before
    })
    .await;
    let before = world.policy.asked.count();
    let other = json!({ "description": "Does more.", "inputSchema": { "type": "object" } });
    world
        .tool_runner
        .configure(vec![listed_tool("reads", &other)]);
    // Whether or not the gateway knows the change already, the call runs under a permit for the current definition.
    until_true("the tool is decided on anew", async || {
        let reply = world.call("reads").await;
        assert!(reply.is_released() || reply.code() == -32603, "{reply:?}");
        reply.is_released()
    })
    .await;
    let decided = world.policy.asked.entries();
    assert!(decided.len() > before);
    let digest = listed_tool("reads", &other)
        .facts
        .unwrap()
        .definition_digest;
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
        .configure(vec![listed_tool("back", &definition())]);
    until_true("the list is the new one", async || {
        names(&world).await == ["back"]
    })
    .await;
}

#[tokio::test]
async fn a_tool_whose_definition_is_no_object_is_left_out_alone() {
    let world = World::start().await;
    let mut broken = listed_tool("broken", &json!(["not", "an", "object"]));
    broken.aliases = vec!["broken_alias".to_owned()];
    let mut worse = listed_tool("worse", &json!({}));
    worse.definition_json = "{".into();
    let good = listed_tool("good", &definition());
    world.tool_runner.configure(vec![broken, worse, good]);
    until_true("the good one is listed", async || {
        names(&world).await == ["good"]
    })
    .await;
    for name in ["broken", "broken_alias", "worse"] {
        assert_eq!(world.call(name).await.code(), -32602, "{name}");
    }
}
