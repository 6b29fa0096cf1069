//! Older clients that are asked for input in the middle of a call.

use serde_json::{Value, json};
use wardgate_domain::Status;
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_proto::toolrunner::v1::call_tool_response::Event;

use crate::content;
use crate::resumed::{back, call};
use crate::sessions::{begin_with, within};
use crate::sse::Client;
use crate::stream_messages::final_result;
use crate::world::{LEGACY, OLDEST, Reply, World};
use wardgate_testkit::{EventStreamClient, content_response};

fn asks(requests: &Value) -> Event {
    Event::InputRequired(waits(requests))
}

fn waits(requests: &Value) -> pb::InputRequired {
    pb::InputRequired {
        input_requests_json: requests.to_string().into(),
        state: "the state".into(),
        facts: Some(pb::ResultFacts {
            status: pb::OutcomeStatus::Ok.into(),
            ..pb::ResultFacts::default()
        }),
        connect: None,
    }
}

fn form() -> Value {
    json!({ "method": "elicitation/create", "params": {
        "message": "Which?", "requestedSchema": { "type": "object", "properties": {} },
    } })
}

pub(crate) fn able() -> Value {
    json!({ "elicitation": {}, "sampling": {}, "roots": {} })
}

pub(crate) fn response(id: &Value, result: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

pub(crate) async fn respond(
    world: &World,
    version: &str,
    session: &str,
    token: &str,
    message: &Value,
) -> u16 {
    let post = world
        .message_of(token, version, "", "")
        .body(message.to_string());
    let reply = Reply::to(within(post, session)).await;
    reply.status
}

#[tokio::test]
async fn a_client_is_asked_on_the_stream_of_its_call_and_answers_at_any_gateway() {
    let world = World::start().await;
    let twin = world.twin().await;
    for (version, at) in [(LEGACY, &world), ("2025-06-18", &twin)] {
        let session = begin_with(&world, version, &able()).await;
        let before = world.tool_runner.asked.count();
        for event in [
            asks(&json!({ "f": form(), "r": { "method": "roots/list" } })),
            final_result(),
        ] {
            world.tool_runner.live().unbounded_send(event).unwrap();
        }
        let mut ear = EventStreamClient::open(call(&world, version, &session, "writes", 7)).await;
        let (form, roots) = (
            ear.next_message().await.unwrap(),
            ear.next_message().await.unwrap(),
        );
        assert_eq!(form["method"], "elicitation/create");
        assert!(
            form["params"]["message"]
                .as_str()
                .unwrap()
                .ends_with("Which?")
        );
        assert_eq!(roots["method"], "roots/list");
        assert_ne!(form["id"], roots["id"]);
        let answers = [
            (&form, json!({ "action": "accept", "content": { "n": 1 } })),
            (&roots, json!({ "roots": [] })),
        ];
        for (asked, result) in &answers {
            let response = response(&asked["id"], result);
            let status = respond(at, version, &session, &world.token, &response).await;
            assert_eq!(status, 202);
        }
        let answer = ear.next_message().await.unwrap();
        assert_eq!(
            (&answer["id"], &answer["result"]["isError"]),
            (&json!(7), &json!(false))
        );
        let legs = world.tool_runner.asked.reaches(before + 2).await;
        let leg = legs[before + 1]
            .interaction
            .clone()
            .unwrap()
            .resumption
            .unwrap();
        assert_eq!(leg.state, "the state");
        let given: Value = serde_json::from_slice(&leg.input_responses_json).unwrap();
        assert_eq!(given, json!({ "f": answers[0].1, "r": answers[1].1 }));
    }
    assert_eq!(world.audit.outcomes.count(), 2, "each is one call");
}

#[tokio::test]
async fn what_others_answer_or_is_answered_twice_changes_nothing() {
    let world = World::start().await;
    let session = begin_with(&world, LEGACY, &able()).await;
    let other = begin_with(&world, LEGACY, &able()).await;
    for event in [asks(&json!({ "f": form() })), final_result()] {
        world.tool_runner.live().unbounded_send(event).unwrap();
    }
    let mut ear = EventStreamClient::open(call(&world, LEGACY, &session, "reads", 7)).await;
    let id = ear.next_message().await.unwrap()["id"].clone();
    let wrong = response(&id, &json!({ "action": "wrong" }));
    let mallory = world.issuer.token("mallory", &["Doctor"]);
    let theirs = crate::sessions::begin_as(&world, &mallory, LEGACY).await;
    for (session, token) in [(&other, &world.token), (&theirs, &mallory)] {
        assert_eq!(respond(&world, LEGACY, session, token, &wrong).await, 202);
    }
    for id in [json!("made-up"), json!(7), json!(null)] {
        let made_up = response(&id, &json!({}));
        let status = respond(&world, LEGACY, &session, &world.token, &made_up).await;
        assert!([202, 400].contains(&status), "{id}: {status}");
    }
    assert_eq!(world.tool_runner.asked.count(), 1);
    for action in ["accept", "wrong", "wrong"] {
        let response = response(&id, &json!({ "action": action }));
        assert_eq!(
            respond(&world, LEGACY, &session, &world.token, &response).await,
            202
        );
    }
    assert_eq!(ear.next_message().await.unwrap()["id"], 7);
    let legs = world.tool_runner.asked.reaches(2).await;
    let leg = legs[1].interaction.clone().unwrap().resumption.unwrap();
    assert_eq!(leg.input_responses_json, r#"{"f":{"action":"accept"}}"#);
    assert_eq!(legs.len(), 2);
}

#[tokio::test]
async fn a_client_that_lost_its_stream_is_asked_again_by_the_same_event() {
    let world = World::start().await;
    let twin = world.twin().await;
    let session = begin_with(&world, LEGACY, &able()).await;
    for event in [asks(&json!({ "f": form() })), final_result()] {
        world.tool_runner.live().unbounded_send(event).unwrap();
    }
    let mut ear = EventStreamClient::open(call(&world, LEGACY, &session, "reads", 7)).await;
    ear.next_event().await.unwrap();
    let primed = ear.last_id.clone();
    let asked = ear.next_message().await.unwrap();
    drop(ear);
    let mut ear = EventStreamClient::open(back(&twin, LEGACY, &session, &primed)).await;
    assert_eq!(ear.next_message().await.unwrap(), asked);
    let answer = response(&asked["id"], &json!({ "action": "accept" }));
    assert_eq!(
        respond(&twin, LEGACY, &session, &world.token, &answer).await,
        202
    );
    assert_eq!(ear.next_message().await.unwrap()["id"], 7);
    assert!(ear.next_message().await.is_none());
}

#[tokio::test]
async fn who_cannot_or_will_not_answer_gets_an_error_the_model_can_read() {
    let world = World::start().await;
    for (version, capabilities) in [(LEGACY, json!({})), (OLDEST, able())] {
        let session = begin_with(&world, version, &capabilities).await;
        let asks = asks(&json!({ "f": form() }));
        world.tool_runner.live().unbounded_send(asks).unwrap();
        let reply = Reply::to(call(&world, version, &session, "reads", 7)).await;
        assert_eq!(reply.at("/result/isError"), true, "{reply:?}");
    }
    let session = begin_with(&world, LEGACY, &able()).await;
    world
        .tool_runner
        .live()
        .unbounded_send(asks(&json!({ "f": form() })))
        .unwrap();
    let mut ear = EventStreamClient::open(call(&world, LEGACY, &session, "reads", 7)).await;
    let asked = ear.next_message().await.unwrap();
    let refusal =
        json!({ "jsonrpc": "2.0", "id": asked["id"], "error": { "code": -1, "message": "no" } });
    assert_eq!(
        respond(&world, LEGACY, &session, &world.token, &refusal).await,
        202
    );
    let answer = ear.next_message().await.unwrap();
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    let outcome = world.audit.outcomes.reaches(3).await.pop().unwrap();
    assert_eq!(
        (outcome.status, outcome.reason.as_str()),
        (Status::Error, "client_refused")
    );
}

#[tokio::test]
async fn a_call_that_waits_for_its_client_can_be_cancelled() {
    let world = World::start().await;
    let session = begin_with(&world, LEGACY, &able()).await;
    world
        .tool_runner
        .live()
        .unbounded_send(asks(&json!({ "f": form() })))
        .unwrap();
    let mut ear = EventStreamClient::open(call(&world, LEGACY, &session, "reads", 7)).await;
    ear.next_message().await.unwrap();
    let cancel = json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 7 },
    });
    assert_eq!(
        respond(&world, LEGACY, &session, &world.token, &cancel).await,
        202
    );
    assert_eq!(
        ear.next_message().await.unwrap()["error"]["data"]["reason"],
        "cancelled"
    );
    assert_eq!(world.audit.outcome().await.status, Status::Cancelled);
}

