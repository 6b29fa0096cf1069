//! Nothing is released without a record.

use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use wardgate_domain::{AgentRefusal, DenialReason, Digest, Event, Status, UNKNOWN_NAME};
use wardgate_rpc::Readiness;

use crate::world::{LEGACY, MODERN, OLDEST, Reply, World};
use wardgate_testkit::{AppendBehavior, PolicyAnswer, RunBehavior};

/// Maximum time of a call without a durable record, on any machine. That an append fails within a second if appends were not
/// measured to be slow is tested with a paused clock:
/// `a5_an_append_that_cannot_be_made_durable_ends_within_a_second` in `gateway-record`.
const IN_TIME: Duration = Duration::from_secs(10);
/// Time to observe that something does not happen.
const A_WHILE: Duration = Duration::from_millis(150);

#[tokio::test]
async fn a2_a_result_leaves_only_after_its_outcome_record_is_acknowledged() {
    let world = World::start().await;
    for version in [MODERN, LEGACY, OLDEST] {
        let before = world.audit.attempts.count();
        let (release, held) = oneshot::channel();
        world.audit.next([AppendBehavior::keep_after(held)]);
        let mut call = world.spawn_call(version, "reads");
        world.audit.attempts.reaches(before + 1).await;
        let early = tokio::time::timeout(A_WHILE, &mut call).await;
        assert!(early.is_err(), "{version}: left early: {early:?}");
        release.send(()).unwrap();
        assert!(call.await.unwrap().is_released());
    }
}

#[tokio::test]
async fn the_receipt_in_an_answer_is_the_acknowledgements() {
    let world = World::start().await;
    for (tool, sequence) in [("reads", 42_u64), ("reads", 43), ("writes", 45)] {
        let reply = world.call(tool).await;
        assert_eq!(
            reply.at("/result/_meta/dev.wardgate~1receipt"),
            serde_json::json!({ "leafHash": Digest::compute(&sequence.to_be_bytes()).to_string() }),
            "its position would say how much others do"
        );
    }
    let denied = world.call("nonesuch").await;
    assert_eq!(
        denied.at("/error/data/dev.wardgate~1receipt/leafHash"),
        Digest::compute(&46_u64.to_be_bytes()).to_string()
    );
}

#[tokio::test]
async fn the_record_says_who_asked_for_what_and_how_it_ended() {
    let world = World::start().await;
    let reply = world.call("reads_alias").await;
    let outcome = world.audit.outcome().await;
    let subject = &outcome.call;
    assert_eq!(
        reply.at("/result/_meta/dev.wardgate~1callId"),
        subject.call_id.to_string()
    );
    assert_eq!(subject.issuer, crate::world::ISSUER);
    assert_eq!(subject.subject, "dr.lee");
    assert_eq!(subject.roles, ["Doctor"]);
    assert_eq!(subject.client_ip, "127.0.0.1");
    assert_eq!(subject.protocol, MODERN);
    assert_eq!(subject.requested_tool, "reads_alias");
    assert_eq!(subject.tool.as_ref().unwrap().as_str(), "reads");
    assert_eq!(subject.arguments_digest, Digest::compute(b"{}"));
    assert_eq!(subject.policies, ["reads.rule"]);
    assert!(subject.decision_id.is_some() && subject.permit_id.is_some());
    assert_eq!(outcome.status, Status::Ok);
    assert_eq!(outcome.reason, "");
    assert_eq!(
        (outcome.rows, outcome.rows_withheld, outcome.fields_redacted),
        (2, 1, 3)
    );
    assert!(outcome.phi && outcome.result_digest.is_some());
}

