//! Sessions of Streamable HTTP before 2026-07-28, with one gateway and with two.

use std::time::Duration;

use reqwest::RequestBuilder;
use serde_json::{Value, json};
use wardgate_domain::Status;

use crate::listen::get;
use crate::memory::{add, create};
use crate::world::{LEGACY, MODERN, OLDEST, Reply, World, definition};
use wardgate_testkit::{EventStreamClient, RunBehavior, listed_tool};

const VERSIONS: [&str; 3] = [OLDEST, "2025-06-18", LEGACY];

fn initialize(world: &World, version: &str, capabilities: &Value) -> RequestBuilder {
    let params = format!(r#""protocolVersion":"{version}","capabilities":{capabilities}"#);
    world.message(version, "initialize", &params)
}

/// Begins a session, and returns its id.
pub(crate) async fn begin(world: &World, version: &str) -> String {
    begin_with(world, version, &json!({})).await
}

pub(crate) async fn begin_with(world: &World, version: &str, capabilities: &Value) -> String {
    let reply = Reply::to(initialize(world, version, capabilities)).await;
    assert_eq!(reply.at("/result/protocolVersion"), version, "{reply:?}");
    reply.header("mcp-session-id").to_owned()
}

/// Begins a session for the holder of `token`, and returns its id.
pub(crate) async fn begin_as(world: &World, token: &str, version: &str) -> String {
    let params = format!(r#""protocolVersion":"{version}","capabilities":{{}}"#);
    let reply = Reply::to(world.message_of(token, version, "initialize", &params)).await;
    reply.header("mcp-session-id").to_owned()
}

/// Adds the session to a request.
pub(crate) fn within(request: RequestBuilder, session: &str) -> RequestBuilder {
    request.header("mcp-session-id", session)
}

async fn ping(world: &World, token: &str, session: &str) -> Reply {
    Reply::to(within(world.message_of(token, LEGACY, "ping", ""), session)).await
}

fn delete(world: &World, session: &str) -> RequestBuilder {
    let request = world.http.delete(world.url("/mcp"));
    within(request.bearer_auth(&world.token), session)
}

fn is_unknown_session(reply: &Reply) -> bool {
    (reply.status, reply.at("/error/data/reason")) == (404, json!("unknown_session"))
}

#[tokio::test]
async fn initialize_begins_a_session_that_knows_its_version() {
    let world = World::start().await;
    for version in VERSIONS {
        let session = begin(&world, version).await;
        assert!(!session.is_empty() && session.bytes().all(|byte| byte.is_ascii_graphic()));
        assert!(session.len() < 500, "{}", session.len());
        let mut request = within(world.tools_call(version, "reads", "{}"), &session)
            .build()
            .unwrap();
        request.headers_mut().remove("mcp-protocol-version");
        let reply = world.http.execute(request).await.unwrap();
        let reply: Value = serde_json::from_str(&reply.text().await.unwrap()).unwrap();
        let structured = reply["result"].get("structuredContent").is_some();
        assert_eq!(structured, version != OLDEST, "{version}");
    }
    let outcomes = world.audit.outcomes.reaches(3).await;
    let protocols: Vec<_> = outcomes
        .iter()
        .map(|ended| ended.call.protocol.as_str())
        .collect();
    assert_eq!(protocols, VERSIONS);
}

#[tokio::test]
async fn only_initialize_of_an_older_version_over_streamable_http_begins_one() {
    let world = World::start().await;
    let hello = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{}}}"#;
    for request in [
        world.message(LEGACY, "ping", ""),
        world.tools_call(MODERN, "reads", "{}"),
        world.message(OLDEST, "ping", "").body(format!("[{hello}]")),
        world
            .http
            .post(world.url("/message"))
            .bearer_auth(&world.token)
            .header("content-type", "application/json")
            .body(hello),
    ] {
        let reply = Reply::to(request).await;
        assert_eq!((reply.status, reply.header("mcp-session-id")), (200, ""));
    }
}

