//! Answers as streams that clients lost and resume.

use std::time::Duration;

use reqwest::RequestBuilder;
use serde_json::{Value, json};
use wardgate_domain::{ColumnTier, DenialReason};
use wardgate_proto::common::v1::ErrorReason;
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_proto::toolrunner::v1::call_tool_response::Event;

use crate::listen::get;
use crate::sessions::{begin, within};
use crate::stream_messages::{final_result, progress};
use crate::world::{LEGACY, OLDEST, Reply, World};
use wardgate_testkit::{EventStreamClient, PolicyAnswer};

const VERSIONS: [&str; 3] = [OLDEST, "2025-06-18", LEGACY];

/// Creates a call with a progress token in a session.
pub(crate) fn call(
    world: &World,
    version: &str,
    session: &str,
    tool: &str,
    id: u32,
) -> RequestBuilder {
    let body = json!({
        "jsonrpc": "2.0", "id": id, "method": "tools/call",
        "params": { "name": tool, "arguments": {}, "_meta": { "progressToken": id } },
    });
    within(world.tools_call(version, tool, "{}"), session).body(body.to_string())
}

pub(crate) fn back(world: &World, version: &str, session: &str, last: &str) -> RequestBuilder {
    within(get(world, "/mcp", Some(version)), session).header("last-event-id", last)
}

fn steps(heard: &Value) -> String {
    let steps = heard["params"]["progress"].as_f64();
    steps.unwrap_or_else(|| panic!("{heard}")).to_string()
}

#[tokio::test]
async fn every_event_of_an_answer_in_a_session_has_an_id_and_the_newest_version_begins_with_one() {
    let world = World::start().await;
    for version in VERSIONS {
        let session = begin(&world, version).await;
        let tool = world.tool_runner.live();
        tool.unbounded_send(progress(1.0, 2.0, "")).unwrap();
        let mut ear = EventStreamClient::open(call(&world, version, &session, "reads", 7)).await;
        if version == LEGACY {
            let primer = ear.next_event().await.unwrap();
            assert!(
                primer.starts_with("id: ") && primer.ends_with("\nretry: 1000\ndata:"),
                "{primer}"
            );
        }
        let mut seen = vec![std::mem::take(&mut ear.last_id)];
        assert_eq!(steps(&ear.next_message().await.unwrap()), "1");
        seen.push(std::mem::take(&mut ear.last_id));
        tool.unbounded_send(final_result()).unwrap();
        assert_eq!(ear.next_message().await.unwrap()["id"], 7);
        seen.push(std::mem::take(&mut ear.last_id));
        assert_eq!(seen[0].is_empty(), version != LEGACY, "{version}");
        assert!(!seen[1].is_empty() && !seen[2].is_empty() && seen[1] != seen[2]);
        assert!(ear.next_message().await.is_none());
    }
}

#[tokio::test]
async fn without_a_session_or_a_word_before_the_answer_nothing_has_an_id() {
    let world = World::start().await;
    let session = begin(&world, LEGACY).await;
    let quiet = within(world.tools_call(LEGACY, "reads", "{}"), &session);
    let reply = Reply::to(quiet).await;
    assert_eq!(reply.header("content-type"), "application/json");
    let tool = world.tool_runner.live();
    for event in [progress(1.0, 2.0, ""), final_result()] {
        tool.unbounded_send(event).unwrap();
    }
    let mut request = call(&world, LEGACY, &session, "reads", 8).build().unwrap();
    request.headers_mut().remove("mcp-session-id");
    let reply = world
        .http
        .execute(request)
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    assert!(
        reply.contains("secret") && !reply.contains("id: "),
        "{reply}"
    );
}

/// Creates the same call by a client that prefers streams.
fn call_for_stream(world: &World, version: &str, session: &str) -> reqwest::Request {
    let mut request = call(world, version, session, "reads", 7).build().unwrap();
    let prefers_streams = "text/event-stream, application/json".parse().unwrap();
    request.headers_mut().insert("accept", prefers_streams);
    request
}

