//! Events as they come: ids sealed, everything else as it is, and the answer only once it is on record.

use serde_json::{Value, json};
use tokio::sync::oneshot;
use wardgate_domain::Status;
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_proto::toolrunner::v1::relay_response::Part;

use super::{CALL_ID, UP, answer, call, carried, post, request, world};
use crate::fakes::relay::{RelayBehavior, event, head, last_event};
use crate::fakes::{AppendBehavior, PATIENCE};
use crate::listen::EventStreamClient;
use crate::world::{LEGACY, MODERN, Reply};

const PROGRESS: &str = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1.10 ,"progressToken":"\u0061"}}"#;

/// The next event, its lines.
pub(super) async fn next(ear: &mut EventStreamClient) -> Option<Vec<String>> {
    let heard = tokio::time::timeout(PATIENCE, ear.next_event());
    let heard = heard.await.unwrap()?;
    Some(heard.lines().map(str::to_owned).collect())
}

/// The next message.
pub(super) async fn hears(ear: &mut EventStreamClient) -> Option<Value> {
    loop {
        let lines = next(ear).await?;
        let mut data = lines.iter().filter_map(|line| line.strip_prefix("data: "));
        if let Some(message) = data.next() {
            return Some(serde_json::from_str(message).unwrap());
        }
    }
}

/// The id that the event has for the client.
pub(super) fn id(lines: &[String]) -> String {
    let id = lines.iter().find_map(|line| line.strip_prefix("id: "));
    id.unwrap_or_else(|| panic!("{lines:?}")).to_owned()
}

