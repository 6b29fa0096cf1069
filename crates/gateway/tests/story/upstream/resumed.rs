//! Streams that are taken up again: the call that is awaited there is governed as it was.

use serde_json::json;
use wardgate_domain::Status;
use wardgate_proto::common::v1::OfferKind;
use wardgate_proto::toolrunner::v1 as pb;

use super::sessions::begin;
use super::streams::{hears, id, next};
use super::{CALL_ID, answer, call, carried, count, get, request, world};
use crate::fakes::relay::{RelayBehavior, event, head, last_event};
use crate::listen::EventStreamClient;
use crate::world::{LEGACY, Reply, World};

/// A stream that is lost after its first event.
fn lost() -> RelayBehavior {
    let priming = event("own/1", "");
    RelayBehavior::Give(vec![head(200, pb::RelayContent::Events), priming])
}

/// The id of the first event of what `request` leads to.
async fn first_id(world: &World, session: &str, request: reqwest::RequestBuilder) -> String {
    world.tool_runner.relays.next([lost()]);
    let mut ear = EventStreamClient::on(request.header("mcp-session-id", session)).await;
    let id = id(&next(&mut ear).await.unwrap());
    assert_eq!(next(&mut ear).await, None);
    id
}

#[tokio::test]
async fn the_call_that_was_awaited_is_carried_under_its_own_right_and_recorded() {
    let world = world().await;
    let session = begin(&world).await;
    let lost = first_id(&world, &session, call(&world, LEGACY, "read")).await;
    let first = world.audit.outcomes.reaches(1).await.pop().unwrap();
    assert_eq!(
        (first.status, &*first.reason),
        (Status::Unknown, "stream_ended")
    );

    let parts = vec![
        head(200, pb::RelayContent::Events),
        last_event("own/2", &answer(r#"{"content":[1.10]}"#)),
    ];
    world.tool_runner.relays.next([RelayBehavior::Give(parts)]);
    let resumes = get(&world).header("mcp-session-id", &session);
    let mut ear = EventStreamClient::on(resumes.header("last-event-id", &lost)).await;
    let told = hears(&mut ear).await.unwrap();
    let asked = carried(&world);
    assert_eq!(told.pointer(CALL_ID), Some(&json!(asked.call_id)));
    assert_eq!(asked.method(), pb::RelayMethod::Get);
    assert_eq!((asked.kind(), &*asked.tool), (OfferKind::Tool, "reads"));
    assert_eq!((&*asked.last_event_id, &*asked.governed_id), ("own/1", "7"));
    assert_eq!(asked.session, "the-upstreams-own");
    let second = world.audit.outcomes.reaches(2).await.pop().unwrap();
    assert_eq!(second.call.call_id.to_string(), asked.call_id);
    assert_eq!(
        (second.status, second.call.tool.unwrap().as_str()),
        (Status::Ok, "reads")
    );
    assert_eq!(world.audit.intents.count(), 2);

    // Whoever lost the right meanwhile gets nothing.
    world.policy.bar(wardgate_domain::OfferKind::Tool, "reads");
    world.policy.change(b"others");
    let before = count(&world);
    crate::world::until("the gateway knows the policies", async || {
        let resumes = get(&world).header("mcp-session-id", &session);
        let resumes = resumes.header("last-event-id", &lost);
        Reply::to(resumes).await.status == 404
    })
    .await;
    assert!(count(&world) <= before + 1);
}

#[tokio::test]
async fn a_place_belongs_to_its_caller_its_session_and_its_source() {
    let world = world().await;
    let session = begin(&world).await;
    let place = first_id(&world, &session, call(&world, LEGACY, "read")).await;
    let another = first_id(&world, &session, request(&world, LEGACY, "ping", "")).await;
    let before = count(&world);
    let bent = &place[1..];
    for wrong in ["garbage", "", "own/1", bent, &session] {
        let resumes = get(&world).header("mcp-session-id", &session);
        let reply = Reply::to(resumes.header("last-event-id", wrong)).await;
        assert_eq!((reply.status, reply.code()), (400, -32600), "{wrong}");
        assert!(reply.text.contains("Last-Event-ID"), "{reply:?}");
    }
    let outside = get(&world).header("last-event-id", &place);
    assert_eq!(Reply::to(outside).await.status, 400);
    assert_eq!(count(&world), before);
    // Whoever may connect may have the answer to what needs no more, and none of it is on record.
    let outcomes = world.audit.outcomes.count();
    let resumes = get(&world).header("mcp-session-id", &session);
    Reply::to(resumes.header("last-event-id", &another)).await;
    let asked = carried(&world);
    assert_eq!(
        (asked.kind(), &*asked.governed_id),
        (OfferKind::Connect, "7")
    );
    assert_eq!(world.audit.outcomes.count(), outcomes);
}

#[tokio::test]
async fn an_answer_that_was_missed_is_not_for_who_lost_the_right_to_it() {
    let world = world().await;
    let session = begin(&world).await;
    let reads = request(&world, LEGACY, "resources/read", r#""uri":"memo://one""#);
    let place = first_id(&world, &session, reads).await;
    let resumes = || {
        let resumes = get(&world).header("mcp-session-id", &session);
        Reply::to(resumes.header("last-event-id", &place))
    };
    assert_eq!(resumes().await.status, 200);
    assert_eq!(carried(&world).last_event_id, "own/1");
    world.policy.forbid("memo://one");
    world.policy.change(b"others");
    crate::world::until("the gateway knows the policies", async || {
        resumes().await.status == 404
    })
    .await;
}

#[tokio::test]
async fn a_gateway_that_stops_ends_a_stream_that_was_taken_up_and_the_record_knows() {
    let world = world().await;
    let session = begin(&world).await;
    let place = first_id(&world, &session, call(&world, LEGACY, "read")).await;
    let upstream = world.tool_runner.relays.live();
    let begins = head(200, pb::RelayContent::Events);
    upstream.unbounded_send(begins).unwrap();
    let resumes = get(&world).header("mcp-session-id", &session);
    let mut ear = EventStreamClient::on(resumes.header("last-event-id", &place)).await;
    let asked = carried(&world);
    let (audit, over) = (
        std::sync::Arc::clone(&world.audit),
        std::sync::Arc::clone(&world.tool_runner.relays.over),
    );
    let stopped = world.stop();
    assert_eq!(next(&mut ear).await, None);
    let stopped = tokio::time::timeout(crate::fakes::PATIENCE, stopped);
    stopped.await.unwrap().unwrap();
    assert!(over.all().contains(&asked.call_id));
    assert_eq!(
        audit.intents.count(),
        audit.outcomes.count(),
        "an intent without an outcome"
    );
    let last = audit.outcomes.all().pop().unwrap();
    assert_eq!(
        (last.status, &*last.reason),
        (Status::Unknown, "stream_ended")
    );
    drop(upstream);
}

#[tokio::test]
async fn what_was_asked_is_what_the_answer_is_decided_on_however_long_it_was() {
    let world = world().await;
    let session = begin(&world).await;
    for length in [1, 100_000] {
        let arguments = format!(r#"{{ "n" : 1.10, "t":"{}" }}"#, "x".repeat(length));
        let params = format!(r#""name":"read","arguments":{arguments}"#);
        let calls = request(&world, LEGACY, "tools/call", &params);
        let place = first_id(&world, &session, calls).await;
        let before = world.audit.outcomes.count();
        let parts = vec![
            head(200, pb::RelayContent::Events),
            event("own/2", ""),
            last_event("own/3", &answer(r#"{"content":[]}"#)),
        ];
        world.tool_runner.relays.next([RelayBehavior::Give(parts)]);
        let resumes = get(&world).header("mcp-session-id", &session);
        let mut ear = EventStreamClient::on(resumes.header("last-event-id", &place)).await;
        let again = id(&next(&mut ear).await.unwrap());
        assert!(hears(&mut ear).await.unwrap()["result"].is_object());
        assert_eq!(carried(&world).arguments_json, arguments);
        let outcome = world
            .audit
            .outcomes
            .reaches(before + 1)
            .await
            .pop()
            .unwrap();
        let digest = wardgate_domain::Digest::of(arguments.as_bytes());
        assert_eq!(outcome.call.arguments_digest, digest);

        // From there it can be taken up once more.
        let resumes = get(&world).header("mcp-session-id", &session);
        Reply::to(resumes.header("last-event-id", &again)).await;
        assert_eq!(carried(&world).arguments_json, arguments);
        assert_eq!(carried(&world).last_event_id, "own/2");
    }
}