#[tokio::test]
async fn while_nothing_can_be_recorded_nobody_is_asked_anything() {
    let world = World::start().await;
    let away = Readiness::NotReady("the disk is full".to_owned());
    world.audit.readiness.send_replace(away);
    for tool in ["reads", "writes", "nonesuch"] {
        let started = Instant::now();
        let reply = world.call(tool).await;
        assert!(started.elapsed() < IN_TIME, "{tool}");
        assert_eq!((reply.status, reply.code()), (200, -32603), "{reply:?}");
        reply.failed_call();
    }
    assert_eq!(world.policy.asked.count(), 0);
    assert_eq!(world.tool_runner.asked.count(), 0);
    assert_eq!(world.audit.attempts.count(), 0);

    world.audit.readiness.send_replace(Readiness::Ready);
    assert!(world.call("reads").await.is_released());
}

#[tokio::test]
async fn a5_a_record_that_hangs_ends_the_call_in_time_and_no_result_leaves() {
    let world = World::start().await;
    for tool in ["reads", "nonesuch", "writes"] {
        world.audit.next([AppendBehavior::Hang]);
        let started = Instant::now();
        let reply = world.call(tool).await;
        assert!(
            started.elapsed() < IN_TIME,
            "{tool}: {:?}",
            started.elapsed()
        );
        assert_eq!(reply.code(), -32603, "{reply:?}");
        assert!(!reply.is_released());
    }
    let ran = world.tool_runner.asked.entries();
    assert!(ran.iter().all(|call| call.tool == "reads"), "{ran:?}");
}

#[tokio::test]
async fn a_record_that_fails_late_and_then_hangs_ends_the_call_in_time_too() {
    let world = World::start().await;
    // After the first failure there is enough time for a second attempt, after the second one there is not.
    for late in [80, 600] {
        let late = AppendBehavior::FailAfter(Duration::from_millis(late));
        world.audit.next([late, AppendBehavior::Hang]);
        let started = Instant::now();
        let reply = world.call("reads").await;
        assert!(started.elapsed() < IN_TIME, "{:?}", started.elapsed());
        assert_eq!(reply.code(), -32603);
        assert!(!reply.is_released());
    }
    assert_eq!(world.audit.attempts.count(), 3);
}

#[tokio::test]
async fn an_append_that_failed_at_once_is_retried_as_such_and_the_result_released() {
    let world = World::start().await;
    for first in [AppendBehavior::Fail, AppendBehavior::Panic] {
        world.audit.next([first]);
        assert!(world.call("reads").await.is_released());
    }
    let attempts = world.audit.attempts.entries();
    let retries: Vec<bool> = attempts.iter().map(|attempt| attempt.retry).collect();
    assert_eq!(retries, [false, true, false, true]);
    let call = |index: usize| match &attempts[index].record.event {
        Event::Outcome(outcome) => (attempts[index].record.time, outcome.call.call_id),
        other => panic!("{other:?}"),
    };
    assert_eq!(call(0), call(1));
    assert_eq!(call(2), call(3));
}

#[tokio::test]
async fn a2_a_result_whose_record_failed_twice_does_not_leave() {
    let world = World::start().await;
    world
        .audit
        .next([AppendBehavior::Fail, AppendBehavior::Fail]);
    let reply = world.call("reads").await;
    assert_eq!((reply.status, reply.code()), (200, -32603));
    assert!(!reply.is_released());
    reply.failed_call();
    assert_eq!(
        reply.at("/error/data/dev.wardgate~1receipt"),
        serde_json::Value::Null
    );
    assert_eq!(world.audit.attempts.count(), 2);
}

#[tokio::test]
async fn a3_a_denial_whose_record_failed_does_not_leave_either() {
    let world = World::start().await;
    world.policy.says(PolicyAnswer::Deny {
        reason: DenialReason::Forbidden,
        visible: true,
    });
    world
        .audit
        .next([AppendBehavior::Fail, AppendBehavior::Fail]);
    let reply = world.call("reads").await;
    assert_eq!(reply.code(), -32603, "{reply:?}");
    assert!(!reply.text.contains("forbidden"), "{reply:?}");
}