#[tokio::test]
async fn events_pass_as_they_come_with_their_ids_sealed() {
    let world = world().await;
    for version in [MODERN, LEGACY] {
        let upstream = world.tool_runner.relays.live();
        upstream
            .unbounded_send(head(200, pb::RelayContent::Events))
            .unwrap();
        let mut ear = EventStreamClient::on(call(&world, version, "read")).await;
        assert_eq!(ear.header("cache-control"), "no-store");
        assert_eq!(ear.header("x-accel-buffering"), "no");
        // Each is heard before the next one is said.
        let priming = pb::RelayEvent {
            id: Some("own/1".to_owned()),
            retry_ms: Some(1_500),
            ..pb::RelayEvent::default()
        };
        upstream.unbounded_send(Part::Event(priming)).unwrap();
        let heard = next(&mut ear).await.unwrap();
        let first = id(&heard);
        assert_eq!(heard[1..], ["retry: 1500", "data:"]);
        upstream.unbounded_send(event("own/2", PROGRESS)).unwrap();
        let heard = next(&mut ear).await.unwrap();
        assert_ne!(id(&heard), first);
        let data = format!("data: {PROGRESS}");
        assert_eq!(heard[1..], ["event: message", &data]);
        let asks = r#"{"jsonrpc":"2.0","id":1.0,"method":"elicitation/create","params":{}}"#;
        let without_id = Part::Event(pb::RelayEvent {
            message: asks.into(),
            ..pb::RelayEvent::default()
        });
        upstream.unbounded_send(without_id).unwrap();
        let heard = next(&mut ear).await.unwrap();
        assert_eq!(heard, ["event: message", &format!("data: {asks}")]);
        let said = answer(r#"{"content":[1.10]}"#);
        upstream.unbounded_send(last_event("own/3", &said)).unwrap();
        let heard = next(&mut ear).await.unwrap();
        assert!(!heard[0].contains("own"), "{heard:?}");
        let told = heard[2].strip_prefix("data: ").unwrap();
        let told: Value = serde_json::from_str(told).unwrap();
        assert_eq!(told.pointer(CALL_ID), Some(&json!(carried(&world).call_id)));
        assert!(heard[2].contains(r#""content":[1.10]"#));
        drop(upstream);
        assert_eq!(next(&mut ear).await, None);
    }
    assert_eq!(world.audit.outcomes.reaches(2).await.len(), 2);
}

#[tokio::test]
async fn answers_cancellations_and_pings_pass_while_as_many_calls_wait_as_may() {
    let world = world().await;
    let mut waiting = Vec::new();
    for _ in 0..64 {
        let upstream = world.tool_runner.relays.live();
        let asks = r#"{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{}}"#;
        for part in [head(200, pb::RelayContent::Events), event("1", asks)] {
            upstream.unbounded_send(part).unwrap();
        }
        let mut ear = EventStreamClient::on(call(&world, LEGACY, "read")).await;
        assert_eq!(
            hears(&mut ear).await.unwrap()["method"],
            "elicitation/create"
        );
        waiting.push((upstream, ear));
    }
    let refused = Reply::to(call(&world, LEGACY, "read")).await;
    assert_eq!(refused.status, 429, "{refused:?}");
    for message in [
        r#"{"jsonrpc":"2.0","id":1,"result":{"action":"decline"}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#,
        r#"{"jsonrpc":"2.0","id":8,"method":"ping"}"#,
    ] {
        let passed = post(&world, UP, message).header("mcp-protocol-version", LEGACY);
        let passed = Reply::to(passed).await;
        assert_ne!(passed.status, 429, "{passed:?}");
        assert_eq!(carried(&world).message, message);
    }
}

#[tokio::test]
async fn the_answer_on_a_stream_leaves_once_it_is_on_record_and_not_without() {
    let world = world().await;
    let (release, held) = oneshot::channel();
    world
        .audit
        .next([AppendBehavior::Keep, AppendBehavior::Hold(held)]);
    let upstream = world.tool_runner.relays.live();
    let said = answer(r#"{"secret":1}"#);
    for part in [head(200, pb::RelayContent::Events), last_event("1", &said)] {
        upstream.unbounded_send(part).unwrap();
    }
    let mut ear = EventStreamClient::on(call(&world, MODERN, "read")).await;
    world.audit.attempts.reaches(2).await;
    assert_eq!(world.audit.outcomes.count(), 0);
    release.send(()).unwrap();
    assert!(next(&mut ear).await.unwrap()[2].contains("secret"));

    for version in [MODERN, LEGACY] {
        world.audit.next([
            AppendBehavior::Keep,
            AppendBehavior::Fail,
            AppendBehavior::Fail,
        ]);
        let parts = vec![head(200, pb::RelayContent::Events), last_event("1", &said)];
        world.tool_runner.relays.next([RelayBehavior::Give(parts)]);
        let mut ear = EventStreamClient::on(call(&world, version, "read")).await;
        let told = hears(&mut ear).await.unwrap();
        assert_eq!(
            (&told["id"], &told["error"]["code"]),
            (&json!(7), &json!(-32603))
        );
        let call_id = &told["error"]["data"]["dev.wardgate/callId"];
        assert_eq!(*call_id, carried(&world).call_id);
        assert_eq!(hears(&mut ear).await, None);
    }
}

#[tokio::test]
async fn a_stream_that_breaks_ends_with_an_error_and_the_record_knows() {
    let world = world().await;
    let failed = |kind: &str| {
        Part::Failure(pb::RelayFailure {
            text: "It is away.".to_owned(),
            facts: Some(pb::ResultFacts {
                status: pb::OutcomeStatus::Timeout.into(),
                error_kind: kind.to_owned(),
                ..pb::ResultFacts::default()
            }),
            ..pb::RelayFailure::default()
        })
    };
    let begins = || vec![head(200, pb::RelayContent::Events), event("1", PROGRESS)];
    let mut fails = begins();
    fails.push(failed("timeout"));
    world
        .tool_runner
        .relays
        .next([RelayBehavior::Give(fails), RelayBehavior::Cut(begins())]);
    for (status, reason, words) in [
        (Status::Timeout, "timeout", "It is away."),
        (
            Status::Unknown,
            "tool_runner_unavailable",
            "cannot be passed on",
        ),
    ] {
        let mut ear = EventStreamClient::on(call(&world, MODERN, "read")).await;
        assert_eq!(
            hears(&mut ear).await.unwrap()["method"],
            "notifications/progress"
        );
        let told = hears(&mut ear).await.unwrap();
        assert_eq!(
            (&told["id"], &told["error"]["code"]),
            (&json!(7), &json!(-32603))
        );
        assert!(
            told["error"]["message"].as_str().unwrap().contains(words),
            "{told}"
        );
        assert_eq!(hears(&mut ear).await, None);
        let outcome = world
            .audit
            .outcomes
            .until(|all| all.iter().any(|outcome| outcome.reason == reason));
        assert_eq!(outcome.await.pop().unwrap().status, status);
    }
}

#[tokio::test]
async fn a_failure_in_place_of_an_answer_is_told_in_its_words() {
    let world = world().await;
    let failure = || {
        Part::Failure(pb::RelayFailure {
            text: "The server does not answer. Try again later.".to_owned(),
            facts: Some(pb::ResultFacts {
                status: pb::OutcomeStatus::ToolError.into(),
                error_kind: "source_unavailable".to_owned(),
                ..pb::ResultFacts::default()
            }),
            ..pb::RelayFailure::default()
        })
    };
    let begun = vec![head(200, pb::RelayContent::Json), failure()];
    world.tool_runner.relays.next([
        RelayBehavior::Give(vec![failure()]),
        RelayBehavior::Give(begun),
        RelayBehavior::Give(vec![failure()]),
    ]);
    for request in [
        call(&world, MODERN, "read"),
        call(&world, LEGACY, "read"),
        request(&world, LEGACY, "tools/list", ""),
    ] {
        let reply = crate::world::Reply::to(request).await;
        assert_eq!(
            (reply.status, reply.code(), reply.at("/id")),
            (200, -32603, json!(7))
        );
        assert!(reply.text.contains("Try again later"), "{reply:?}");
    }
    let outcomes = world.audit.outcomes.reaches(2).await;
    assert!(outcomes.iter().all(|it| it.reason == "source_unavailable"));
}

#[tokio::test]
async fn nothing_follows_an_answer_that_has_passed_and_nobody_who_listens_is_told_of_errors() {
    let world = world().await;
    let broken = || {
        Part::Failure(pb::RelayFailure {
            text: "It is away.".to_owned(),
            facts: Some(pb::ResultFacts {
                status: pb::OutcomeStatus::ToolError.into(),
                error_kind: "broken".to_owned(),
                ..pb::ResultFacts::default()
            }),
            ..pb::RelayFailure::default()
        })
    };
    let begins = || head(200, pb::RelayContent::Events);
    let said = answer(r#"{"content":[],"tools":[]}"#);
    for ends_in_failure in [true, false] {
        for asks in [
            call(&world, LEGACY, "read"),
            request(&world, LEGACY, "tools/list", ""),
        ] {
            let mut parts = vec![begins(), last_event("1", &said)];
            world.tool_runner.relays.next([if ends_in_failure {
                parts.push(broken());
                RelayBehavior::Give(parts)
            } else {
                RelayBehavior::Cut(parts)
            }]);
            let mut ear = EventStreamClient::on(asks).await;
            assert!(hears(&mut ear).await.unwrap()["result"].is_object());
            assert_eq!(hears(&mut ear).await, None);
        }
    }
    world
        .tool_runner
        .relays
        .next([RelayBehavior::Give(vec![begins(), broken()])]);
    let mut ear = EventStreamClient::on(super::get(&world)).await;
    assert_eq!(hears(&mut ear).await, None);
    let outcomes = world.audit.outcomes.reaches(2).await;
    assert!(outcomes.iter().all(|it| it.status == Status::Ok));
}

#[tokio::test]
async fn two_requests_with_one_id_have_an_answer_each() {
    let world = world().await;
    let upstreams = [
        world.tool_runner.relays.live(),
        world.tool_runner.relays.live(),
    ];
    let mut ears = Vec::new();
    for (upstream, version) in upstreams.iter().zip([LEGACY, MODERN]) {
        let begins = head(200, pb::RelayContent::Events);
        upstream.unbounded_send(begins).unwrap();
        ears.push(EventStreamClient::on(call(&world, version, "read")).await);
    }
    // The modern client hangs up, and its own call alone is over.
    drop(ears.pop());
    world.audit.outcomes.reaches(1).await;
    let said = answer(r#"{"content":["first"]}"#);
    upstreams[0].unbounded_send(last_event("1", &said)).unwrap();
    let told = hears(&mut ears[0]).await.unwrap();
    assert_eq!(told["result"]["content"], json!(["first"]));
}
