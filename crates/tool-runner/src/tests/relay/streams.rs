//! Streams: as they come, taken up again, given up, and never without a bound.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use wardgate_proto::toolrunner::v1 as pb;

use super::{World, call, connect, event, events, failure, head, live_events, status};
use crate::tests::harness::eventually;

const RESULT: &str = r#"{"jsonrpc":"2.0","id":7,"result":{"content":[],"vendor":1.10}}"#;

#[tokio::test]
async fn events_go_on_before_the_next_ones_are_there() {
    let world = World::start().await;
    let (sender, answer) = live_events();
    world.says(answer);
    let mut relayed = world.relay(call(&world.harness, "{}").await).await.unwrap();
    let first = relayed.next().await.unwrap();
    assert_eq!(head(&first).content(), pb::RelayContent::Events);

    let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p-1","progress":1.10,"message":"words"}}"#;
    let text = format!(": a comment\n\ndata: {progress}\n\n");
    sender.unbounded_send(text).unwrap();
    let part = relayed.next().await.unwrap();
    assert_eq!(event(&part).message, progress);
    assert_eq!(event(&part).result, None);

    let text = format!("event: message\nid: 9\nretry: 250\ndata: {RESULT}\n\n");
    sender.unbounded_send(text).unwrap();
    let part = relayed.next().await.unwrap();
    assert_eq!(event(&part).message, RESULT);
    assert_eq!(event(&part).id.as_deref(), Some("9"));
    assert_eq!(event(&part).retry_ms, Some(250));
    let facts = event(&part).result.as_ref().unwrap();
    assert_eq!(facts.status(), pb::OutcomeStatus::Ok);
    drop(sender);
    assert!(relayed.next().await.is_none());
}

#[tokio::test]
async fn a_server_asks_and_is_answered_in_a_legacy_session() {
    let world = World::start().await;
    let (sender, answer) = live_events();
    world.says(answer);
    let mut calling = call(&world.harness, "{}").await;
    calling.session = "s-1".to_owned();
    calling.protocol_version = "2025-11-25".to_owned();
    let mut relayed = world.relay(calling).await.unwrap();
    relayed.next().await.unwrap();
    let asks = r#"{"jsonrpc":"2.0","id":"srv-1","method":"elicitation/create","params":{"message":"who?"}}"#;
    let text = format!("data: {asks}\n\n");
    sender.unbounded_send(text).unwrap();
    assert_eq!(event(&relayed.next().await.unwrap()).message, asks);

    let answers =
        r#"{"jsonrpc":"2.0","id":"srv-1","result":{"action":"accept","content":{"n":1.10}}}"#;
    world.says(status(202));
    world.all(connect(&world.harness, answers).await).await;
    let text = format!("data: {RESULT}\n\n");
    sender.unbounded_send(text).unwrap();
    assert_eq!(event(&relayed.next().await.unwrap()).message, RESULT);

    let seen = world.seen();
    assert_eq!(seen[1].body, answers);
    assert_eq!(seen[1].header("mcp-session-id"), Some("s-1"));
}

#[tokio::test]
async fn the_time_limit_does_not_run_while_a_person_answers() {
    let limit = Duration::from_secs(2);
    let world = World::with("", |config| config.time_limit = limit).await;
    let (sender, answer) = live_events();
    world.says(answer);
    let mut relayed = world.relay(call(&world.harness, "{}").await).await.unwrap();
    relayed.next().await.unwrap();
    let asks = r#"{"jsonrpc":"2.0","id":"srv-1","method":"elicitation/create","params":{"message":"who?"}}"#;
    sender.unbounded_send(format!("data: {asks}\n\n")).unwrap();
    assert_eq!(event(&relayed.next().await.unwrap()).message, asks);

    // The person takes longer than the tool may.
    let late = tokio::time::timeout(limit + Duration::from_millis(200), relayed.next()).await;
    assert!(late.is_err(), "{late:?}");
    sender
        .unbounded_send(format!("data: {RESULT}\n\n"))
        .unwrap();
    assert_eq!(event(&relayed.next().await.unwrap()).message, RESULT);
}

#[tokio::test]
async fn a_legacy_stream_that_breaks_off_is_taken_up_again_where_it_was() {
    let world = World::start().await;
    let mut calling = call(&world.harness, "{}").await;
    calling.message =
        r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"read","arguments":{}}}"#
            .into();
    calling.session = "s-1".to_owned();
    world.says(events("id: e-1\nretry: 10\ndata:\n\n"));
    let parts = world.all(calling.clone()).await;
    assert_eq!(parts.len(), 2, "a head and an id, and no failure");
    let priming = event(&parts[1]);
    assert_eq!(priming.id.as_deref(), Some("e-1"));
    assert_eq!(priming.retry_ms, Some(10));
    assert!(priming.message.is_empty());

    let resumes = pb::RelayRequest {
        method: pb::RelayMethod::Get.into(),
        message: Bytes::new(),
        arguments_json: "{}".into(),
        last_event_id: "e-1".to_owned(),
        governed_id: "7".to_owned(),
        ..calling
    };
    world.says(events(&format!("id: e-2\ndata: {RESULT}\n\n")));
    let parts = world.all(resumes).await;
    let result = event(&parts[1]);
    assert_eq!(result.message, RESULT);
    assert!(result.result.is_some());
    let seen = world.seen();
    assert_eq!(seen[1].method, Method::GET);
    assert_eq!(seen[1].header("accept"), Some("text/event-stream"));
    assert_eq!(seen[1].header("last-event-id"), Some("e-1"));
    assert_eq!(seen[1].header("mcp-session-id"), Some("s-1"));
}

