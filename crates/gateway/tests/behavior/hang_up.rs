//! Clients that disconnect, and a gateway that shuts down.

use std::time::Duration;

use tokio::sync::oneshot;
use wardgate_domain::Status;

use crate::world::{LEGACY, MODERN, OLDEST, World};
use wardgate_testkit::{AppendBehavior, PATIENCE, RunBehavior};

#[tokio::test]
async fn a3_a_modern_client_that_hangs_up_cancels_its_call_and_the_record_says_so() {
    let world = World::start().await;
    world.tool_runner.next([RunBehavior::Hang]);
    let call = world.spawn_call(MODERN, "writes");
    let ran = world.tool_runner.asked.reaches(1).await.swap_remove(0);
    call.abort();
    assert_eq!(world.tool_runner.dropped.reaches(1).await, [&*ran.call_id]);
    let outcome = world.audit.outcome().await;
    assert_eq!(outcome.call.call_id.to_string(), ran.call_id);
    assert_eq!(outcome.status, Status::Cancelled);
    assert_eq!(outcome.reason, "cancelled");
}

#[tokio::test]
async fn a_legacy_client_that_hangs_up_cancels_nothing() {
    let world = World::start().await;
    for version in [LEGACY, OLDEST] {
        let before = world.tool_runner.asked.count();
        let outcomes = world.audit.outcomes.count();
        let (release, held) = oneshot::channel();
        world
            .tool_runner
            .next([RunBehavior::Hold(held), RunBehavior::Hang]);
        let legacy = world.spawn_call(version, "reads");
        let ran = world.tool_runner.asked.reaches(before + 1).await;
        legacy.abort();
        // A modern client disconnects later. Once that is noticed, the earlier disconnect was noticed as well.
        let modern = world.spawn_call(MODERN, "reads");
        world.tool_runner.asked.reaches(before + 2).await;
        modern.abort();
        let ended = world.audit.outcomes.reaches(outcomes + 1).await;
        assert_eq!(ended.last().unwrap().status, Status::Cancelled);

        release.send(()).unwrap();
        let ended = world.audit.outcomes.reaches(outcomes + 2).await;
        let outcome = ended.last().unwrap();
        assert_eq!(outcome.status, Status::Ok);
        assert_eq!(
            outcome.call.call_id.to_string(),
            ran.last().unwrap().call_id
        );
    }
}

#[tokio::test]
async fn a_modern_client_that_hangs_up_before_the_run_starts_nothing() {
    let world = World::start().await;
    let (release, held) = oneshot::channel();
    world.audit.next([AppendBehavior::keep_after(held)]);
    let call = world.spawn_call(MODERN, "writes");
    world.audit.attempts.reaches(1).await;
    call.abort();
    // A second client disconnects later. Once that is noticed, the first disconnect was noticed as well.
    world.tool_runner.next([RunBehavior::Hang]);
    let later = world.spawn_call(MODERN, "reads");
    world.tool_runner.asked.reaches(1).await;
    later.abort();
    world.audit.outcomes.reaches(1).await;

    release.send(()).unwrap();
    let outcomes = world.audit.outcomes.reaches(2).await;
    let intent = world.audit.intents.entries().swap_remove(0);
    assert_eq!(outcomes[1].call.call_id, intent.call_id);
    assert_eq!(outcomes[1].status, Status::Cancelled);
    assert_eq!(world.tool_runner.asked.count(), 1, "only the later one ran");
}

#[tokio::test]
async fn a_gateway_that_is_told_to_stop_finishes_the_calls_it_began() {
    let world = World::start().await;
    let (release, held) = oneshot::channel();
    world.tool_runner.next([RunBehavior::Hold(held)]);
    let call = world.spawn_call(MODERN, "reads");
    world.tool_runner.asked.reaches(1).await;
    let stopped = world.stop();
    release.send(()).unwrap();
    assert!(call.await.unwrap().is_released());
    tokio::time::timeout(PATIENCE, stopped)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn a_gateway_that_is_told_to_stop_waits_for_calls_whose_client_is_gone() {
    let world = World::start().await;
    let (release, held) = oneshot::channel();
    world.tool_runner.next([RunBehavior::Hold(held)]);
    let call = world.spawn_call(LEGACY, "writes");
    world.tool_runner.asked.reaches(1).await;
    call.abort();
    let audit = std::sync::Arc::clone(&world.audit);
    let mut stopped = world.stop();
    let early = tokio::time::timeout(Duration::from_millis(150), &mut stopped).await;
    assert!(early.is_err(), "the gateway left a running call behind");
    release.send(()).unwrap();
    tokio::time::timeout(PATIENCE, stopped)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(audit.outcomes.entries()[0].status, Status::Ok);
}
