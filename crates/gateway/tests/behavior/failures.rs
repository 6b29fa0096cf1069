//! Failures of neighbouring services: each results in a well-formed error and a record.

use std::time::{Duration, Instant};

use serde_json::json;
use wardgate_domain::Status;
use wardgate_proto::common::v1::ErrorReason;
use wardgate_proto::toolrunner::v1 as pb;

use crate::world::{LEGACY, MODERN, OLDEST, Reply, World};
use wardgate_testkit::{PolicyAnswer, RunBehavior, tool_result};

/// Time above all limits of the gateway, even on a machine that is busy.
const A_MINUTE: Duration = Duration::from_mins(1);

/// Makes a call that must end in an error, with this outcome in the record.
async fn ends(world: &World, tool: &str, status: Status, reason: &str) -> Reply {
    let before = world.audit.outcomes.count();
    let reply = world.call(tool).await;
    assert_eq!((reply.status, reply.code()), (200, -32603), "{reply:?}");
    assert!(!reply.is_released());
    // The cause appears only in the log.
    assert!(!reply.text.contains("as ordered"), "{reply:?}");
    let outcomes = world.audit.outcomes.entries();
    assert_eq!(outcomes.len(), before + 1, "{reply:?}");
    let outcome = outcomes.last().unwrap();
    assert_eq!((outcome.status, &*outcome.reason), (status, reason));
    assert_eq!(reply.failed_call(), outcome.call.call_id.to_string());
    assert_eq!(outcome.result_digest, None);
    reply
}

#[tokio::test]
async fn a3_a_policy_service_that_does_not_decide_is_an_error_on_record_and_nothing_runs() {
    let world = World::start().await;
    for say in [
        PolicyAnswer::Fail(ErrorReason::Unavailable),
        PolicyAnswer::Fail(ErrorReason::Internal),
        PolicyAnswer::Panic,
        PolicyAnswer::Hang,
    ] {
        world.policy.says(say.clone());
        let started = Instant::now();
        ends(&world, "writes", Status::Error, "policy_unavailable").await;
        assert!(started.elapsed() < A_MINUTE, "{say:?}");
    }
    assert_eq!(world.tool_runner.asked.count(), 0);
    assert_eq!(world.audit.intents.count(), 0);
}

#[tokio::test]
async fn a_tool_runner_that_fails_is_an_error_on_record() {
    let world = World::start().await;
    let failures = [
        RunBehavior::Fail(ErrorReason::Unavailable),
        RunBehavior::Fail(ErrorReason::InvalidMessage),
        RunBehavior::Fail(ErrorReason::Internal),
        RunBehavior::EndEarly,
        RunBehavior::Panic,
    ];
    let count = failures.len();
    world.tool_runner.next(failures);
    for _ in 0..count {
        ends(&world, "reads", Status::Error, "tool_runner_unavailable").await;
    }
    assert_eq!(world.tool_runner.asked.count(), count);
}

#[tokio::test]
async fn a_panic_in_the_midst_of_a_run_is_an_error_on_record() {
    let world = World::start().await;
    world.tool_runner.next([RunBehavior::PanicLater]);
    ends(&world, "writes", Status::Error, "panic").await;
    assert!(world.call("writes").await.is_released());
}

#[tokio::test]
async fn a3_a_tool_runner_that_never_answers_ends_a_second_after_the_tools_time_limit() {
    let world = World::start().await;
    world.tool_runner.next([RunBehavior::Hang]);
    let started = Instant::now();
    let reply = ends(&world, "slow", Status::Timeout, "timeout").await;
    let took = started.elapsed();
    assert!(took >= Duration::from_millis(1_100), "{took:?}");
    assert!(took < A_MINUTE, "{took:?}");
    assert_eq!(reply.at("/error/message"), "Timeout after 0.1s");
    let dropped = world.tool_runner.dropped.reaches(1).await;
    assert_eq!(dropped, [reply.failed_call()]);
}

#[tokio::test]
async fn a_failure_the_tool_tells_of_is_a_result_and_its_status_goes_on_record() {
    let world = World::start().await;
    for (told, recorded) in [
        (
            pb::OutcomeStatus::InvalidArguments,
            Status::InvalidArguments,
        ),
        (pb::OutcomeStatus::ToolError, Status::Error),
        (pb::OutcomeStatus::Timeout, Status::Timeout),
        (pb::OutcomeStatus::Cancelled, Status::Cancelled),
    ] {
        let mut failed = tool_result("no such ward", &json!(null));
        failed.is_error = true;
        failed.facts = Some(pb::ResultFacts {
            status: told.into(),
            error_kind: "kind".to_owned(),
            ..pb::ResultFacts::default()
        });
        world
            .tool_runner
            .next([RunBehavior::Give(Box::new(failed))]);
        let reply = world.call("reads").await;
        assert_eq!(reply.at("/result/isError"), true);
        assert_eq!(reply.at("/result/content/0/text"), "no such ward");
        let outcome = world.audit.outcomes.entries().pop().unwrap();
        assert_eq!((outcome.status, &*outcome.reason), (recorded, "kind"));
    }
}

#[tokio::test]
async fn after_every_failure_the_next_call_succeeds() {
    let world = World::start().await;
    for version in [MODERN, LEGACY, OLDEST] {
        world.tool_runner.next([RunBehavior::Panic]);
        let failed = Reply::to(world.tools_call(version, "reads", "{}")).await;
        assert_eq!(failed.code(), -32603);
        let reply = Reply::to(world.tools_call(version, "reads", "{}")).await;
        assert!(reply.is_released());
    }
}