#[tokio::test]
async fn who_listens_hears_no_answers_to_others() {
    let world = World::start().await;
    let mut listens = connect(&world.harness, "").await;
    listens.method = pb::RelayMethod::Get.into();
    let notice = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    let text = format!(
        "data: {RESULT}\n\nid: e-1\ndata: {RESULT}\n\ndata: no message\n\ndata: {notice}\n\n"
    );
    world.says(events(&text));
    let parts = world.all(listens).await;
    let said: Vec<_> = parts[1..]
        .iter()
        .map(|part| std::str::from_utf8(&event(part).message).unwrap())
        .collect();
    assert_eq!(said, ["", notice]);
}

#[tokio::test]
async fn who_takes_up_a_stream_hears_no_answer_that_nobody_decided_on() {
    let world = World::start().await;
    let mut resumes = connect(&world.harness, "").await;
    resumes.method = pb::RelayMethod::Get.into();
    resumes.last_event_id = "e-1".to_owned();
    let read =
        r#"{"jsonrpc":"2.0","id":7,"result":{"contents":[{"uri":"memo://one","text":"x"}]}}"#;
    let notice = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    let text = format!("data: {read}\n\ndata: {notice}\n\n");
    world.says(events(&text));
    let parts = world.all(resumes).await;
    let said: Vec<_> = parts[1..].iter().map(|part| &event(part).message).collect();
    assert_eq!(said, [notice]);
}

#[tokio::test]
async fn the_one_answer_that_is_on_record_is_the_one_that_passes() {
    let world = World::start().await;
    let other = RESULT.replace("\"id\":7", "\"id\":7.0");
    let both = RESULT.replace("\"result\"", "\"method\":\"x\",\"result\"");
    let text = format!("data: {other}\n\ndata: {both}\n\ndata: {RESULT}\n\ndata: {RESULT}\n\n");
    world.says(events(&text));
    let parts = world.all(call(&world.harness, "{}").await).await;
    let said: Vec<_> = parts[1..].iter().map(|part| &event(part).message).collect();
    assert_eq!(said, [RESULT]);
}

#[tokio::test]
async fn a_client_that_hangs_up_is_heard_by_the_server() {
    let world = World::start().await;
    let listen = r#"{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{}}"#;
    let mut get = connect(&world.harness, "").await;
    get.method = pb::RelayMethod::Get.into();
    for request in [
        call(&world.harness, "{}").await,
        connect(&world.harness, listen).await,
        get,
    ] {
        let (sender, answer) = live_events();
        world.says(answer);
        let mut relayed = world.relay(request).await.unwrap();
        relayed.next().await.unwrap();
        assert!(!sender.is_closed());
        drop(relayed);
        eventually("the server's stream ends", async || sender.is_closed()).await;
    }
}

#[tokio::test]
async fn an_event_without_end_is_cut_at_the_limit() {
    let world = World::with(", max_response_bytes: 4000", |_| ()).await;
    let (sender, answer) = live_events();
    world.says(answer);
    let mut relayed = world.relay(call(&world.harness, "{}").await).await.unwrap();
    relayed.next().await.unwrap();
    for _ in 0..5 {
        sender
            .unbounded_send(format!("data: {}\n", "x".repeat(900)))
            .unwrap();
    }
    let parts = relayed.rest().await;
    assert_eq!(failure(&parts).1.error_kind, "result_too_large");
    eventually("the server's stream ends", async || sender.is_closed()).await;
}

#[tokio::test]
async fn a_call_has_a_time_limit_and_listening_has_none() {
    let limit = Duration::from_millis(400);
    let world = World::with("", |config| config.time_limit = limit).await;
    let listen = r#"{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{}}"#;
    let (listened, answer) = live_events();
    world.says(answer);
    let mut listening = world
        .relay(connect(&world.harness, listen).await)
        .await
        .unwrap();
    listening.next().await.unwrap();

    let (_sender, answer) = live_events();
    world.says(answer);
    let parts = world.all(call(&world.harness, "{}").await).await;
    let (text, facts) = failure(&parts);
    assert_eq!(facts.status(), pb::OutcomeStatus::Timeout, "{text}");
    assert_eq!(facts.error_kind, "timeout");

    let notice = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    let text = format!("data: {notice}\n\n");
    listened.unbounded_send(text).unwrap();
    assert_eq!(event(&listening.next().await.unwrap()).message, notice);
}

#[tokio::test]
async fn a_stream_that_ends_before_a_modern_answer_has_failed() {
    let world = World::start().await;
    world.says(events("id: e-1\ndata:\n\n"));
    let parts = world.all(call(&world.harness, "{}").await).await;
    assert_eq!(failure(&parts).1.error_kind, "source_unavailable");
}