#[tokio::test]
async fn a1_a_tool_that_may_write_runs_only_once_its_intent_is_durable() {
    let world = World::start().await;
    let (release, held) = oneshot::channel();
    world.audit.next([AppendBehavior::keep_after(held)]);
    let mut call = world.spawn_call(MODERN, "writes");
    world.audit.attempts.reaches(1).await;
    assert!(tokio::time::timeout(A_WHILE, &mut call).await.is_err());
    assert_eq!(world.tool_runner.asked.count(), 0);
    release.send(()).unwrap();
    assert!(call.await.unwrap().is_released());

    let intent = world.audit.intents.entries().swap_remove(0);
    let outcome = world.audit.outcome().await;
    assert_eq!(intent.call_id, outcome.call.call_id);
    assert!(intent.permit_id.is_some());
    assert_eq!(intent.permit_id, outcome.call.permit_id);
}

#[tokio::test]
async fn a_read_only_tool_has_no_intent() {
    let world = World::start().await;
    assert!(world.call("reads").await.is_released());
    assert_eq!(world.audit.attempts.count(), 1);
    assert_eq!(world.audit.intents.count(), 0);
}

#[tokio::test]
async fn a1_a_tool_whose_intent_fails_never_runs() {
    let world = World::start().await;
    world
        .audit
        .next([AppendBehavior::Fail, AppendBehavior::Fail]);
    let reply = world.call("writes").await;
    assert_eq!((reply.status, reply.code()), (200, -32603));
    reply.failed_call();
    assert_eq!(world.tool_runner.asked.count(), 0);
    // The call is over, and needs no outcome because its intent was not recorded.
    assert_eq!(world.audit.attempts.count(), 2);
    assert_eq!(
        world.audit.intents.count() + world.audit.outcomes.count(),
        0
    );
}

#[tokio::test]
async fn a_record_lost_while_the_tool_runs_withholds_the_result() {
    let world = World::start().await;
    let (release, held) = oneshot::channel();
    world.tool_runner.next([RunBehavior::Hold(held)]);
    let call = world.spawn_call(MODERN, "writes");
    world.tool_runner.asked.reaches(1).await;
    world.audit.fails_after(Duration::ZERO);
    release.send(()).unwrap();
    let reply = call.await.unwrap();
    assert_eq!(reply.code(), -32603);
    assert!(!reply.is_released());
}

/// Creates a call that its agent refused for `reason`, which is JSON.
fn refused_call(world: &World, path: &str, tool: &str, reason: &str) -> reqwest::RequestBuilder {
    let params = format!(
        r#""name":"{tool}","_meta":{{"io.modelcontextprotocol/protocolVersion":"{MODERN}","io.modelcontextprotocol/clientCapabilities":{{}},"dev.wardgate/refusedByAgent":{reason}}}"#
    );
    world
        .http
        .post(world.url(path))
        .bearer_auth(&world.token)
        .header("content-type", "application/json")
        .header("mcp-protocol-version", MODERN)
        .header("mcp-method", "tools/call")
        .header("mcp-name", tool)
        .body(format!(
            r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{{params}}}}}"#
        ))
}

#[tokio::test]
async fn a_call_that_its_agent_refused_is_on_record_and_neither_decided_nor_run() {
    let world = World::start().await;
    for (refusal, tool) in AgentRefusal::ALL
        .into_iter()
        .zip(["reads", "nonesuch"].iter().cycle())
    {
        let before = world.audit.attempts.count();
        let reason = format!("\"{}\"", refusal.as_str());
        let reply = Reply::to(refused_call(&world, "/mcp", tool, &reason)).await;
        assert_eq!((reply.status, reply.code()), (200, -32602), "{reply:?}");
        assert_eq!(reply.at("/error/data/reason"), "refused_by_agent");
        assert!(reply.at("/error/data/dev.wardgate~1receipt").is_object());
        let attempts = world.audit.attempts.entries();
        assert_eq!(attempts.len(), before + 1);
        let Event::Outcome(outcome) = &attempts[before].record.event else {
            panic!("{attempts:?}");
        };
        assert_eq!(
            (outcome.status, &*outcome.reason),
            (refusal.status(), refusal.as_str())
        );
        assert_eq!(outcome.call.subject, "dr.lee");
        // A model may write anything as a name, so the record has the name only if it is that of a tool.
        let named = if *tool == "reads" { tool } else { UNKNOWN_NAME };
        assert_eq!(outcome.call.requested_tool, named);
        assert!(outcome.call.decision_id.is_none());
    }
    assert_eq!(world.policy.asked.count(), 0);
    assert_eq!(world.tool_runner.asked.count(), 0);
}

