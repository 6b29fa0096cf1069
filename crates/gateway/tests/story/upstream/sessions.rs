//! Sessions of legacy clients: the upstream's own, sealed for their caller.

use reqwest::RequestBuilder;
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_proto::toolrunner::v1::relay_response::Part;

use super::{OTHER, UP, answer, carried, count, get, post, request_to, world};
use crate::fakes::relay::{RelayBehavior, head_of, nothing};
use crate::world::{LEGACY, MODERN, Reply, World};

const OWN: &str = "the-upstreams-own";

/// Begins a session, and gives what the client holds of it.
pub(super) async fn begin(world: &World) -> String {
    let message = answer(r#"{"protocolVersion":"2025-11-25","capabilities":{}}"#);
    let body = Part::Body(pb::RelayBody {
        message: message.clone().into(),
        result: None,
        more: 0,
    });
    let parts = vec![head_of(OWN, pb::RelayContent::Json), body];
    world.tool_runner.relays.next([RelayBehavior::Give(parts)]);
    let hello = r#"{"jsonrpc":"2.0","id":7,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}"#;
    let reply = Reply::to(post(world, UP, hello)).await;
    assert_eq!((reply.status, &*reply.text), (200, &*message));
    let asked = carried(world);
    assert_eq!(asked.message, hello);
    assert_eq!((&*asked.protocol_version, &*asked.session), ("", ""));
    let session = reply.header("mcp-session-id").to_owned();
    assert!(!session.is_empty() && !session.contains(OWN));
    session
}

fn ping(world: &World, path: &str, token: &str, session: &str) -> RequestBuilder {
    let mut request = request_to(world, path, LEGACY, "ping", "").build().unwrap();
    let bearer = format!("Bearer {token}").parse().unwrap();
    request.headers_mut().insert("authorization", bearer);
    let session = session.parse().unwrap();
    request.headers_mut().insert("mcp-session-id", session);
    RequestBuilder::from_parts(world.http.clone(), request)
}

#[tokio::test]
async fn a_session_opens_for_its_caller_at_its_source_and_for_nobody_else() {
    let world = world().await;
    let session = begin(&world).await;
    let renewed = world.issuer.token("dr.lee", &["Doctor", "Chief"]);
    for token in [&world.token, &renewed] {
        let reply = Reply::to(ping(&world, UP, token, &session)).await;
        assert_eq!((reply.status, reply.code()), (200, 0), "{reply:?}");
        assert_eq!(carried(&world).session, OWN);
        assert_eq!(carried(&world).protocol_version, LEGACY);
    }
    // Any replica serves it.
    let twin = world.twin().await;
    twin.tool_runner.content.lock().unwrap().0 =
        world.tool_runner.content.lock().unwrap().0.clone();
    twin.tool_runner.configure(vec![crate::fakes::tool(
        "reads",
        &crate::world::definition(),
    )]);
    crate::world::until("the twin serves it", async || {
        Reply::to(ping(&twin, UP, &world.token, &session))
            .await
            .status
            == 200
    })
    .await;
    assert_eq!(carried(&twin).session, OWN);

    let before = count(&world);
    let other = world.issuer.token("dr.other", &["Doctor"]);
    let bent = format!("{session}x");
    let mut told = Vec::new();
    for (path, token, session) in [
        (UP, &other, session.as_str()),
        (OTHER, &world.token, &session),
        (UP, &world.token, "garbage"),
        (UP, &world.token, ""),
        (UP, &world.token, OWN),
        (UP, &world.token, &bent),
    ] {
        let reply = Reply::to(ping(&world, path, token, session)).await;
        assert_eq!(
            (reply.status, reply.at("/id")),
            (404, 7.into()),
            "{session}"
        );
        told.push(reply.text);
    }
    assert!(told.iter().all(|text| *text == told[0]), "{told:?}");
    assert_eq!(count(&world), before, "nothing of it was carried");
    // After a day it is like one that never was.
    world.clock.advance(std::time::Duration::from_hours(25));
    let later = world.issuer.token("dr.lee", &["Doctor"]);
    let reply = Reply::to(ping(&world, UP, &later, &session)).await;
    assert_eq!(reply.status, 404);
}

#[tokio::test]
async fn a_session_keeps_the_id_it_has_until_the_upstream_names_another() {
    let world = world().await;
    let session = begin(&world).await;
    for (own, is_same) in [(OWN, true), ("another", false)] {
        let body = Part::Body(pb::RelayBody {
            message: answer("{}").into(),
            result: None,
            more: 0,
        });
        let parts = vec![head_of(own, pb::RelayContent::Json), body];
        world.tool_runner.relays.next([RelayBehavior::Give(parts)]);
        let reply = Reply::to(ping(&world, UP, &world.token, &session)).await;
        assert_eq!(reply.header("mcp-session-id") == session, is_same, "{own}");
    }
    // What an upstream has against it is passed on.
    world
        .tool_runner
        .relays
        .next([RelayBehavior::Give(nothing(404))]);
    let reply = Reply::to(ping(&world, UP, &world.token, &session)).await;
    assert_eq!((reply.status, &*reply.text), (404, ""));
}

#[tokio::test]
async fn a_session_is_ended_at_the_upstream() {
    let world = world().await;
    let session = begin(&world).await;
    let end = |session: &str| {
        let request = world.http.delete(world.url(UP)).bearer_auth(&world.token);
        let request = request.header("mcp-protocol-version", LEGACY);
        Reply::to(request.header("mcp-session-id", session))
    };
    for status in [200, 405] {
        world
            .tool_runner
            .relays
            .next([RelayBehavior::Give(nothing(status))]);
        let reply = end(&session).await;
        assert_eq!((u32::from(reply.status), &*reply.text), (status, ""));
        let asked = carried(&world);
        assert_eq!(asked.method(), pb::RelayMethod::Delete);
        assert_eq!((&*asked.session, asked.message.len()), (OWN, 0));
    }
    let before = count(&world);
    assert_eq!(end("garbage").await.status, 404);
    assert_eq!(count(&world), before);
    assert_eq!(world.audit.attempts.count(), 0);
}

#[tokio::test]
async fn who_listens_without_a_session_hears_what_the_upstream_has_to_say_to_that() {
    let world = world().await;
    world
        .tool_runner
        .relays
        .next([RelayBehavior::Give(nothing(400))]);
    let reply = Reply::to(get(&world)).await;
    assert_eq!(reply.status, 400);
    let asked = carried(&world);
    assert_eq!(asked.method(), pb::RelayMethod::Get);
    assert_eq!(asked.session, "");
    let reply = Reply::to(get(&world).header("mcp-session-id", "garbage")).await;
    assert_eq!(reply.status, 404);
    // 2026-07-28 has no such streams, and no sessions.
    let before = count(&world);
    let modern = world.http.get(world.url(UP)).bearer_auth(&world.token);
    let modern = modern.header("accept", "text/event-stream");
    let reply = Reply::to(modern.header("mcp-protocol-version", MODERN)).await;
    assert_eq!(
        (reply.status, reply.header("allow")),
        (405, "GET, POST, DELETE")
    );
    assert_eq!(count(&world), before);
}
