//! The scopes that a token needs for a source.

use reqwest::RequestBuilder;
use serde_json::json;
use wardgate_domain::{OfferKind, Status};

use super::{OTHER, call, count_runs, get, request, request_to, world_with};
use crate::world::{LEGACY, MODERN, Reply, World, definition};
use wardgate_testkit::{listed_tool, until_true};

/// Starts a gateway where everything of `up` needs one scope, and tools that may write need another.
async fn world() -> World {
    let scopes = json!({ "tags": { "upstream:up": ["up"], "upstream:other": ["other"], "phi": ["records"] }, "writes": ["write"] });
    let mut world = world_with(json!({ "scopes": scopes })).await;
    let tools = ["reads", "writes", "slow", "elsewhere", "more"].map(|name| {
        let mut tool = listed_tool(name, &definition());
        if name == "reads" {
            tool.facts.as_mut().unwrap().tags = vec!["phi".to_owned()];
        }
        tool
    });
    world.tool_runner.configure(tools.to_vec());
    world.token = with_scope(&world, "up");
    until_true("the gateway knows the tags", async || {
        Reply::to(call(&world, MODERN, "read")).await.status == 403
    })
    .await;
    world
}

fn with_scope(world: &World, scope: &str) -> String {
    world.issuer.token_saying(&json!({ "scope": scope }))
}

/// Returns the scopes in the challenge of a 403, or `None` if the request was allowed.
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
    let before = count_runs(&world);
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
    assert_eq!(count_runs(&world), before, "something ran");
    world.token = with_scope(&world, "up");
    let list = request(&world, MODERN, "tools/list", "");
    assert_eq!(lacks(list).await, None);
}

#[tokio::test]
async fn a_tool_needs_what_its_own_tags_say_and_is_denied_on_record() {
    let world = world().await;
    let before = count_runs(&world);
    for version in [MODERN, LEGACY] {
        for (name, needed) in [("read", "records"), ("write", "write")] {
            let lacking = lacks(call(&world, version, name)).await;
            assert_eq!(lacking.as_deref(), Some(needed));
            let outcome = world.audit.outcome().await;
            assert_eq!(outcome.status, Status::Denied);
            assert_eq!(outcome.reason, "insufficient_scope");
        }
    }
    assert_eq!(count_runs(&world), before);
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
async fn an_answer_on_the_route_says_what_is_left_of_a_limit() {
    let limits = serde_json::json!({ "limits": { "requests_per_minute": 3 } });
    let world = world_with(limits).await;
    let called = Reply::to(call(&world, MODERN, "read")).await;
    let policy = r#""requests_per_minute";q=3;w=60"#;
    assert_eq!(called.header("ratelimit-policy"), policy);
    assert_eq!(
        called.header("ratelimit"),
        r#""requests_per_minute";r=2;t=20"#
    );
}
