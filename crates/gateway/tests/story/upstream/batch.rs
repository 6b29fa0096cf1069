//! Batches of 2025-03-26 on the route: each message by itself, their answers together.

use reqwest::RequestBuilder;
use serde_json::{Value, json};
use wardgate_domain::Status;
use wardgate_proto::common::v1::OfferKind;
use wardgate_proto::toolrunner::v1 as pb;

use super::sessions::begin;
use super::streams::{hears, next};
use super::{UP, count, get, post, world};
use crate::fakes::relay::{RelayBehavior, event, governed, head, head_of, last_event, nothing};
use crate::listen::EventStreamClient;
use crate::world::{LEGACY, MODERN, OLDEST, Reply, World};

const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
const PING: &str = r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#;

fn batch(world: &World, messages: &[&str]) -> RequestBuilder {
    post(world, UP, format!("[{}]", messages.join(" ,")))
}

fn call(id: u32, name: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{name}","arguments":{{"n":1.10}}}}}}"#
    )
}

fn answer(id: u32, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

#[tokio::test]
async fn each_message_is_carried_by_itself_under_its_own_right_with_its_own_record() {
    let world = world().await;
    let before = count(&world);
    let (first, hidden) = (call(1, "read"), call(2, "nothing"));
    let reply = Reply::to(batch(&world, &[&first, INITIALIZED, &hidden, PING])).await;
    assert_eq!(
        (reply.status, reply.header("content-type")),
        (200, "application/json")
    );
    let answers: Vec<Value> = serde_json::from_str(&reply.text).unwrap();
    let ids: Vec<_> = answers.iter().map(|answer| &answer["id"]).collect();
    assert_eq!(ids, [&json!(1), &json!(2), &json!("p")]);
    assert!(answers[0]["result"]["_meta"]["dev.wardgate/receipt"].is_object());
    assert_eq!(answers[1]["error"]["code"], -32602);
    let carried = &world.tool_runner.relays.asked.all()[before..];
    let seen: Vec<_> = carried
        .iter()
        .map(|it| (it.kind(), &it.message[..]))
        .collect();
    assert_eq!(
        seen,
        [
            (OfferKind::Tool, first.as_bytes()),
            (OfferKind::Connect, INITIALIZED.as_bytes()),
            (OfferKind::Connect, PING.as_bytes()),
        ]
    );
    let outcomes = world.audit.outcomes.reaches(2).await;
    let statuses: Vec<_> = outcomes.iter().map(|it| it.status).collect();
    assert_eq!(statuses, [Status::Ok, Status::UnknownTool]);

    let reply = Reply::to(batch(&world, &[INITIALIZED, INITIALIZED])).await;
    assert_eq!((reply.status, &*reply.text), (202, ""));
}

#[tokio::test]
async fn what_is_no_batch_of_that_version_is_refused_whole() {
    let world = world().await;
    let before = count(&world);
    let many = vec![INITIALIZED; 51];
    let initialize = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#;
    let call = call(1, "read");
    for (messages, words) in [
        (&[][..], "1 to 50"),
        (&many, "1 to 50"),
        (&[PING, initialize], "initialize"),
        (&[&call, PING, &call], "same `id`"),
    ] {
        let reply = Reply::to(batch(&world, messages)).await;
        assert_eq!((reply.status, reply.code()), (400, -32600), "{words}");
        assert!(reply.text.contains(words), "{reply:?}");
    }
    for version in [MODERN, LEGACY, "2025-06-18"] {
        let request = batch(&world, &[PING]).header("mcp-protocol-version", version);
        let reply = Reply::to(request).await;
        assert_eq!((reply.status, reply.code()), (400, -32600), "{version}");
    }
    let request = batch(&world, &[PING]).header("mcp-session-id", "garbage");
    assert_eq!(Reply::to(request).await.status, 404);
    assert_eq!(count(&world), before);
    let request = batch(&world, &[PING]).header("mcp-protocol-version", OLDEST);
    assert_eq!(Reply::to(request).await.status, 200);
}

#[tokio::test]
async fn once_a_server_answers_with_a_stream_all_are_events_of_one() {
    let world = world().await;
    let session = begin(&world).await;
    let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1,"progressToken":1}}"#;
    world.tool_runner.relays.next([
        RelayBehavior::Give(governed(200, &answer(1, "{}"))),
        RelayBehavior::Give(vec![
            head_of("the-upstreams-own", pb::RelayContent::Events),
            event("own/1", ""),
            event("own/2", progress),
            last_event("own/3", &answer(2, "{}")),
        ]),
        // It would have its client come back.
        RelayBehavior::Give(vec![
            head(200, pb::RelayContent::Events),
            event("own/4", progress),
        ]),
        RelayBehavior::Give(nothing(503)),
    ]);
    let calls = [
        call(1, "read"),
        call(2, "read"),
        call(3, "read"),
        call(4, "read"),
    ];
    let messages: Vec<&str> = calls.iter().map(|call| &**call).collect();
    let request = batch(&world, &messages).header("mcp-session-id", &session);
    let mut ear = EventStreamClient::on(request).await;
    let mut told = Vec::new();
    while let Some(lines) = next(&mut ear).await {
        assert!(
            !lines.iter().any(|line| line.starts_with("id:")),
            "{lines:?}"
        );
        let data = lines.iter().find_map(|line| line.strip_prefix("data: "));
        told.extend(data.map(|data| serde_json::from_str::<Value>(data).unwrap()));
    }
    let said: Vec<_> = told
        .iter()
        .map(|it| (&it["id"], it.get("error").is_some()))
        .collect();
    let none = Value::Null;
    assert_eq!(
        said,
        [
            (&json!(1), false),
            (&none, false),
            (&json!(2), false),
            (&none, false),
            (&json!(3), true),
            (&json!(4), true),
        ]
    );
    assert_eq!(world.audit.outcomes.reaches(4).await.len(), 4);
}

