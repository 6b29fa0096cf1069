//! The access of tokens: the resources that they are for, their scopes, and the errors for what they lack.

use serde_json::{Value, json};
use wardgate_domain::{DenialReason, Status};

use crate::world::{LEGACY, MODERN, OLDEST, PING, Reply, World, definition};
use wardgate_testkit::{PolicyAnswer, listed_tool, until_true};

const PUBLIC: &str = "https://mcp.hospital.example";

fn with_scope(world: &World, scope: &str) -> String {
    world.issuer.token_saying(&json!({ "scope": scope }))
}

/// The challenge of a 403 at `/mcp`.
fn challenge(scope: &str) -> String {
    format!(
        r#"Bearer error="insufficient_scope", scope="{scope}", resource_metadata="{PUBLIC}/.well-known/oauth-protected-resource/mcp", error_description="the token lacks a scope that this request requires""#
    )
}

async fn call(world: &World, token: &str, version: &str, tool: &str) -> Reply {
    Reply::to(world.tools_call_of(token, version, tool, "{}")).await
}

#[tokio::test]
async fn a_token_is_good_at_the_resource_it_is_for_and_below() {
    let world = World::start().await;
    let posted = async |path: &str, audience: &str| {
        let token = world.issuer.token_saying(&json!({ "aud": audience }));
        let request = world.http.post(world.url(path)).bearer_auth(token);
        let request = request.header("content-type", "application/json");
        Reply::to(request.body(PING)).await
    };
    for (path, audience, good) in [
        ("/mcp", "/mcp", true),
        ("/mcp/x", "/mcp", true),
        ("/mcp/x", "/mcp/x", true),
        ("/mcp/upstream/x", "/mcp", true),
        ("/mcp/upstream/x", "/mcp/upstream/x", true),
        ("/message", "/message", true),
        ("/messages/", "/sse", true),
        ("/mcp", "/mcp/x", false),
        ("/mcp", "/mcp/upstream/x", false),
        ("/mcp", "", false),
        ("/mcp", "/", false),
        ("/mcp/x", "/mcp/y", false),
        ("/mcp/upstream/x", "/mcp/upstream", false),
        ("/mcp/upstream/x", "/mcp/upstream/y", false),
        ("/mcp/upstream/x", "/mcp/x", false),
        ("/message", "/mcp", false),
        ("/messages/", "/messages/", false),
        ("/messages/", "/mcp", false),
    ] {
        let reply = posted(path, &format!("{PUBLIC}{audience}")).await;
        assert_eq!(reply.status != 401, good, "{audience} at {path}: {reply:?}");
        let blamed = reply
            .header("www-authenticate")
            .contains("another audience");
        assert_ne!(blamed, good, "{reply:?}");
    }
    // The audience is the public URL, whatever address the gateway listens on.
    let elsewhere = posted("/mcp", &world.url("/mcp")).await;
    assert_eq!(elsewhere.status, 401);
}

#[tokio::test]
async fn a_token_in_the_query_is_no_token() {
    let world = World::start().await;
    for path in ["/mcp", "/message", "/sse", "/mcp/upstream/x"] {
        for method in [reqwest::Method::GET, reqwest::Method::POST] {
            let url = format!("{}?access_token={}", world.url(path), world.token);
            let request = world.http.request(method, url).body(PING);
            let reply = Reply::to(request).await;
            assert_eq!(reply.status, 401, "{path}");
            assert!(!reply.header("www-authenticate").contains("error="));
        }
    }
}