#[tokio::test]
async fn a_client_that_prefers_streams_gets_one_even_for_an_answer_that_nothing_precedes() {
    let world = World::start().await;
    for version in VERSIONS {
        let session = begin(&world, version).await;
        let response = world
            .http
            .execute(call_for_stream(&world, version, &session));
        let response = response.await.unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let events = response.text().await.unwrap();
        let has_primer = events.starts_with("id: ") && events.contains("\nretry: 1000\ndata:\n\n");
        assert_eq!(has_primer, version == LEGACY, "{version}: {events}");
        assert!(events.contains("the secret result"), "{events}");
    }
    for (accept, media_type) in [
        ("text/event-stream, application/json", "text/event-stream"),
        ("application/json, text/event-stream", "application/json"),
    ] {
        let mut list = world.message(LEGACY, "tools/list", "").build().unwrap();
        list.headers_mut().insert("accept", accept.parse().unwrap());
        let answer = world.http.execute(list).await.unwrap();
        assert_eq!(answer.headers()["content-type"], media_type);
        assert!(answer.text().await.unwrap().contains(r#""id":7"#));
    }
}

#[tokio::test]
async fn a_stream_is_closed_where_the_server_closed_its_own_and_the_answer_is_fetched() {
    let world = World::start().await;
    let twin = world.twin().await;
    let session = begin(&world, LEGACY).await;
    let tool = world.tool_runner.live();
    tool.unbounded_send(Event::StreamClosed(pb::StreamClosed {}))
        .unwrap();
    let response = world
        .http
        .execute(call_for_stream(&world, LEGACY, &session));
    let events = response.await.unwrap().text().await.unwrap();
    let (id, rest) = events
        .strip_prefix("id: ")
        .unwrap()
        .split_once('\n')
        .unwrap();
    assert_eq!(rest, "retry: 1000\ndata:\n\n");
    tool.unbounded_send(final_result()).unwrap();
    let mut ear = EventStreamClient::open(back(&twin, LEGACY, &session, id)).await;
    assert_eq!(ear.next_message().await.unwrap()["id"], 7);
    assert!(ear.next_message().await.is_none());
}

#[tokio::test]
async fn what_a_client_missed_it_hears_at_any_gateway_and_nothing_twice() {
    let world = World::start().await;
    let twin = world.twin().await;
    for version in VERSIONS {
        let session = begin(&world, version).await;
        let (tool, other) = (world.tool_runner.live(), world.tool_runner.live());
        tool.unbounded_send(progress(1.0, 9.0, "")).unwrap();
        let mut ear = EventStreamClient::open(call(&world, version, &session, "reads", 7)).await;
        assert_eq!(steps(&ear.next_message().await.unwrap()), "1");
        let last = ear.last_id.clone();
        // Another call of the session has a separate stream.
        other.unbounded_send(progress(5.0, 9.0, "")).unwrap();
        let mut others = EventStreamClient::open(call(&world, version, &session, "reads", 8)).await;
        assert_eq!(steps(&others.next_message().await.unwrap()), "5");
        drop(ear);
        tool.unbounded_send(progress(2.0, 9.0, "")).unwrap();
        let mut ear = EventStreamClient::open(back(&twin, version, &session, &last)).await;
        assert_eq!(steps(&ear.next_message().await.unwrap()), "2");
        let last = ear.last_id.clone();
        drop(ear);
        tool.unbounded_send(progress(3.0, 9.0, "")).unwrap();
        tool.unbounded_send(final_result()).unwrap();
        for at in [&twin, &world] {
            let mut ear = EventStreamClient::open(back(at, version, &session, &last)).await;
            assert_eq!(steps(&ear.next_message().await.unwrap()), "3");
            let answer = ear.next_message().await.unwrap();
            assert_eq!(answer["id"], 7);
            assert!(answer["result"]["_meta"]["dev.wardgate/receipt"].is_object());
            assert!(ear.next_message().await.is_none());
        }
        other.unbounded_send(final_result()).unwrap();
        assert_eq!(others.next_message().await.unwrap()["id"], 8);
    }
    assert_eq!(twin.tool_runner.asked.count(), 0);
}

#[tokio::test]
async fn events_are_their_sessions_alone_and_are_not_kept_for_ever() {
    let world = World::start().await;
    let (session, other) = (begin(&world, LEGACY).await, begin(&world, LEGACY).await);
    let tool = world.tool_runner.live();
    for event in [progress(1.0, 2.0, ""), final_result()] {
        tool.unbounded_send(event).unwrap();
    }
    let mut ear = EventStreamClient::open(call(&world, LEGACY, &session, "reads", 7)).await;
    ear.next_message().await.unwrap();
    let last = ear.last_id.clone();
    let unknown = |reply: Reply| {
        assert_eq!(
            (reply.status, reply.at("/error/data/reason")),
            (400, json!("unknown_event")),
            "{reply:?}"
        );
        assert!(reply.text.contains("Last-Event-ID"), "{reply:?}");
    };
    unknown(Reply::to(back(&world, LEGACY, &other, &last)).await);
    unknown(Reply::to(back(&world, LEGACY, &session, "made-up")).await);
    world.clock.advance(Duration::from_mins(59));
    let fresh = world.issuer.token("dr.lee", &["Doctor"]);
    let ping = world.message_of(&fresh, LEGACY, "ping", "");
    assert_eq!(Reply::to(within(ping, &session)).await.status, 200);
    world.clock.advance(Duration::from_mins(2));
    let mut request = back(&world, LEGACY, &session, &last).build().unwrap();
    let fresh = world.issuer.token("dr.lee", &["Doctor"]);
    let bearer = format!("Bearer {fresh}").parse().unwrap();
    request.headers_mut().insert("authorization", bearer);
    let response = world.http.execute(request).await.unwrap();
    assert_eq!(response.status(), 400);
}

#[tokio::test]
async fn nothing_a_client_heard_is_stored_in_clear() {
    let world = World::start().await;
    let session = begin(&world, LEGACY).await;
    let tool = world.tool_runner.live();
    for event in [progress(1.0, 2.0, "canary of progress"), final_result()] {
        tool.unbounded_send(event).unwrap();
    }
    let mut ear = EventStreamClient::open(call(&world, LEGACY, &session, "reads", 7)).await;
    ear.next_message().await.unwrap();
    ear.next_message().await.unwrap();
    let stored = world.read_store();
    assert!(stored.len() > 4_096);
    for canary in [
        "canary of progress",
        "secret result",
        session.as_str(),
        "dr.lee",
    ] {
        let canary = canary.as_bytes();
        assert!(!stored.windows(canary.len()).any(|part| part == canary));
    }
}

/// Makes a call whose stream is lost before the answer, and returns the id of its last event.
async fn broken_off(world: &World, session: &str) -> String {
    let tool = world.tool_runner.live();
    tool.unbounded_send(progress(1.0, 2.0, "")).unwrap();
    let mut ear = EventStreamClient::open(call(world, LEGACY, session, "reads", 7)).await;
    ear.next_message().await.unwrap();
    let last = ear.last_id.clone();
    drop(ear);
    tool.unbounded_send(final_result()).unwrap();
    world.audit.outcome().await;
    last
}

const NO: PolicyAnswer = PolicyAnswer::Deny {
    reason: DenialReason::NotPermitted,
    visible: false,
};

#[tokio::test]
async fn what_was_held_back_is_given_only_while_the_policy_allows_it() {
    let world = World::start().await;
    let session = begin(&world, LEGACY).await;
    let last = broken_off(&world, &session).await;
    let twin = world.twin().await;
    let away = PolicyAnswer::Fail(ErrorReason::DeadlineExceeded);
    for (say, status, reason) in [
        (NO, 400, "unknown_event"),
        (away, 503, "policy_unavailable"),
    ] {
        twin.policy.says(say);
        let reply = Reply::to(back(&twin, LEGACY, &session, &last)).await;
        assert_eq!(
            (reply.status, reply.at("/error/data/reason")),
            (status, json!(reason)),
            "{reply:?}"
        );
        assert!(!reply.text.contains("secret"), "{reply:?}");
    }
    twin.policy.says(PolicyAnswer::Allow);
    let mut ear = EventStreamClient::open(back(&twin, LEGACY, &session, &last)).await;
    assert_eq!(ear.next_message().await.unwrap()["id"], 7);
    let asked = twin.policy.asked.entries().pop().unwrap();
    assert_eq!(
        (asked.tool.unwrap().name.as_str(), &asked.arguments_json[..]),
        ("reads", &b"{}"[..])
    );
}

#[tokio::test]
async fn who_would_see_something_else_of_it_by_now_gets_nothing_of_what_was_held_back() {
    let world = World::start().await;
    let session = begin(&world, LEGACY).await;
    let last = broken_off(&world, &session).await;
    for tier in [ColumnTier::Partial, ColumnTier::Clear] {
        let twin = world.twin().await;
        twin.policy.shows("phi.text", tier);
        let reply = Reply::to(back(&twin, LEGACY, &session, &last)).await;
        assert_eq!(reply.at("/error/data/reason"), "unknown_event", "{reply:?}");
    }
    let reply = Reply::to(back(&world, LEGACY, &session, &last)).await;
    assert_eq!(reply.status, 200);
}

#[tokio::test]
async fn who_may_no_longer_call_hears_nothing_more_of_a_call_that_goes_on() {
    let world = World::start().await;
    let twin = world.twin().await;
    // The permit expires so soon that it is not reused for another decision.
    twin.policy.permits_last(Duration::from_secs(1));
    let session = begin(&world, LEGACY).await;
    let tool = world.tool_runner.live();
    tool.unbounded_send(progress(1.0, 9.0, "")).unwrap();
    let mut ear = EventStreamClient::open(call(&world, LEGACY, &session, "reads", 7)).await;
    ear.next_message().await.unwrap();
    let last = ear.last_id.clone();
    drop(ear);
    tool.unbounded_send(progress(2.0, 9.0, "")).unwrap();
    let mut ear = EventStreamClient::open(back(&twin, LEGACY, &session, &last)).await;
    assert_eq!(steps(&ear.next_message().await.unwrap()), "2");
    twin.policy.says(NO);
    tool.unbounded_send(final_result()).unwrap();
    assert!(
        ear.next_message().await.is_none(),
        "it ends without the answer"
    );
}
