//! What a token must have been given for a source, and for what is gone on with there.

use reqwest::RequestBuilder;
use serde_json::json;
use wardgate_domain::{OfferKind, Status};

use super::{OTHER, answer, call, carried, count, get, request, request_to, world_with};
use crate::fakes::relay::{RelayBehavior, governed};
use crate::fakes::tool;
use crate::world::{LEGACY, MODERN, Reply, World, definition, until};

/// A gateway where all of `up` needs a scope, and what writes another.
async fn world() -> World {
    let scopes = json!({ "tags": { "upstream:up": ["up"], "upstream:other": ["other"], "phi": ["records"] }, "writes": ["write"] });
    let mut world = world_with(json!({ "scopes": scopes })).await;
    let tools = ["reads", "writes", "slow", "elsewhere", "more"].map(|name| {
        let mut tool = tool(name, &definition());
        if name == "reads" {
            tool.facts.as_mut().unwrap().tags = vec!["phi".to_owned()];
        }
        tool
    });
    world.tool_runner.configure(tools.to_vec());
    world.token = with_scope(&world, "up");
    until("the gateway knows the tags", async || {
        Reply::to(call(&world, MODERN, "read")).await.status == 403
    })
    .await;
    world
}

fn with_scope(world: &World, scope: &str) -> String {
    world.issuer.token_saying(&json!({ "scope": scope }))
}

/// The scopes that a 403 asks for; none where it was let in.
async fn lacks(request: RequestBuilder) -> Option<String> {
    let reply = Reply::to(request).await;
    if reply.status != 403 {
        assert_eq!(reply.status, 200, "{reply:?}");
        return None;
    }
    let challenge = reply.header("www-authenticate");
    assert!(challenge.contains("oauth-protected-resource/mcp/upstream/up\""));
    let (_, scope) = challenge.split_once("scope=\"").unwrap();
    Some(scope.split('"').next().unwrap().to_owned())
}

#[tokio::test]
async fn every_way_to_a_source_needs_its_scope() {
    let mut world = world().await;
    world.token = with_scope(&world, "records write");
    let before = count(&world);
    for version in [MODERN, LEGACY] {
        for (method, params) in [
            ("tools/list", ""),
            ("prompts/list", ""),
            ("resources/read", r#""uri":"memo://one""#),
            ("prompts/get", r#""name":"greet""#),
        ] {
            let lacking = lacks(request(&world, version, method, params)).await;
            assert_eq!(lacking.as_deref(), Some("up"), "{method}");
        }
    }
    assert_eq!(lacks(get(&world)).await.as_deref(), Some("up"));
    assert_eq!(count(&world), before, "something was carried");
    world.token = with_scope(&world, "up");
    let read = request(&world, MODERN, "resources/read", r#""uri":"memo://one""#);
    assert_eq!(lacks(read).await, None);
}

#[tokio::test]
async fn a_tool_needs_what_its_own_tags_say_and_is_denied_on_record() {
    let world = world().await;
    let before = count(&world);
    for version in [MODERN, LEGACY] {
        for (name, needed) in [("read", "records"), ("write", "write")] {
            let lacking = lacks(call(&world, version, name)).await;
            assert_eq!(lacking.as_deref(), Some(needed));
            let outcome = world.audit.outcome().await;
            assert_eq!(outcome.status, Status::Denied);
            assert_eq!(outcome.reason, "insufficient_scope");
        }
    }
    assert_eq!(count(&world), before);
}

#[tokio::test]
async fn a_route_that_is_not_for_the_caller_asks_for_no_scope() {
    let world = world().await;
    world.policy.bar(OfferKind::Connect, "other");
    let asked = request_to(&world, OTHER, MODERN, "tools/list", "");
    let reply = Reply::to(asked).await;
    assert_eq!(reply.status, 404);
    assert_eq!(reply.header("www-authenticate"), "");
}

#[tokio::test]
async fn a_task_is_for_no_token_that_could_not_have_begun_it() {
    let mut world = world().await;
    world.token = with_scope(&world, "up records");
    let begun = r#"{"resultType":"task","taskId":"t-1","status":"working"}"#;
    let given = || [RelayBehavior::Give(governed(200, &answer(begun)))];
    world.tool_runner.relays.next(given());
    let begun = Reply::to(call(&world, MODERN, "read")).await;
    let id = begun.at("/result/taskId");
    let look = |world: &World| request(world, MODERN, "tasks/get", &format!(r#""taskId":{id}"#));
    world.tool_runner.relays.next(given());
    assert_eq!(lacks(look(&world)).await, None);
    let carried_once = carried(&world);
    world.token = with_scope(&world, "up");
    assert_eq!(lacks(look(&world)).await.as_deref(), Some("records"));
    assert_eq!(carried(&world).call_id, carried_once.call_id);
}
