//! Tests of servers that support both legacy versions and 2026-07-28, but list only 2026-07-28 as supported.

use futures::future::join_all;
use serde_json::{Value, json};
use wardgate_proto::toolrunner::v1 as pb;

use super::{ALL, FORM, World, interaction_offering};

fn legacy(capabilities: &str) -> pb::Interaction {
    pb::Interaction {
        legacy: true,
        ..interaction_offering(capabilities)
    }
}

#[tokio::test]
async fn the_call_of_a_legacy_client_goes_over_a_legacy_session_and_its_question_comes_back() {
    let world = World::of_both_eras().await;
    let said = world.server.says_events();
    let request = world.request("ask", legacy(ALL)).await;
    let round = world.send(request).await.unwrap();
    let call = world.saw("tools/call", 1).await;
    assert_eq!(
        call["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"],
        Value::Null
    );
    said.send_request("q", "elicitation/create", FORM);
    let (waits, requests) = round.waits().await;
    assert_eq!(requests["1"]["method"], "elicitation/create");
    let answer = json!({ "action": "accept", "content": { "n": 7 } });
    let round = world.resume(&waits, &json!({ "1": answer })).await;
    assert_eq!(world.was_answered(1).await["result"], answer);
    said.end(&call["id"], "done");
    assert_eq!(round.text().await, "done");
}

#[tokio::test]
async fn the_call_of_a_modern_client_goes_in_its_own_era() {
    let world = World::of_both_eras().await;
    world.server.says_text("done");
    let round = world.begin().await;
    assert_eq!(round.text().await, "done");
    let call = world.saw("tools/call", 1).await;
    let meta = &call["params"]["_meta"];
    assert_eq!(
        meta["io.modelcontextprotocol/protocolVersion"],
        "2026-07-28"
    );
}

#[tokio::test]
async fn a_legacy_client_of_a_server_without_that_era_is_served_in_the_new_one() {
    let world = World::start(true).await;
    world.server.says_text("done");
    let request = world.request("ask", legacy(ALL)).await;
    let round = world.send(request).await.unwrap();
    assert_eq!(round.text().await, "done");
}

#[tokio::test]
async fn a_question_that_cannot_be_answered_ends_its_call_at_once() {
    let world = World::start(true).await;
    let said = world.server.says_events();
    let round = world.begin().await;
    world.saw("tools/call", 1).await;
    said.send_request("q", "elicitation/create", FORM);
    assert_eq!(round.fails().await, "input_required");
}

#[tokio::test]
async fn fifty_questions_of_one_person_wait_at_once() {
    const MANY: usize = 50;
    let world = World::start(false).await;
    let streams: Vec<_> = (0..MANY).map(|_| world.server.says_events()).collect();
    let rounds = join_all((0..MANY).map(|_| world.begin())).await;
    world.saw("tools/call", MANY).await;
    for (number, said) in streams.iter().enumerate() {
        said.send_request(&number.to_string(), "elicitation/create", FORM);
    }
    let waiting = join_all(rounds.into_iter().map(super::Round::waits)).await;
    let answers = json!({ "1": { "action": "decline" } });
    let answered = waiting
        .iter()
        .map(|(waits, _)| world.resume(waits, &answers));
    let _legs = join_all(answered).await;
    world.was_answered(MANY).await;
}
