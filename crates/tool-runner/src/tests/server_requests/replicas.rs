//! Tests that a call that waits on one replica resumes there, whichever replica receives the client's answers.

use serde_json::{Value, json};
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_proto::toolrunner::v1::tool_runner_service_server::ToolRunnerServiceServer;
use wardgate_rpc::{Service, Shutdown, server};

use super::{FORM, World, interaction_resuming};

/// Starts a replica that other replicas can reach.
async fn start_replica() -> World {
    let listen = server::ListenConfig {
        listen: "127.0.0.1:0".parse().unwrap(),
        tls: None,
        plaintext: true,
    };
    let bound = server::BoundServer::bind(&listen).await.unwrap();
    let address = bound.address().unwrap();
    let world = World::with(false, |config| {
        config.advertise = Some(format!("http://{address}"));
    })
    .await;
    let service = Service {
        server: ToolRunnerServiceServer::from_arc(world.harness.runner.clone()),
        readiness: world.harness.runner.readiness(),
        local: (),
    };
    tokio::spawn(bound.serve(service, Shutdown::when(std::future::pending())));
    world
}

async fn start_waiting_call(world: &World) -> (super::ServerStream, Value, pb::InputRequired) {
    let said = world.server.says_events();
    let round = world.begin().await;
    let call = world.saw("tools/call", 1).await;
    said.send_request("q", "elicitation/create", FORM);
    let (waits, _) = round.waits().await;
    (said, call["id"].clone(), waits)
}

#[tokio::test]
async fn another_replica_hands_the_answers_on_to_the_one_that_waits() {
    let holder = start_replica().await;
    let other = World::start(false).await;
    let (said, id, waits) = start_waiting_call(&holder).await;
    let answers = json!({ "1": { "action": "accept", "content": {} } });
    let request = holder
        .request("ask", interaction_resuming(&waits, &answers))
        .await;
    let round = other.send(request.clone()).await.unwrap();
    let answered = holder.was_answered(1).await;
    assert_eq!(answered["result"]["action"], "accept");
    said.end(&id, "done");
    assert_eq!(round.text().await, "done");
    let again = other.send(request).await.unwrap();
    assert_eq!(again.fails().await, "not_waiting");
    assert!(other.server.received_messages("tools/call").is_empty());
}

#[tokio::test]
async fn where_the_replica_is_gone_nobody_is_left_in_doubt() {
    let world = World::start(false).await;
    let (_said, _, mut waits) = start_waiting_call(&world).await;
    let mut state: Value = serde_json::from_slice(&waits.state).unwrap();
    assert!(state["next"]["parked"]["at"].is_null());
    state["next"]["parked"]["at"] = "http://127.0.0.1:1".into();
    waits.state = state.to_string().into();
    let round = world.resume(&waits, &json!({})).await;
    let answer = round.ends().await;
    assert_eq!(answer.facts().error_kind, "not_waiting");
    assert!(answer.text().contains("may have run"), "{}", answer.text());
    assert!(world.server.answers().is_empty());
}