#[tokio::test]
async fn a_session_is_its_callers_with_whatever_token_at_every_gateway() {
    let world = World::start().await;
    let twin = world.twin().await;
    let session = begin(&world, LEGACY).await;
    let renewed = world.issuer.token("dr.lee", &["Doctor", "Other"]);
    for (at, token) in [(&world, &world.token), (&twin, &renewed)] {
        assert_eq!(ping(at, token, &session).await.status, 200);
    }
    let mallory = world.issuer.token("mallory", &["Doctor"]);
    for (token, session) in [
        (&mallory, session.as_str()),
        (&world.token, "made-up"),
        (&world.token, ""),
        (&world.token, &session[1..]),
    ] {
        let reply = ping(&twin, token, session).await;
        assert!(is_unknown_session(&reply), "{session}: {reply:?}");
    }
    let toolset = world
        .http
        .post(world.url("/mcp/other"))
        .bearer_auth(&world.token)
        .header("content-type", "application/json")
        .body(crate::world::PING);
    assert!(is_unknown_session(
        &Reply::to(within(toolset, &session)).await
    ));
}

#[tokio::test]
async fn delete_ends_a_session_at_every_gateway() {
    let world = World::start().await;
    let twin = world.twin().await;
    let (session, other) = (begin(&world, LEGACY).await, begin(&world, LEGACY).await);
    let ended = Reply::to(delete(&twin, &session)).await;
    assert_eq!((ended.status, ended.text.as_str()), (204, ""));
    for at in [&world, &twin] {
        assert!(is_unknown_session(&ping(at, &world.token, &session).await));
        assert!(is_unknown_session(&Reply::to(delete(at, &session)).await));
        let listens = within(get(at, "/mcp", Some(LEGACY)), &session);
        assert!(is_unknown_session(&Reply::to(listens).await));
        assert_eq!(ping(at, &world.token, &other).await.status, 200);
    }
    let nameless = world
        .http
        .delete(world.url("/mcp"))
        .bearer_auth(&world.token);
    let reply = Reply::to(nameless).await;
    assert_eq!(reply.status, 400);
    assert!(reply.text.contains("Mcp-Session-Id"), "{reply:?}");
}

#[tokio::test]
async fn a_session_that_lies_idle_ends() {
    let world = World::start().await;
    let session = begin(&world, LEGACY).await;
    for _ in 0..2 {
        world.clock.advance(Duration::from_mins(50));
        let token = world.issuer.token("dr.lee", &["Doctor"]);
        assert_eq!(ping(&world, &token, &session).await.status, 200);
    }
    world.clock.advance(Duration::from_mins(61));
    let token = world.issuer.token("dr.lee", &["Doctor"]);
    assert!(is_unknown_session(&ping(&world, &token, &session).await));
}

#[tokio::test]
async fn what_was_agreed_on_holds_whatever_a_header_names_and_a_modern_request_is_in_no_session() {
    let world = World::start().await;
    let session = begin(&world, "2025-06-18").await;
    let reply = Reply::to(within(world.tools_call(LEGACY, "reads", "{}"), &session)).await;
    assert!(reply.is_released());
    let outcome = world.audit.outcomes.reaches(1).await.swap_remove(0);
    assert_eq!(outcome.call.protocol, "2025-06-18");
    for session in [session.as_str(), "made-up"] {
        let reply = Reply::to(within(world.tools_call(MODERN, "reads", "{}"), session)).await;
        assert!(reply.is_released());
    }
}

