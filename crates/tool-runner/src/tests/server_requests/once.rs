//! Tests of calls with an idempotency key that wait for their clients.

use serde_json::json;
use wardgate_proto::toolrunner::v1 as pb;

use super::{ALL, FORM, World, interaction_offering, interaction_resuming};

async fn keyed_request(
    world: &World,
    key: &str,
    interaction: pb::Interaction,
) -> pb::CallToolRequest {
    pb::CallToolRequest {
        idempotency_key: key.to_owned(),
        ..world.request("ask", interaction).await
    }
}

#[tokio::test]
async fn a_call_that_waits_has_not_ended_and_its_key_goes_on_with_it_once() {
    let world = World::start(false).await;
    let said = world.server.says_events();
    let begun = keyed_request(&world, "k", interaction_offering(ALL)).await;
    let round = world.send(begun.clone()).await.unwrap();
    let call = world.saw("tools/call", 1).await;
    said.send_request("q", "elicitation/create", FORM);
    let (waits, requests) = round.waits().await;

    // A client that lost the response receives it again, and nothing runs.
    let (again, same) = world.send(begun.clone()).await.unwrap().waits().await;
    assert_eq!((&again.state, &same), (&waits.state, &requests));
    let late = keyed_request(&world, "k", interaction_resuming(&waits, &json!({}))).await;
    let mut strange = late.clone();
    strange.interaction = Some({
        let mut other = waits.clone();
        let state = String::from_utf8(other.state.to_vec()).unwrap();
        other.state = state.replace("\"id\":\"", "\"id\":\"0").into();
        interaction_resuming(&other, &json!({}))
    });
    assert_eq!(
        world.send(strange).await.unwrap().fails().await,
        "not_waiting"
    );

    let answers = json!({ "1": { "action": "accept", "content": {} } });
    let resumed = keyed_request(&world, "k", interaction_resuming(&waits, &answers)).await;
    let round = world.send(resumed.clone()).await.unwrap();
    world.was_answered(1).await;
    let running = world.send(resumed.clone()).await.unwrap();
    assert_eq!(running.fails().await, "idempotency_running");
    said.end(&call["id"], "done");
    assert_eq!(round.text().await, "done");

    // From now on each of these requests is the same call and gets its result.
    for request in [begun, resumed, late] {
        assert_eq!(world.send(request).await.unwrap().text().await, "done");
    }
    world.saw("tools/call", 1).await;
}

#[tokio::test]
async fn what_waits_under_a_key_goes_on_under_that_key_only() {
    let world = World::start(false).await;
    let said = world.server.says_events();
    let begun = keyed_request(&world, "k", interaction_offering(ALL)).await;
    let round = world.send(begun).await.unwrap();
    world.saw("tools/call", 1).await;
    said.send_request("q", "elicitation/create", FORM);
    let (waits, _) = round.waits().await;
    let answers = json!({ "1": { "action": "accept", "content": {} } });
    let without = world.resume(&waits, &answers).await;
    assert_eq!(without.fails().await, "not_waiting");
    let other = keyed_request(&world, "other", interaction_resuming(&waits, &answers)).await;
    let other = world.send(other).await.unwrap();
    assert_eq!(other.fails().await, "idempotency_unknown");
    assert!(world.server.answers().is_empty());
}
