//! Real servers, made with rmcp.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use serde_json::{Value, json};
use wardgate_domain::{CallId, OfferKind, Status};
use wardgate_proto::common::v1::ErrorReason;
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_proto::toolrunner::v1::relay_response::Part;
use wardgate_proto::toolrunner::v1::tool_runner_service_server::ToolRunnerServiceServer;
use wardgate_rpc::client::{Exchange, Offer, Relay, RelayContent, Relayed, ToolRunnerClient};
use wardgate_rpc::{Peer, Service, link};

use super::{META, connect, event, failure, head, relay, request, start, terms};
use crate::tests::harness::Harness;
use wardgate_mcp_client::testing::http::fixture;

/// The answer, whichever way it came, and the head before it.
async fn answer(harness: &Harness, request: pb::RelayRequest) -> (pb::RelayHead, Value) {
    let parts = relay(harness, request).await.unwrap().rest().await;
    let message = match parts.last() {
        Some(Part::Body(body)) => &body.message,
        Some(last @ Part::Event(_)) => &event(last).message,
        other => panic!("no answer: {other:?}"),
    };
    let answer = serde_json::from_slice(message).unwrap();
    (head(&parts[0]).clone(), answer)
}

async fn call(harness: &Harness, tool: &str, arguments: &str, meta: &str) -> pb::RelayRequest {
    let name = format!("up__{tool}");
    let terms = terms(harness, OfferKind::Tool, &name, arguments).await;
    let message = format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments},{meta}}}}}"#
    );
    request(harness, OfferKind::Tool, &terms, arguments, &message)
}

#[tokio::test]
async fn a_modern_server_takes_calls_with_their_marked_arguments() {
    for json in [true, false] {
        let (_, url) = fixture("modern", json).await;
        let harness = start(&url, "", |_| ()).await;
        let arguments = r#"{"region":"Zürich"}"#;
        let mut marked = call(&harness, "echo", arguments, META).await;
        marked.headers = vec![pb::RelayHeader {
            name: "mcp-param-region".to_owned(),
            value: "=?base64?WsO8cmljaA==?=".to_owned(),
        }];
        let (head, echoed) = answer(&harness, marked).await;
        assert_eq!(head.status, 200);
        assert_eq!(
            echoed["result"]["structuredContent"],
            json!({"region": "Zürich"})
        );
    }
}

#[tokio::test]
async fn a_legacy_message_is_not_carried_to_a_server_that_refuses_initialize() {
    let (_, url) = fixture("modern", false).await;
    let harness = start(&url, "", |_| ()).await;
    let carriage = async || harness.tools().await.sources[0].carriage();
    assert_eq!(carriage().await, pb::Carriage::All, "it was not asked yet");
    let mut legacy = connect(&harness, r#"{"jsonrpc":"2.0","id":0,"method":"ping"}"#).await;
    (legacy.session, legacy.protocol_version) = (String::new(), "2025-06-18".to_owned());
    let parts = relay(&harness, legacy).await.unwrap().rest().await;
    assert_eq!(failure(&parts).1.error_kind, "other_era");
    assert_eq!(carriage().await, pb::Carriage::Modern);
}

#[tokio::test]
async fn a_legacy_session_with_progress_lasts_until_it_is_ended() {
    let (_, url) = fixture("legacy", false).await;
    let harness = start(&url, "", |_| ()).await;
    let initialize = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;
    let mut opens = connect(&harness, initialize).await;
    (opens.session, opens.protocol_version) = (String::new(), String::new());
    let (opened, _) = answer(&harness, opens).await;
    assert!(!opened.session.is_empty());
    let in_session = |request: pb::RelayRequest| pb::RelayRequest {
        session: opened.session.clone(),
        protocol_version: "2025-06-18".to_owned(),
        ..request
    };
    let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let notice = in_session(connect(&harness, initialized).await);
    let parts = relay(&harness, notice).await.unwrap().rest().await;
    assert_eq!(head(&parts[0]).status, 202);

    let steps = call(&harness, "steps", "{}", r#""_meta":{"progressToken":"p"}"#).await;
    let parts = relay(&harness, in_session(steps))
        .await
        .unwrap()
        .rest()
        .await;
    let said: Vec<Value> = parts[1..]
        .iter()
        .map(|part| &event(part).message)
        .filter(|message| !message.is_empty())
        .map(|message| serde_json::from_slice(message).unwrap())
        .collect();
    let progress: Vec<_> = said
        .iter()
        .map(|said| &said["params"]["progress"])
        .collect();
    assert_eq!(progress[..3], [&json!(1.0), &json!(2.0), &json!(3.0)]);
    assert_eq!(said[3]["id"], 7);

    let mut leaves = in_session(connect(&harness, "").await);
    leaves.method = pb::RelayMethod::Delete.into();
    let parts = relay(&harness, leaves).await.unwrap().rest().await;
    assert!(head(&parts[0]).status < 300);
    let late = in_session(call(&harness, "fail", "{}", META).await);
    let late = pb::RelayRequest {
        message: r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"fail","arguments":{}}}"#.into(),
        ..late
    };
    let parts = relay(&harness, late).await.unwrap().rest().await;
    assert_eq!(head(&parts[0]).status, 404);
}

#[tokio::test]
async fn the_typed_client_says_and_hears_the_same() {
    let (_, url) = fixture("modern", true).await;
    let harness = start(&url, "", |_| ()).await;
    let service = Service {
        server: ToolRunnerServiceServer::from_arc(Arc::clone(&harness.runner)),
        readiness: harness.runner.readiness(),
    };
    let link = link::local(service, Peer::Gateway).link;
    let client = ToolRunnerClient::new(link, Duration::from_secs(20));
    let raw = call(&harness, "echo", "{}", META).await;
    let permit = raw.permit.unwrap().try_into().unwrap();
    let tool = "up__echo".parse().unwrap();
    let relay = Relay {
        call_id: CallId::new(&harness.ambient),
        caller: &harness.caller,
        source: "up",
        offer: Offer::Tool(&tool),
        permit: &permit,
        arguments: raw.arguments_json,
        exchange: Exchange::Post(raw.message),
        protocol_version: Some("2026-07-28"),
        session: None,
        last_event_id: None,
        headers: &[],
        governed_id: None,
        caller_token: None,
    };
    let parts = client.relay(relay.clone()).await.unwrap();
    let parts: Vec<_> = parts.map(Result::unwrap).collect().await;
    let [Relayed::Head(head), Relayed::Body(body)] = parts.as_slice() else {
        panic!("{parts:?}");
    };
    assert_eq!((head.status, head.content), (200, RelayContent::Json));
    assert_eq!(body.result.as_ref().unwrap().status, Status::Ok);

    let elsewhere = Relay {
        source: "down",
        ..relay
    };
    let refused = client.relay(elsewhere).await.map(drop).unwrap_err();
    assert_eq!(refused.reason(), ErrorReason::UnknownTool);
}
