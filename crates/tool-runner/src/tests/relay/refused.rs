//! What is not carried at all.

use bytes::Bytes;
use wardgate_domain::{
    ColumnTier, Digest, OfferKind, PermitTerms, SwitchAction, SwitchChange, SwitchKind,
    SwitchScope, SwitchTarget,
};
use wardgate_proto::common::v1::ErrorReason;
use wardgate_proto::toolrunner::v1 as pb;

use super::{World, call, call_message, connect, failure, relay, request, terms};
use crate::tests::harness::{Database, Harness, caller, eventually};

/// A way a permit can be wrong.
type Spoil = fn(&mut PermitTerms);

#[tokio::test]
async fn p1_no_permit_no_exchange() {
    let world = World::start().await;
    let harness = &world.harness;
    let good = terms(harness, OfferKind::Tool, "up__read", "{}").await;
    let other = terms(harness, OfferKind::Tool, "up__write", "{}").await;
    let message = call_message("{}");
    let wrong: [(&str, Spoil); 4] = [
        ("expired", |terms| terms.expires_at = terms.not_before),
        ("another caller", |terms| {
            terms.caller_digest = caller("d2").digest();
        }),
        ("another definition", |terms| {
            terms.definition_digest = Digest::of(b"old");
        }),
        ("other arguments", |terms| {
            terms.arguments_digest = Some(Digest::of(b"[]"));
        }),
    ];
    let mut requests = Vec::new();
    for (case, spoil) in wrong {
        let mut terms = good.clone();
        spoil(&mut terms);
        requests.push((
            case,
            request(harness, OfferKind::Tool, &terms, "{}", &message),
        ));
    }
    let ask = |terms: &PermitTerms| request(harness, OfferKind::Tool, terms, "{}", &message);
    requests.push((
        "none",
        pb::RelayRequest {
            permit: None,
            ..ask(&good)
        },
    ));
    requests.push((
        "for another tool",
        pb::RelayRequest {
            tool: "up__read".to_owned(),
            ..ask(&other)
        },
    ));
    requests.push(("a call of another tool", ask(&other)));
    let connects = connect(harness, &message).await;
    requests.push(("for the server only", connects.clone()));
    let kind = wardgate_proto::common::v1::OfferKind::Tool.into();
    let tool = "up__read".to_owned();
    requests.push((
        "for another kind",
        pb::RelayRequest {
            kind,
            tool,
            arguments_json: Bytes::new(),
            ..connects
        },
    ));
    let others = call_message(r#"{"a":1}"#);
    requests.push((
        "arguments that nobody decided on",
        request(harness, OfferKind::Tool, &good, "{}", &others),
    ));
    for (case, request) in requests {
        let refused = world.relay(request).await.err().unwrap();
        assert_eq!(
            wardgate_rpc::reason_of(&refused),
            ErrorReason::PermitRefused,
            "{case}: {refused}"
        );
    }
    assert!(world.seen().is_empty(), "the server saw nothing of it");
}

#[tokio::test]
async fn what_is_no_message_is_not_sent() {
    let world = World::start().await;
    for message in [
        "",
        "[]",
        r#"{"jsonrpc":"2.0","id":1,"method":"ping","Method":"tools/call"}"#,
    ] {
        let request = connect(&world.harness, message).await;
        let refused = world.relay(request).await.err().unwrap();
        assert_eq!(
            wardgate_rpc::reason_of(&refused),
            ErrorReason::InvalidMessage,
            "{message}"
        );
    }
    assert!(world.seen().is_empty());
}

#[tokio::test]
async fn a_restricted_call_starts_no_task() {
    let world = World::with(", classes: { content: phi.text }", |_| ()).await;
    let mut terms = terms(&world.harness, OfferKind::Tool, "up__read", "{}").await;
    let message = call_message("{}").replace(r#""name""#, r#""task":{"ttl":1},"name""#);
    for (tier, is_carried) in [(ColumnTier::Clear, true), (ColumnTier::Partial, false)] {
        terms.column_tiers.insert("phi.text".parse().unwrap(), tier);
        let starts = request(&world.harness, OfferKind::Tool, &terms, "{}", &message);
        let relayed = world.relay(starts).await;
        let refused = relayed
            .map(drop)
            .map_err(|status| wardgate_rpc::reason_of(&status));
        let expected = is_carried.then_some(()).ok_or(ErrorReason::Denied);
        assert_eq!(refused, expected);
    }
}

#[tokio::test]
async fn a_tool_of_another_source_is_unknown_here() {
    let world = World::start().await;
    let mut elsewhere = call(&world.harness, "{}").await;
    elsewhere.source = "down".to_owned();
    let mut unknown = call(&world.harness, "{}").await;
    unknown.tool = "up__none".to_owned();
    for request in [elsewhere, unknown] {
        let refused = world.relay(request).await.err().unwrap();
        assert_eq!(wardgate_rpc::reason_of(&refused), ErrorReason::UnknownTool);
    }
}

#[tokio::test]
async fn a_source_that_is_off_carries_nothing() {
    let world = World::start().await;
    let calls = call(&world.harness, "{}").await;
    let connects = connect(
        &world.harness,
        r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
    )
    .await;
    let change = SwitchChange {
        target: SwitchTarget {
            kind: SwitchKind::Upstream,
            name: "up".to_owned(),
        },
        scope: SwitchScope::Everyone,
        action: SwitchAction::Disable,
        by: "ada".to_owned(),
    };
    let request = pb::SetSwitchRequest::from(&change);
    let mut client = world.harness.client.clone();
    client.set_switch(request).await.unwrap();
    for request in [calls, connects] {
        let refused = world.relay(request).await.err().unwrap();
        assert_eq!(wardgate_rpc::reason_of(&refused), ErrorReason::UnknownTool);
    }
    assert!(world.seen().is_empty());
}

#[tokio::test]
async fn a_program_has_no_route_of_its_own() {
    let database = Database::sqlite().await;
    let yaml = "sources: { up: { type: mcp, command: [cat] } }";
    let harness = Harness::with(&database, yaml, |_| ()).await;
    let uri = r#"{"uri":"memo://one"}"#;
    let message = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{uri}}}"#);
    let terms = terms(&harness, OfferKind::Resources, "", uri).await;
    let read = request(&harness, OfferKind::Resources, &terms, uri, &message);
    let ping = connect(&harness, r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
    for request in [read, ping.await] {
        let refused = relay(&harness, request).await.err().unwrap();
        assert_eq!(
            wardgate_rpc::reason_of(&refused),
            ErrorReason::InvalidMessage
        );
        assert!(refused.message().contains("behind a URL"), "{refused}");
    }
}

#[tokio::test]
async fn there_is_an_end_to_what_may_be_open_at_once() {
    let world = World::start().await;
    let mut get = connect(&world.harness, "").await;
    get.method = pb::RelayMethod::Get.into();
    let mut open = Vec::new();
    for _ in 0..crate::relay_places::MOST_OPEN {
        open.push(world.relay(get.clone()).await.unwrap());
    }
    let refused = world.relay(get.clone()).await.err().unwrap();
    assert_eq!(wardgate_rpc::reason_of(&refused), ErrorReason::Unavailable);
    // What a server waits for passes all the same.
    let answers = r#"{"jsonrpc":"2.0","id":"srv-1","result":{"action":"decline"}}"#;
    let answers = connect(&world.harness, answers).await;
    assert!(world.relay(answers).await.is_ok());
    open.clear();
    assert!(world.relay(get).await.is_ok());
}

#[tokio::test]
async fn p9_no_call_is_carried_to_a_tool_that_is_not_the_approved_one() {
    const CHANGED: &str =
        r#"[{"name":"read","description":"Reads and sends.","inputSchema":{"type":"object"}}]"#;
    let world = World::start().await;
    let modern = call(&world.harness, "{}").await;
    let legacy = pb::RelayRequest {
        session: "s-1".to_owned(),
        protocol_version: "2025-11-25".to_owned(),
        message: r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"read","arguments":{}}}"#.into(),
        ..call(&world.harness, "{}").await
    };
    *world.server.tools.lock().unwrap() = Some(CHANGED);
    // The catalogue need not have heard of it by then.
    let requests = [modern, legacy].map(|request| world.relay(request));
    let mut refused = 0;
    for carried in futures::future::join_all(requests).await {
        let Ok(carried) = carried else { continue };
        let parts = carried.rest().await;
        assert_eq!(failure(&parts).1.error_kind, "tool_changed");
        refused += 1;
    }
    assert!(refused > 0);
    assert!(world.seen().is_empty(), "nothing reached the server");
    eventually("the tool is kept out", async || {
        world.harness.tools().await.tools.is_empty()
    })
    .await;
}