#[tokio::test]
async fn a_client_of_http_and_sse_is_asked_on_its_stream() {
    let world = World::start().await;
    let mut client = Client::able(&world, "2024-11-05", able()).await;
    let sample =
        json!({ "method": "sampling/createMessage", "params": { "messages": [], "maxTokens": 5 } });
    for event in [asks(&json!({ "s": sample })), final_result()] {
        world.tool_runner.live().unbounded_send(event).unwrap();
    }
    let call =
        json!({ "jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": { "name": "reads" } });
    client.send_message(&world, &call).await;
    let asked = client.ear.next_message().await.unwrap();
    assert_eq!(asked["method"], "sampling/createMessage");
    let answer = response(&asked["id"], &json!({ "role": "assistant" }));
    client.send_message(&world, &answer).await;
    assert_eq!(client.ear.next_message().await.unwrap()["id"], 3);
}

#[tokio::test]
async fn a_call_that_waits_goes_on_at_another_gateway_when_its_own_is_told_to_stop() {
    let world = World::start().await;
    let twin = world.twin().await;
    for answered_first in [false, true] {
        let going = twin.twin().await;
        let session = begin_with(&going, LEGACY, &able()).await;
        let asks = asks(&json!({ "f": form() }));
        going.tool_runner.live().unbounded_send(asks).unwrap();
        let before = twin.tool_runner.asked.count();
        let mut ear = EventStreamClient::open(call(&going, LEGACY, &session, "writes", 7)).await;
        let asked = ear.next_message().await.unwrap();
        let last = ear.last_id.clone();
        let answer = response(&asked["id"], &json!({ "action": "accept" }));
        let audit = std::sync::Arc::clone(&going.audit);
        let stopped = going.stop();
        assert!(
            ear.next_message().await.is_none(),
            "it ends without an answer"
        );
        stopped.await.unwrap();
        assert_eq!(audit.outcome().await.reason, "handed_over");
        if answered_first {
            let status = respond(&twin, LEGACY, &session, &world.token, &answer).await;
            assert_eq!(status, 202);
        }
        let mut ear = EventStreamClient::open(back(&twin, LEGACY, &session, &last)).await;
        if !answered_first {
            let status = respond(&world, LEGACY, &session, &world.token, &answer).await;
            assert_eq!(status, 202);
        }
        let done = ear.next_message().await.unwrap();
        assert_eq!(
            (&done["id"], &done["result"]["isError"]),
            (&json!(7), &json!(false))
        );
        assert!(ear.next_message().await.is_none());
        let legs = twin.tool_runner.asked.reaches(before + 1).await;
        assert_eq!(legs.len(), before + 1, "once");
        let leg = legs[before]
            .interaction
            .clone()
            .unwrap()
            .resumption
            .unwrap();
        assert_eq!(
            (&leg.state[..], &leg.input_responses_json[..]),
            (&b"the state"[..], &br#"{"f":{"action":"accept"}}"#[..])
        );
        let outcome = twin.audit.outcomes.reaches(before + 1).await.pop().unwrap();
        assert_eq!(outcome.status, Status::Ok);
    }
}

#[tokio::test]
async fn what_goes_on_elsewhere_is_decided_for_the_address_that_came_and_again_after_its_wait() {
    let world = World::start().await;
    let mut twin = world.twin().await;
    let from = reqwest::Client::builder().local_address(std::net::IpAddr::from([127, 0, 0, 2]));
    twin.http = from.no_proxy().build().unwrap();
    // The permit expires so soon that it is not reused for another decision.
    twin.policy.permits_last(std::time::Duration::from_secs(1));
    let session = begin_with(&world, LEGACY, &able()).await;
    let asks = asks(&json!({ "f": form() }));
    world.tool_runner.live().unbounded_send(asks).unwrap();
    let mut ear = EventStreamClient::open(call(&world, LEGACY, &session, "writes", 7)).await;
    let asked = ear.next_message().await.unwrap();
    let last = ear.last_id.clone();
    world.stop().await.unwrap();
    assert!(!twin.read_store().is_empty(), "the store is still there");
    let mut ear = EventStreamClient::open(back(&twin, LEGACY, &session, &last)).await;
    twin.policy.asked.reaches(2).await;
    let answer = response(&asked["id"], &json!({ "action": "accept" }));
    assert_eq!(
        respond(&twin, LEGACY, &session, &twin.token, &answer).await,
        202
    );
    assert_eq!(
        ear.next_message().await.unwrap()["result"]["isError"],
        false
    );
    let decided = twin.policy.asked.entries();
    let addresses: Vec<_> = decided.iter().map(|asked| &*asked.client_ip).collect();
    // The decisions are: to replay the stream, to resume the call, after the wait, and to replay its result.
    assert_eq!(addresses, ["127.0.0.2"; 4]);
    assert_eq!(twin.audit.outcome().await.call.client_ip, "127.0.0.2");
}

#[tokio::test]
async fn a_prompt_or_resource_that_waits_goes_on_at_another_gateway_when_its_own_goes_away() {
    let world = content::world().await;
    let twin = world.twin().await;
    content::offer(&twin, 2).await;
    let guide = ("resources/read", json!({ "uri": "guide://door/001" }));
    let greeting = json!({ "name": "greet", "arguments": { "who": "you" } });
    for (number, (method, params)) in [("prompts/get", greeting), guide].into_iter().enumerate() {
        let going = twin.twin().await;
        content::offer(&going, 2).await;
        let session = begin_with(&going, LEGACY, &able()).await;
        let waits = pb::GetContentResponse {
            input_required: Some(waits(&json!({ "f": form() }))),
            ..content_response("")
        };
        going.tool_runner.gives.lock().unwrap().push_back(Ok(waits));
        let params = params.to_string();
        let members = &params[1..params.len() - 1];
        let request = going.message(LEGACY, method, members);
        let mut ear = EventStreamClient::open(within(request, &session)).await;
        let asked = ear.next_message().await.unwrap();
        let last = ear.last_id.clone();
        going.stop().await.unwrap();
        let mut ear = EventStreamClient::open(back(&twin, LEGACY, &session, &last)).await;
        let answer = response(&asked["id"], &json!({ "action": "decline" }));
        let status = respond(&world, LEGACY, &session, &world.token, &answer).await;
        assert_eq!(status, 202);
        let done = ear.next_message().await.unwrap();
        assert_eq!(done["id"], 7, "{done}");
        assert!(done["result"]["_meta"]["dev.wardgate/receipt"].is_object());
        let got = twin
            .tool_runner
            .got
            .reaches(number + 1)
            .await
            .pop()
            .unwrap();
        let resumption = got.interaction.unwrap().resumption.unwrap();
        assert_eq!(resumption.state, "the state");
        let outcome = twin.audit.outcomes.reaches(number + 1).await.pop().unwrap();
        assert_eq!(
            (outcome.status, outcome.call.method.as_str()),
            (Status::Ok, method)
        );
    }
}