#[tokio::test]
async fn a_malformed_authorization_is_a_bad_request() {
    let world = World::start().await;
    for values in [
        vec!["Bearer a.b.c a.b.c"],
        vec!["Bearer \"a.b.c\""],
        vec!["Bearer a.b.c", "Bearer a.b.c"],
    ] {
        let mut request = world.http.post(world.url("/mcp")).body(PING);
        for value in values {
            request = request.header("authorization", value);
        }
        let reply = Reply::to(request).await;
        assert_eq!(reply.status, 400, "{reply:?}");
        let challenge = reply.header("www-authenticate");
        assert!(challenge.contains(r#"error="invalid_request""#));
    }
}

#[tokio::test]
async fn what_every_token_needs_is_in_the_metadata_and_each_challenge() {
    let scopes = json!({ "scopes": { "required": ["mcp", "audit"], "writes": ["mcp.write"] } });
    let world = World::start_with(scopes).await;
    let metadata = "/.well-known/oauth-protected-resource/mcp";
    let metadata = Reply::to(world.http.get(world.url(metadata))).await;
    assert_eq!(metadata.at("/scopes_supported"), json!(["mcp", "audit"]));
    let stranger = Reply::to(world.http.post(world.url("/mcp")).body(PING)).await;
    assert_eq!(stranger.status, 401);
    let told = stranger.header("www-authenticate");
    assert!(told.contains(r#"scope="audit mcp""#), "{told}");

    let lacking = with_scope(&world, "mcp other");
    for (path, method) in [
        ("/mcp", reqwest::Method::POST),
        ("/mcp", reqwest::Method::GET),
        ("/sse", reqwest::Method::GET),
        ("/message", reqwest::Method::POST),
        ("/mcp/upstream/x", reqwest::Method::DELETE),
    ] {
        let request = world.http.request(method, world.url(path));
        let request = request.bearer_auth(&lacking);
        let reply = Reply::to(request.header("accept", "text/event-stream")).await;
        assert_eq!(reply.status, 403, "{path}");
        let expected = challenge("audit mcp").replace("resource/mcp", &format!("resource{path}"));
        assert_eq!(reply.header("www-authenticate"), expected);
        assert_eq!(reply.at("/error/data/reason"), "insufficient_scope");
    }
    assert_eq!(world.policy.asked.count(), 0);
    let good = with_scope(&world, "audit mcp");
    assert!(call(&world, &good, MODERN, "reads").await.is_released());
    let refused = world.audit.refusals.until(|all| !all.is_empty()).await;
    let counted = format!("{refused:?}");
    assert!(counted.contains("insufficient_scope"), "{counted}");
    assert!(counted.contains("dr.lee"), "{counted}");
}

/// Settings by which tools need further scopes: tools that may write, tools with the tag `phi`, and all calls.
fn steps() -> Value {
    json!({ "scopes": {
        "required": ["mcp"],
        "methods": { "tools/call": ["call"], "ping": ["pong"] },
        "writes": ["write"],
        "tags": { "phi": ["records"] },
        "includes": { "all": ["write", "call"], "mcp.all": ["mcp", "all"] },
    }})
}

async fn world_of_steps() -> World {
    let world = World::start_with(steps()).await;
    let tools = ["reads", "writes", "phi_writes"].map(|name| {
        let mut tool = listed_tool(name, &definition());
        if name.contains("phi") {
            let tags = &mut tool.facts.as_mut().unwrap().tags;
            *tags = vec!["other".to_owned(), "phi".to_owned()];
        }
        tool
    });
    world.tool_runner.configure(tools.to_vec());
    let token = with_scope(&world, "mcp");
    until_true("the gateway knows the tools", async || {
        let list = world.message_of(&token, MODERN, "tools/list", "");
        Reply::to(list).await.text.contains("phi_writes")
    })
    .await;
    world
}

#[tokio::test]
async fn a_call_says_all_that_it_needs_and_runs_once_the_token_has_it() {
    let world = world_of_steps().await;
    for (tool, needed, lacking, enough) in [
        ("reads", "call mcp", "mcp", "call mcp"),
        ("reads", "call mcp", "mcp write records", "mcp all"),
        ("writes", "call mcp write", "mcp call", "mcp.all"),
        (
            "phi_writes",
            "call mcp records write",
            "mcp.all",
            "mcp.all records",
        ),
        (
            "phi_writes_alias",
            "call mcp records write",
            "mcp.all",
            "mcp.all records",
        ),
    ] {
        for version in [MODERN, LEGACY, OLDEST] {
            let runs = world.tool_runner.asked.count();
            let refused = call(&world, &with_scope(&world, lacking), version, tool).await;
            assert_eq!(refused.status, 403, "{tool}: {refused:?}");
            assert_eq!(refused.header("www-authenticate"), challenge(needed));
            assert_eq!(refused.header("content-type"), "application/json");
            assert_eq!(refused.at("/id"), 7);
            assert_eq!(world.tool_runner.asked.count(), runs, "it ran");
            let good = call(&world, &with_scope(&world, enough), version, tool).await;
            assert!(good.is_released(), "{tool} with {enough}");
        }
    }
}

#[tokio::test]
async fn a_call_that_lacks_a_scope_is_on_record_as_denied_and_never_as_intent() {
    let world = world_of_steps().await;
    let token = with_scope(&world, "mcp call");
    let reply = call(&world, &token, MODERN, "writes").await;
    let outcome = world.audit.outcome().await;
    assert_eq!(outcome.status, Status::Denied);
    assert_eq!(outcome.reason, "insufficient_scope");
    assert_eq!(outcome.call.call_id.to_string(), reply.failed_call());
    assert_eq!(world.audit.attempts.count(), 1);
}

#[tokio::test]
async fn a_tool_that_the_caller_may_not_see_asks_for_no_scope() {
    let world = world_of_steps().await;
    let token = with_scope(&world, "mcp call");
    for reason in [DenialReason::NotPermitted, DenialReason::Forbidden] {
        world.policy.says(PolicyAnswer::Deny {
            reason,
            visible: false,
        });
        let hidden = call(&world, &token, MODERN, "phi_writes").await;
        let unknown = call(&world, &token, MODERN, "phi_nothing").await;
        for reply in [&hidden, &unknown] {
            assert_eq!((reply.status, reply.code()), (200, -32602));
            assert_eq!(reply.header("www-authenticate"), "");
        }
        let words = |reply: &Reply| reply.at("/error/message").to_string();
        let (one, other) = (words(&hidden), words(&unknown));
        assert_eq!(one.replace("phi_writes", "phi_nothing"), other);
    }
    // A call that is denied for its arguments does not ask for more scopes either.
    world.policy.says(PolicyAnswer::Deny {
        reason: DenialReason::Forbidden,
        visible: true,
    });
    let refused = call(&world, &token, MODERN, "phi_writes").await;
    assert_eq!(
        (refused.status, refused.at("/result/isError")),
        (200, json!(true))
    );
}

#[tokio::test]
async fn lists_need_no_more_than_the_resource_and_methods_what_is_configured() {
    let world = world_of_steps().await;
    let token = with_scope(&world, "mcp");
    let listed = Reply::to(world.message_of(&token, LEGACY, "tools/list", "")).await;
    assert_eq!(listed.at("/result/tools").as_array().unwrap().len(), 3);
    let refused = Reply::to(world.message_of(&token, LEGACY, "ping", "")).await;
    assert_eq!(refused.header("www-authenticate"), challenge("mcp pong"));
    let token = with_scope(&world, "mcp pong");
    let answered = Reply::to(world.message_of(&token, LEGACY, "ping", "")).await;
    assert_eq!(answered.status, 200);
}

#[tokio::test]
async fn one_message_of_a_batch_that_lacks_a_scope_takes_no_other_with_it() {
    let world = world_of_steps().await;
    let token = with_scope(&world, "mcp call");
    let call = |id: u8, tool: &str| json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": tool } });
    let batch = json!([call(1, "reads"), call(2, "writes")]).to_string();
    let request = world.message_of(&token, OLDEST, "ping", "").body(batch);
    let reply = Reply::to(request).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(reply.at("/0/result/isError"), false);
    assert_eq!(reply.at("/1/error/data/reason"), "insufficient_scope");
}

#[tokio::test]
async fn an_older_client_is_led_to_the_authorization_server_where_that_is_configured() {
    let path = "/.well-known/oauth-authorization-server";
    let silent = World::start().await;
    assert_eq!(
        Reply::to(silent.http.get(silent.url(path))).await.status,
        404
    );
    let there = "https://id.hospital.example/.well-known/oauth-authorization-server";
    let world = World::start_with(json!({ "authorization_server_metadata": there })).await;
    let http = reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .unwrap();
    let reply = Reply::to(http.get(world.url(path))).await;
    assert_eq!((reply.status, reply.header("location")), (307, there));
    assert_eq!(reply.header("access-control-allow-origin"), "*");
}

#[tokio::test]
async fn any_page_may_ask_where_tokens_come_from() {
    let world = World::start().await;
    for path in [
        "/.well-known/oauth-protected-resource",
        "/.well-known/oauth-protected-resource/mcp",
        "/.well-known/oauth-authorization-server",
    ] {
        let request = world
            .http
            .request(reqwest::Method::OPTIONS, world.url(path))
            .header("origin", "https://any.example")
            .header("access-control-request-method", "GET")
            .header("access-control-request-headers", "mcp-protocol-version");
        let reply = Reply::to(request).await;
        assert_eq!((reply.status, &*reply.text), (204, ""), "{path}");
        assert_eq!(reply.header("access-control-allow-origin"), "*");
        let headers = reply.header("access-control-allow-headers");
        assert_eq!(headers, "mcp-protocol-version");
    }
}
