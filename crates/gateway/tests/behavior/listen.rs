//! Clients with an open stream, which are notified when their list of tools changes.

use std::time::Duration;

use reqwest::RequestBuilder;
use serde_json::{Value, json};

use crate::world::{LEGACY, MODERN, OLDEST, Reply, World, definition};
use wardgate_testkit::{EventStreamClient, PATIENCE, listed_tool, until_true};

pub(crate) const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
const ALL: &str = r#""notifications":{"toolsListChanged":true,"promptsListChanged":true,"resourceSubscriptions":["memory://conversation/a"]}"#;

pub(crate) fn subscribe(world: &World, params: &str) -> RequestBuilder {
    world.message(MODERN, "subscriptions/listen", params)
}

pub(crate) fn get(world: &World, path: &str, version: Option<&str>) -> RequestBuilder {
    let request = world.http.get(world.url(path)).bearer_auth(&world.token);
    let request = request.header("accept", "text/event-stream");
    match version {
        Some(version) => request.header("mcp-protocol-version", version),
        None => request,
    }
}

fn list_changed() -> Value {
    json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" })
}

fn changed_of(id: &Value) -> Value {
    let mut changed = list_changed();
    changed["params"] = json!({ "_meta": { SUBSCRIPTION: id } });
    changed
}

#[tokio::test]
async fn both_eras_hear_of_a_changed_catalogue_and_of_changed_policies() {
    let world = World::start().await;
    let mut modern = EventStreamClient::open(subscribe(&world, ALL)).await;
    let acknowledged = modern.next_message().await.unwrap();
    assert_eq!(
        acknowledged,
        json!({
            "jsonrpc": "2.0",
            "method": "notifications/subscriptions/acknowledged",
            "params": {
                "_meta": { SUBSCRIPTION: 7 },
                "notifications": {
                    "resourceSubscriptions": ["memory://conversation/a"],
                    "toolsListChanged": true,
                },
            },
        })
    );
    let mut older = Vec::new();
    for version in [None, Some(LEGACY), Some(OLDEST)] {
        older.push(EventStreamClient::open(get(&world, "/mcp", version)).await);
    }
    older.push(EventStreamClient::open(get(&world, "/mcp/ward", Some(LEGACY))).await);

    world
        .tool_runner
        .configure(vec![listed_tool("new", &definition())]);
    assert_eq!(modern.next_message().await, Some(changed_of(&json!(7))));
    for ear in &mut older {
        assert_eq!(ear.next_message().await, Some(list_changed()));
    }
    world.policy.change(b"others");
    assert_eq!(modern.next_message().await, Some(changed_of(&json!(7))));
    for ear in &mut older {
        assert_eq!(ear.next_message().await, Some(list_changed()));
    }
}

#[tokio::test]
async fn what_was_not_asked_for_is_neither_acknowledged_nor_told() {
    let world = World::start().await;
    let prompts = r#""notifications":{"promptsListChanged":true}"#;
    let mut deaf = EventStreamClient::open(subscribe(&world, prompts)).await;
    let accepted = deaf.next_message().await.unwrap()["params"]["notifications"].take();
    assert_eq!(accepted, json!({}));
    let mut other = EventStreamClient::open(get(&world, "/mcp", None)).await;
    world
        .tool_runner
        .configure(vec![listed_tool("new", &definition())]);
    assert_eq!(other.next_message().await, Some(list_changed()));
    world.stop();
    // The next message is the last one of the stream.
    assert_eq!(deaf.next_message().await.unwrap()["id"], 7);
}

#[tokio::test]
async fn a_tool_runner_that_comes_back_unchanged_is_no_change() {
    let world = World::start().await;
    let tools = || vec![listed_tool("same", &definition())];
    let mut ear = EventStreamClient::open(get(&world, "/mcp", None)).await;
    world.tool_runner.configure(tools());
    assert_eq!(ear.next_message().await, Some(list_changed()));
    world.tool_runner.withdraw_catalogue();
    world.tool_runner.turned_away.reaches(1).await;
    let listed = world.tool_runner.listed.count();
    world.tool_runner.configure(tools());
    world.tool_runner.listed.reaches(listed + 1).await;
    let early = tokio::time::timeout(Duration::from_millis(1_500), ear.next_message()).await;
    assert!(early.is_err(), "{early:?}");
}

