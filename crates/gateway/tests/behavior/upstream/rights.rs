//! The rights to use a server. Refusals do not reveal what exists.

use std::time::{Duration, Instant};

use wardgate_domain::{DenialReason, OfferKind, Status};
use wardgate_proto::common::v1::ErrorReason;

use super::{UP, call, count_runs, post, request, request_to, text, world};
use crate::world::{LEGACY, MODERN, Reply};
use wardgate_testkit::PolicyAnswer;

#[tokio::test]
async fn a_route_that_is_not_for_the_caller_is_like_one_that_there_is_not() {
    let world = world().await;
    world.policy.bar(OfferKind::Connect, "other");
    let before = count_runs(&world);
    for version in [MODERN, LEGACY] {
        for (method, params) in [
            ("ping", ""),
            ("tools/list", ""),
            ("tools/call", r#""name":"read""#),
            ("resources/read", r#""uri":"memo://one""#),
        ] {
            let mut told = Vec::new();
            for path in ["none", "plain", "off", "other"] {
                let path = format!("/mcp/upstream/{path}");
                let request = request_to(&world, &path, version, method, params);
                let reply = Reply::to(request).await;
                let (status, code) = (reply.status, reply.code());
                assert_eq!((status, code), (404, -32600), "{path} {method} {reply:?}");
                told.push(reply.json());
            }
            assert!(told.iter().all(|error| *error == told[0]), "{told:?}");
        }
    }
    // An invalid message does not reveal whether the route exists either.
    for body in [
        "{",
        "[]",
        r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#,
        r#"[{"jsonrpc":"2.0","id":1}]"#,
        r#"{"jsonrpc":"2.0","id":1}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tasks/list"}"#,
    ] {
        let mut told = Vec::new();
        for path in ["none", "plain", "off", "other"] {
            let reply = Reply::to(post(&world, &format!("/mcp/upstream/{path}"), body)).await;
            told.push((reply.status, reply.json()));
        }
        assert!(told.iter().all(|refusal| *refusal == told[0]), "{told:?}");
    }
    for path in ["none", "plain", "off", "other"] {
        let listens = world
            .http
            .get(world.url(&format!("/mcp/upstream/{path}")))
            .bearer_auth(&world.token)
            .header("accept", "text/event-stream");
        assert_eq!(Reply::to(listens).await.status, 404);
    }
    assert_eq!(count_runs(&world), before);
    assert_eq!(world.audit.attempts.count(), 0);
    let mut stranger = request(&world, LEGACY, "ping", "").build().unwrap();
    stranger.headers_mut().remove("authorization");
    assert_eq!(world.http.execute(stranger).await.unwrap().status(), 401);
}

#[tokio::test]
async fn a_tool_that_the_caller_may_not_see_is_like_one_that_there_is_not() {
    let world = world().await;
    world.policy.bar(OfferKind::Tool, "writes");
    let before = count_runs(&world);
    for version in [MODERN, LEGACY] {
        // The tool's canonical name is unknown in this view too.
        for name in ["write", "never", "reads", "elsewhere"] {
            let reply = Reply::to(call(&world, version, name)).await;
            assert_eq!((reply.status, reply.code()), (200, -32602), "{name}");
            assert_eq!(reply.at("/error/message"), format!("Unknown tool: {name}"));
            assert_eq!(reply.at("/error/data/reason"), "unknown_tool");
            assert!(!reply.failed_call().is_empty());
        }
    }
    assert_eq!(count_runs(&world), before);
    let outcomes = world.audit.outcomes.reaches(8).await;
    let of = |status| {
        outcomes
            .iter()
            .filter(move |it| it.status == status)
            .count()
    };
    assert_eq!((of(Status::Denied), of(Status::UnknownTool)), (2, 6));
    assert_eq!(world.audit.intents.count(), 0);
}

#[tokio::test]
async fn while_the_policy_is_away_a_source_is_like_one_that_there_is_not() {
    let world = world().await;
    world
        .policy
        .says(PolicyAnswer::Fail(ErrorReason::Unavailable));
    for version in [MODERN, LEGACY] {
        let mut told = Vec::new();
        for path in ["none", "plain", "off", "other"] {
            let path = format!("/mcp/upstream/{path}");
            let reply = Reply::to(request_to(&world, &path, version, "ping", "")).await;
            told.push((reply.status, reply.json()));
        }
        assert_eq!(told[0].1["error"]["code"], -32603, "{told:?}");
        assert!(told.iter().all(|answer| *answer == told[0]), "{told:?}");
    }
}

#[tokio::test]
async fn an_answer_that_there_is_no_such_thing_leaves_at_a_step() {
    let world = world().await;
    let step = Duration::from_millis(50);
    let nonesuch = text(LEGACY, "tools/call", r#""name":"nonesuch""#);
    let read = text(LEGACY, "tools/call", r#""name":"read""#);
    let timed = async |path: &str, body: &str| {
        let request = post(&world, path, body).header("mcp-protocol-version", LEGACY);
        let started = Instant::now();
        let reply = Reply::to(request).await;
        assert!(started.elapsed() >= step, "{path}: {reply:?}");
        reply
    };
    assert_eq!(timed(UP, &nonesuch).await.code(), -32602);
    for path in ["/mcp/upstream/off", "/mcp/upstream/nonesuch"] {
        assert_eq!(timed(path, &read).await.status, 404);
    }
    world.policy.says(PolicyAnswer::Deny {
        reason: DenialReason::NotPermitted,
        visible: false,
    });
    let hidden = timed(UP, &read).await;
    assert_eq!(hidden.at("/error/data/reason"), "unknown_tool");
}