#[tokio::test]
async fn what_its_client_can_be_asked_and_wants_to_hear_goes_with_every_call() {
    let world = World::start().await;
    let twin = world.twin().await;
    let capabilities = json!({ "sampling": {}, "elicitation": { "url": {} }, "x": {} });
    let session = begin_with(&world, LEGACY, &capabilities).await;
    let level = |level: &str| format!(r#""level":"{level}""#);
    let set = world.message(LEGACY, "logging/setLevel", &level("warning"));
    let reply = Reply::to(within(set, &session)).await;
    assert_eq!(reply.at("/result"), json!({}), "{reply:?}");
    let reply = Reply::to(within(twin.tools_call(LEGACY, "reads", "{}"), &session)).await;
    assert!(reply.is_released());
    let asked = twin.tool_runner.asked.reaches(1).await.swap_remove(0);
    let interaction = asked.interaction.unwrap();
    assert_eq!(interaction.log_level, "warning");
    let said: Value = serde_json::from_slice(&interaction.client_capabilities_json).unwrap();
    assert_eq!(
        said,
        json!({ "sampling": {}, "elicitation": { "url": {} } })
    );

    for (request, code) in [
        (
            within(
                world.message(LEGACY, "logging/setLevel", &level("loud")),
                &session,
            ),
            -32602,
        ),
        (
            world.message(LEGACY, "logging/setLevel", &level("info")),
            -32600,
        ),
        (
            world.message(MODERN, "logging/setLevel", &level("info")),
            -32601,
        ),
    ] {
        assert_eq!(Reply::to(request).await.code(), code);
    }
}

#[tokio::test]
async fn a_call_of_a_session_is_cancelled_wherever_it_runs() {
    let world = World::start().await;
    let twin = world.twin().await;
    for at in [&world, &twin] {
        let (session, other) = (begin(&world, LEGACY).await, begin(&world, LEGACY).await);
        let before = (
            world.tool_runner.asked.count(),
            world.audit.outcomes.count(),
        );
        world.tool_runner.next([RunBehavior::Hang]);
        let call = within(world.tools_call(LEGACY, "writes", "{}"), &session);
        let call = tokio::spawn(Reply::to(call));
        world.tool_runner.asked.reaches(before.0 + 1).await;
        let cancel = json!({
            "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 7 },
        });
        for session in [&other, &session] {
            assert!(!call.is_finished());
            let cancel = at.message(LEGACY, "", "").body(cancel.to_string());
            let reply = Reply::to(within(cancel, session)).await;
            assert_eq!(reply.status, 202);
        }
        let reply = call.await.unwrap();
        assert_eq!(reply.at("/error/data/reason"), "cancelled");
        let outcome = world
            .audit
            .outcomes
            .reaches(before.1 + 1)
            .await
            .pop()
            .unwrap();
        assert_eq!(outcome.status, Status::Cancelled);
    }
}

fn list_changed(method: &str) -> Value {
    json!({ "jsonrpc": "2.0", "method": format!("notifications/{method}/list_changed") })
}

#[tokio::test]
async fn a_session_has_one_stream_of_changes_which_the_newest_is() {
    let world = World::start().await;
    let twin = world.twin().await;
    let session = begin(&world, LEGACY).await;
    let mut old =
        EventStreamClient::open(within(get(&world, "/mcp", Some(LEGACY)), &session)).await;
    let primer = old.next_event().await.unwrap();
    assert!(
        primer.starts_with("id: ") && primer.ends_with("\nretry: 1000\ndata:"),
        "{primer}"
    );
    let mut new = EventStreamClient::open(within(get(&twin, "/mcp", Some(LEGACY)), &session)).await;
    for at in [&world, &twin] {
        at.tool_runner
            .configure(vec![listed_tool("new", &definition())]);
    }
    assert_eq!(new.next_message().await, Some(list_changed("tools")));
    assert_eq!(old.next_message().await, None);
}

#[tokio::test]
async fn whoever_comes_back_with_an_event_hears_that_all_may_have_changed() {
    let world = World::start().await;
    let twin = world.twin().await;
    create(&twin, "a").await;
    for version in VERSIONS {
        let session = begin(&world, version).await;
        let uri = r#""uri":"memory://conversation/a""#;
        let subscribe = within(twin.message(version, "resources/subscribe", uri), &session);
        assert_eq!(Reply::to(subscribe).await.code(), 0);
        let mut ear =
            EventStreamClient::open(within(get(&world, "/mcp", Some(version)), &session)).await;
        if version == LEGACY {
            ear.next_event().await.unwrap();
        } else {
            world
                .tool_runner
                .configure(vec![listed_tool(version, &definition())]);
            assert_eq!(ear.next_message().await, Some(list_changed("tools")));
        }
        let id = std::mem::take(&mut ear.last_id);
        drop(ear);
        let back = within(get(&twin, "/mcp", Some(version)), &session);
        let mut back = EventStreamClient::open(back.header("last-event-id", &id)).await;
        assert_eq!(back.next_message().await, Some(list_changed("tools")));
        assert_eq!(back.next_message().await, Some(list_changed("resources")));
        let updated = back.next_message().await.unwrap();
        assert_eq!(updated["params"]["uri"], "memory://conversation/a");
        add(&twin, "a", "user", "hello").await;
        let updated = back.next_message().await.unwrap();
        assert_eq!(updated["params"]["uri"], "memory://conversation/a");
        // The id of an event is valid in its own session only.
        let other = begin(&world, version).await;
        let other = within(get(&world, "/mcp", Some(version)), &other);
        let reply = Reply::to(other.header("last-event-id", &id)).await;
        assert_eq!(
            (reply.status, reply.at("/error/data/reason")),
            (400, json!("unknown_event"))
        );
    }
}