#[tokio::test]
async fn what_no_client_is_shown_of_the_catalogue_is_no_change_for_them() {
    let world = World::start().await;
    let mut ear = EventStreamClient::open(get(&world, "/mcp", None)).await;
    let listed = world.tool_runner.listed.count();
    let mut slower = listed_tool("same", &definition());
    world.tool_runner.configure(vec![slower.clone()]);
    assert_eq!(ear.next_message().await, Some(list_changed()));
    slower.time_limit = Some(Duration::from_secs(77).try_into().unwrap());
    world.tool_runner.configure(vec![slower]);
    world.tool_runner.listed.reaches(listed + 2).await;
    let early = tokio::time::timeout(Duration::from_millis(500), ear.next_message()).await;
    assert!(early.is_err(), "{early:?}");
}

#[tokio::test]
async fn a_gateway_that_is_told_to_stop_says_so_and_waits_for_no_listener() {
    let world = World::start().await;
    let mut modern = EventStreamClient::open(subscribe(&world, ALL)).await;
    modern.next_message().await.unwrap();
    let mut older = EventStreamClient::open(get(&world, "/mcp", None)).await;
    let stopped = world.stop();
    let last = modern.next_message().await.unwrap();
    assert_eq!(last["id"], 7);
    assert_eq!(last["result"]["resultType"], "complete");
    assert_eq!(last["result"]["_meta"][SUBSCRIPTION], 7);
    assert_eq!(modern.next_message().await, None);
    assert_eq!(older.next_message().await, None);
    tokio::time::timeout(PATIENCE, stopped)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn a_stream_ends_with_the_token_it_was_opened_with() {
    let world = World::start().await;
    // Clocks may differ by 10 s, and this token is in the last of them.
    let token = world.issuer.token_until("dr.lee", &[], 1_800_000_000 - 9);
    let request = world.message_of(&token, MODERN, "subscriptions/listen", ALL);
    let mut ear = EventStreamClient::open(request).await;
    ear.next_message().await.unwrap();
    assert_eq!(ear.next_message().await, None);
}

#[tokio::test]
async fn nobody_listens_without_a_token_or_where_there_is_nothing_to_hear() {
    let world = World::start().await;
    let stranger = world.message_of("garbage", MODERN, "subscriptions/listen", ALL);
    assert_eq!(Reply::to(stranger).await.status, 401);
    let stranger = world.http.get(world.url("/mcp"));
    let stranger = stranger.header("accept", "text/event-stream");
    assert_eq!(Reply::to(stranger).await.status, 401);

    for (path, version) in [
        ("/mcp", Some(MODERN)),
        ("/mcp", Some("2099-01-01")),
        ("/message", None),
    ] {
        let reply = Reply::to(get(&world, path, version)).await;
        assert_eq!(reply.status, 405, "{path} {version:?}");
    }
    let older = world.message(LEGACY, "subscriptions/listen", ALL);
    assert_eq!(Reply::to(older).await.code(), -32601);
}

#[tokio::test]
async fn a_subscription_that_says_not_what_for_is_refused() {
    let world = World::start().await;
    for params in [
        "",
        r#""notifications":[true]"#,
        r#""notifications":null"#,
        r#""notifications":{"toolsListChanged":"yes"}"#,
    ] {
        let reply = Reply::to(subscribe(&world, params)).await;
        assert_eq!(reply.code(), -32602, "{params}");
        assert!(reply.text.contains("params.notifications"), "{params}");
    }
}

#[tokio::test]
async fn streams_are_bounded_and_one_that_is_closed_makes_room() {
    let world = World::start_with(json!({ "limits": { "streams": 2 } })).await;
    let first = EventStreamClient::open(get(&world, "/mcp", None)).await;
    let _second = EventStreamClient::open(subscribe(&world, ALL)).await;
    for request in [get(&world, "/mcp", None), subscribe(&world, ALL)] {
        let reply = Reply::to(request).await;
        assert_eq!((reply.status, reply.code()), (429, -32603));
    }
    drop(first);
    until_true("there is room", async || {
        let opened = get(&world, "/mcp", None).send().await.unwrap();
        opened.status() == 200
    })
    .await;
}