#[tokio::test]
async fn what_the_server_says_to_all_of_a_batch_is_the_batchs() {
    let world = world().await;
    world.tool_runner.relays.next([
        RelayBehavior::Give(nothing(404)),
        RelayBehavior::Give(nothing(404)),
    ]);
    let reply = Reply::to(batch(&world, &[&call(1, "read"), PING])).await;
    assert_eq!((reply.status, &*reply.text), (404, ""));
}

#[tokio::test]
async fn long_answers_are_not_gathered() {
    let world = world().await;
    let long = format!(r#"{{"content":["{}"]}}"#, "x".repeat(700_000));
    let given = [1, 2, 3].map(|id| RelayBehavior::Give(governed(200, &answer(id, &long))));
    world.tool_runner.relays.next(given);
    let calls = [call(1, "read"), call(2, "read"), call(3, "read")];
    let messages: Vec<&str> = calls.iter().map(|call| &**call).collect();
    let mut ear = EventStreamClient::on(batch(&world, &messages)).await;
    for id in 1..=3 {
        assert_eq!(hears(&mut ear).await.unwrap()["id"], id);
    }
    assert_eq!(hears(&mut ear).await, None);
}

#[tokio::test]
async fn a_client_that_hangs_up_leaves_no_message_undone() {
    let world = world().await;
    let before = count(&world);
    let upstream = world.tool_runner.relays.live();
    let (first, second) = (call(1, "read"), call(2, "write"));
    let client = tokio::spawn(Reply::to(batch(&world, &[&first, &second])));
    world.tool_runner.relays.asked.reaches(before + 1).await;
    client.abort();
    for part in governed(200, &answer(1, "{}")) {
        upstream.unbounded_send(part).unwrap();
    }
    let outcomes = world.audit.outcomes.reaches(2).await;
    assert!(outcomes.iter().all(|it| it.status == Status::Ok));
    // Whoever listens meanwhile is none of its business.
    assert_eq!(Reply::to(get(&world)).await.status, 200);
}
