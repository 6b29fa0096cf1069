//! How exchanges end: clients that hang up, tokens that end, a gateway that stops.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use wardgate_domain::Status;
use wardgate_proto::toolrunner::v1 as pb;

use super::streams::next;
use super::{answer, call, count, get, request, world, world_with};
use crate::fakes::PATIENCE;
use crate::fakes::relay::{governed, head};
use crate::listen::EventStreamClient;
use crate::world::{LEGACY, MODERN, Reply, World, until};

const LISTENS: &str = r#""notifications":{"toolsListChanged":true}"#;

/// A call that waits for the upstream, and the id it is carried under.
async fn waiting(world: &World, version: &str) -> (JoinHandle<Reply>, String) {
    let before = count(world);
    let waiting = tokio::spawn(Reply::to(call(world, version, "write")));
    let asked = world.tool_runner.relays.asked.reaches(before + 1).await;
    (waiting, asked.last().unwrap().call_id.clone())
}

#[tokio::test]
async fn a_modern_client_that_hangs_up_cancels_its_call_and_the_record_says_so() {
    let world = world().await;
    let _upstream = world.tool_runner.relays.live();
    let (client, call_id) = waiting(&world, MODERN).await;
    client.abort();
    let is_it = |over: &[String]| over.contains(&call_id);
    world.tool_runner.relays.over.until(is_it).await;
    let outcome = world.audit.outcome().await;
    assert_eq!(outcome.call.call_id.to_string(), call_id);
    assert_eq!(
        (outcome.status, &*outcome.reason),
        (Status::Cancelled, "cancelled")
    );

    // The same in the middle of a stream.
    let upstream = world.tool_runner.relays.live();
    upstream
        .unbounded_send(head(200, pb::RelayContent::Events))
        .unwrap();
    let ear = EventStreamClient::on(call(&world, MODERN, "write")).await;
    drop(ear);
    let outcome = world.audit.outcomes.reaches(2).await.pop().unwrap();
    assert_eq!(outcome.status, Status::Cancelled);
    assert!(upstream.is_closed());
}

#[tokio::test]
async fn a_legacy_client_that_hangs_up_cancels_nothing() {
    let world = world().await;
    let legacy = world.tool_runner.relays.live();
    let (client, call_id) = waiting(&world, LEGACY).await;
    client.abort();
    // A modern client hangs up later; once that is noticed, the earlier one was as well.
    let _modern = world.tool_runner.relays.live();
    let (modern, _) = waiting(&world, MODERN).await;
    modern.abort();
    assert_eq!(world.audit.outcome().await.status, Status::Cancelled);
    assert!(!world.tool_runner.relays.over.all().contains(&call_id));
    for part in governed(200, &answer(r#"{"content":[]}"#)) {
        legacy.unbounded_send(part).unwrap();
    }
    let outcome = world.audit.outcomes.reaches(2).await.pop().unwrap();
    assert_eq!(outcome.call.call_id.to_string(), call_id);
    assert_eq!(outcome.status, Status::Ok);
}

#[tokio::test]
async fn a_gateway_that_is_told_to_stop_ends_what_would_stay_open_and_finishes_calls() {
    let world = world().await;
    let begins = head(200, pb::RelayContent::Events);
    let mut ears = Vec::new();
    let mut upstreams = Vec::new();
    for listens in [
        get(&world),
        request(&world, MODERN, "subscriptions/listen", LISTENS),
    ] {
        let upstream = world.tool_runner.relays.live();
        upstream.unbounded_send(begins.clone()).unwrap();
        ears.push(EventStreamClient::on(listens).await);
        upstreams.push(upstream);
    }
    let upstream = world.tool_runner.relays.live();
    let (client, call_id) = waiting(&world, LEGACY).await;
    let audit = Arc::clone(&world.audit);
    let mut stopped = world.stop();
    for ear in &mut ears {
        assert_eq!(next(ear).await, None);
    }
    let early = tokio::time::timeout(Duration::from_millis(150), &mut stopped).await;
    assert!(early.is_err(), "the gateway left a running call behind");
    for part in governed(200, &answer(r#"{"content":[]}"#)) {
        upstream.unbounded_send(part).unwrap();
    }
    assert_eq!(client.await.unwrap().code(), 0);
    let stopped = tokio::time::timeout(PATIENCE, stopped);
    stopped.await.unwrap().unwrap();
    let outcome = audit.outcomes.all().pop().unwrap();
    assert_eq!(outcome.call.call_id.to_string(), call_id);
    assert_eq!(outcome.status, Status::Ok);
}

#[tokio::test]
async fn a_stream_of_changes_ends_with_the_token_it_was_opened_with() {
    let world = world().await;
    // Clocks may differ by 10 s, and this is the last of them.
    let token = world.issuer.token_until("dr.lee", &[], 1_800_000_000 - 9);
    let bearer: reqwest::header::HeaderValue = format!("Bearer {token}").parse().unwrap();
    for listens in [
        get(&world),
        request(&world, MODERN, "subscriptions/listen", LISTENS),
    ] {
        let upstream = world.tool_runner.relays.live();
        let begins = head(200, pb::RelayContent::Events);
        upstream.unbounded_send(begins).unwrap();
        let mut listens = listens.build().unwrap();
        listens
            .headers_mut()
            .insert("authorization", bearer.clone());
        let listens = reqwest::RequestBuilder::from_parts(world.http.clone(), listens);
        let mut ear = EventStreamClient::on(listens).await;
        assert_eq!(next(&mut ear).await, None);
        until("the upstream is hung up on", async || upstream.is_closed()).await;
    }
}

#[tokio::test]
async fn open_streams_take_places_among_all_others() {
    let world = world_with(serde_json::json!({ "limits": { "streams": 1 } })).await;
    let upstream = world.tool_runner.relays.live();
    let begins = head(200, pb::RelayContent::Events);
    upstream.unbounded_send(begins).unwrap();
    let first = EventStreamClient::on(get(&world)).await;
    let before = count(&world);
    for listens in [
        get(&world),
        request(&world, MODERN, "subscriptions/listen", LISTENS),
    ] {
        let reply = Reply::to(listens).await;
        assert_eq!((reply.status, reply.code()), (429, -32603));
    }
    assert_eq!(count(&world), before);
    // Calls need no place.
    assert_eq!(Reply::to(call(&world, MODERN, "read")).await.code(), 0);
    drop(first);
    until("there is room", async || {
        Reply::to(get(&world)).await.status != 429
    })
    .await;
}