#[tokio::test]
async fn a_refusal_that_its_agent_reports_again_is_on_record_once_for_each_caller_and_key() {
    let world = World::start().await;
    let twin = world.twin().await;
    let report = async |at: &World, token: &str, key: &str| {
        let request = refused_call(at, "/mcp", "reads", r#""in_data""#);
        let (client, request) = request.build_split();
        let mut request = request.unwrap();
        let bearer = format!("Bearer {token}").parse().unwrap();
        request.headers_mut().insert("authorization", bearer);
        (request.headers_mut()).insert("idempotency-key", key.parse().unwrap());
        let request = reqwest::RequestBuilder::from_parts(client, request);
        let reply = Reply::to(request).await;
        let reason = reply.at("/error/data/reason");
        assert_eq!(reason, "refused_by_agent", "{reply:?}");
    };
    let other = world.issuer.token("dr.yenji", &["Doctor"]);
    for _ in 0..2 {
        for key in ["one", "two"] {
            report(&world, &world.token, key).await;
            report(&world, &other, key).await;
        }
        // Another gateway knows what the first one has recorded.
        report(&twin, &world.token, "one").await;
    }
    assert_eq!(world.audit.attempts.count(), 4);
    assert_eq!(twin.audit.attempts.count(), 0);
    // A report whose record failed is not marked as recorded.
    world.audit.fails_after(Duration::ZERO);
    let lost = refused_call(&world, "/mcp", "reads", r#""in_data""#);
    let lost = Reply::to(lost.header("idempotency-key", "three")).await;
    assert_ne!(lost.at("/error/data/reason"), "refused_by_agent");
    report(&twin, &world.token, "three").await;
    assert_eq!(twin.audit.outcomes.count(), 1);
}

#[tokio::test]
async fn an_agent_writes_no_words_of_its_own_into_the_record() {
    let world = World::start().await;
    for reason in [r#""patient NUGWI""#, r#""""#, "7", "{}"] {
        let reply = Reply::to(refused_call(&world, "/mcp", "reads", reason)).await;
        assert_eq!((reply.status, reply.code()), (400, -32602), "{reply:?}");
        assert!(!reply.is_released());
    }
    assert_eq!(
        world.tool_runner.asked.count(),
        0,
        "nor does such a call run"
    );
    assert_eq!(world.audit.attempts.count(), 0);
}

#[tokio::test]
async fn an_agent_that_refuses_again_and_again_is_counted_in_summaries() {
    let world = World::start().await;
    let mut receipts = 0;
    for _ in 0..90 {
        let reply = Reply::to(refused_call(&world, "/mcp", "reads", r#""in_data""#)).await;
        assert_eq!(reply.at("/error/data/reason"), "refused_by_agent");
        receipts += u64::from(reply.at("/error/data/dev.wardgate~1receipt").is_object());
    }
    let folded = |all: &[wardgate_domain::Refusals]| {
        let counts = all.iter().flat_map(|window| &window.counts);
        let denied = counts.filter(|it| it.reason == "denied" && it.subject == "dr.lee");
        denied.map(|it| it.count).sum::<u64>()
    };
    world
        .audit
        .refusals
        .until(|all| folded(all) + receipts == 90)
        .await;
    assert!(receipts < 90, "each had a record of its own");
}
