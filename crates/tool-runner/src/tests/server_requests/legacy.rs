//! Tests of servers of versions before 2026-07-28, which send requests to the client while the call is open.

use std::time::Duration;

use serde_json::{Value, json};
use wardgate_proto::toolrunner::v1::call_tool_response::Event;
use wardgate_testkit::until_true;

use super::{
    ALL, FORM, Says, World, interaction_offering, interaction_resuming, interaction_with_log_level,
};

const SAMPLING: &str = r#"{"messages":[],"maxTokens":10}"#;

#[tokio::test]
async fn a_question_parks_the_call_and_the_answer_lets_it_go_on() {
    let world = World::start(false).await;
    let said = world.server.says_events();
    let round = world.begin().await;
    let call = world.saw("tools/call", 1).await;
    let told = world.saw("initialize", 2).await;
    assert_eq!(
        told["params"]["capabilities"],
        json!({ "elicitation": { "form": {}, "url": {} }, "sampling": {}, "roots": {} })
    );
    let plain = &world.server.received_messages("initialize")[0];
    assert_eq!(plain["params"]["capabilities"], json!({}));

    said.send_request("q-1", "elicitation/create", FORM);
    let (waits, requests) = round.waits().await;
    let form: Value = serde_json::from_str(FORM).unwrap();
    assert_eq!(
        requests,
        json!({ "1": { "method": "elicitation/create", "params": form } })
    );
    // Pings of the server are still answered while a person thinks.
    said.send_request("p", "ping", "{}");
    let pong = world.was_answered(1).await;
    assert_eq!((&pong["id"], &pong["result"]), (&json!("p"), &json!({})));

    let answer = json!({ "action": "accept", "content": { "n": 7 } });
    let round = world.resume(&waits, &json!({ "1": answer, "9": {} })).await;
    let heard = world.was_answered(2).await;
    assert_eq!(
        heard,
        json!({ "jsonrpc": "2.0", "id": "q-1", "result": answer })
    );

    // Several concurrent requests form one round, and a request without an answer is sent to the client again.
    said.send_request("q-2", "sampling/createMessage", SAMPLING);
    said.send_request("q-3", "roots/list", "{}");
    let (waits, requests) = round.waits().await;
    let mut asked = requests.as_object().unwrap().clone();
    let mut waits = waits;
    if asked.len() == 1 {
        let round = world.resume(&waits, &json!({})).await;
        let (next, requests) = round.waits().await;
        (waits, asked) = (next, requests.as_object().unwrap().clone());
    }
    let methods: Vec<_> = asked.values().map(|one| one["method"].clone()).collect();
    assert_eq!(methods, ["sampling/createMessage", "roots/list"]);
    let round = world.resume(&waits, &json!({ "3": { "roots": [] } })).await;
    let (waits, requests) = round.waits().await;
    assert_eq!(requests["2"]["method"], "sampling/createMessage");
    let round = world
        .resume(&waits, &json!({ "2": { "role": "assistant" } }))
        .await;
    world.was_answered(4).await;
    said.end(&call["id"], "done");
    assert_eq!(round.text().await, "done");
    world.saw("tools/call", 1).await;
}

#[tokio::test]
async fn what_is_parked_goes_on_once() {
    let world = World::start(false).await;
    let said = world.server.says_events();
    let round = world.begin().await;
    let call = world.saw("tools/call", 1).await;
    said.send_request("q", "elicitation/create", FORM);
    let (waits, _) = round.waits().await;
    let answers = json!({ "1": { "action": "decline" } });
    let first = world.resume(&waits, &answers).await;
    world.was_answered(1).await;
    let second = world.resume(&waits, &answers).await;
    assert_eq!(second.fails().await, "not_waiting");
    said.end(&call["id"], "done");
    assert_eq!(first.text().await, "done");
    let third = world.resume(&waits, &answers).await;
    assert_eq!(third.fails().await, "not_waiting");
    assert_eq!(world.server.answers().len(), 1);
}

#[tokio::test]
async fn what_the_client_did_not_offer_is_refused_and_the_call_goes_on() {
    let world = World::start(false).await;
    for (capabilities, method, params, number) in [
        ("", "elicitation/create", FORM, 1),
        (
            r#"{"elicitation":{}}"#,
            "sampling/createMessage",
            SAMPLING,
            2,
        ),
        (r#"{"elicitation":{}}"#, "tools/list", "{}", 3),
    ] {
        let said = world.server.says_events();
        let request = world
            .request("ask", interaction_offering(capabilities))
            .await;
        let round = world.send(request).await.unwrap();
        let call = world.saw("tools/call", number).await;
        said.send_request("q", method, params);
        let refused = world.was_answered(number).await;
        assert_eq!(refused["error"]["code"], -32601, "{refused}");
        said.end(&call["id"], "done");
        assert_eq!(round.text().await, "done");
    }
}

#[tokio::test]
async fn where_the_permit_restricts_nobody_is_asked() {
    let world = World::start(false).await;
    let said = world.server.says_events();
    let terms = world.restricted_terms("ask").await;
    let request = world.request_under(&terms, interaction_with_log_level("debug"));
    let round = world.send(request).await.unwrap();
    let call = world.saw("tools/call", 1).await;
    said.send_request("q", "elicitation/create", FORM);
    let refused = world.was_answered(1).await;
    assert_eq!(refused["error"]["code"], -32601);
    said.notify(
        "notifications/message",
        &json!({ "level": "error", "data": "canary" }),
    );
    said.end(&call["id"], "done");
    assert!(!round.ends().await.0.is_error);
    let told = world.saw("initialize", 1).await;
    assert_eq!(told["params"]["capabilities"], json!({}));
    assert!(
        world
            .server
            .received_messages("logging/setLevel")
            .is_empty()
    );
}

#[tokio::test]
async fn a_server_logs_as_loud_as_anybody_needs_and_each_call_hears_its_own() {
    let world = World::start(false).await;
    let mut number = 0;
    for (level, set) in [("warning", 1), ("error", 1), ("info", 2)] {
        number += 1;
        let said = world.server.says_events();
        let request = world
            .request("ask", interaction_with_log_level(level))
            .await;
        let mut round = world.send(request).await.unwrap();
        let call = world.saw("tools/call", number).await;
        assert_eq!(
            world.server.received_messages("logging/setLevel").len(),
            set,
            "{level}"
        );
        for logged in ["debug", "info", "warning", "error"] {
            let log = json!({ "level": logged, "data": logged });
            said.notify("notifications/message", &log);
        }
        said.end(&call["id"], "done");
        let mut heard = Vec::new();
        loop {
            match round.next().await {
                Event::Log(log) => heard.push(log.level),
                Event::Result(_) => break,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(heard.first().map(String::as_str), Some(level));
        assert_eq!(heard.last().map(String::as_str), Some("error"));
    }
    let levels = world.server.received_messages("logging/setLevel");
    assert_eq!(levels[1]["params"]["level"], "info");
}

#[tokio::test]
async fn a_url_that_must_be_visited_first_is_asked_for_and_then_the_call_is_made_again() {
    let world = World::start(false).await;
    let url = json!({ "mode": "url", "url": "https://a.example/x", "message": "m", "elicitationId": "e" });
    let error = || {
        let data = json!({ "elicitations": [url] });
        Says::Error(json!({ "code": -32042, "message": "first", "data": data }))
    };
    world.server.says(error());
    let (waits, requests) = world.begin().await.waits().await;
    assert_eq!(
        requests,
        json!({ "1": { "method": "elicitation/create", "params": url } })
    );
    let declined = world
        .resume(&waits, &json!({ "1": { "action": "decline" } }))
        .await;
    assert_eq!(declined.fails().await, "declined");
    world.server.says_text("done");
    let accepted = world
        .resume(&waits, &json!({ "1": { "action": "accept" } }))
        .await;
    assert_eq!(accepted.text().await, "done");
    assert_eq!(world.server.received_messages("tools/call").len(), 2);

    // A client that cannot open the URL receives an error.
    world.server.says(error());
    let request = world
        .request("ask", interaction_offering(r#"{"elicitation":{}}"#))
        .await;
    let round = world.send(request).await.unwrap();
    assert_eq!(round.fails().await, "tool_error");
}

#[tokio::test]
async fn a_call_that_ends_while_its_client_is_asked_gives_its_result() {
    let world = World::start(false).await;
    let said = world.server.says_events();
    let round = world.begin().await;
    let call = world.saw("tools/call", 1).await;
    said.send_request("q", "elicitation/create", FORM);
    let (waits, _) = round.waits().await;
    said.end(&call["id"], "without you");
    // The end of the call may still be in transit when the answers arrive. The server then receives the answers, which
    // is acceptable.
    let answers = json!({ "1": { "action": "cancel" } });
    let round = world.resume(&waits, &answers).await;
    assert_eq!(round.text().await, "without you");
}

#[tokio::test]
async fn who_has_too_many_waiting_is_asked_no_more_and_the_server_hears_of_it() {
    let world = World::start(false).await;
    let mut waiting = Vec::new();
    for number in 1..=65 {
        let said = world.server.says_events();
        let round = world.begin().await;
        let call = world.saw("tools/call", number).await;
        said.send_request("q", "elicitation/create", FORM);
        if number <= 64 {
            let (waits, _) = round.waits().await;
            waiting.push((said, waits));
            continue;
        }
        let refused = world.was_answered(1).await;
        assert_eq!(refused["error"]["code"], -32603);
        said.end(&call["id"], "done");
        assert_eq!(round.text().await, "done");
    }
    // The end of the service ends the calls that wait.
    world.harness.runner.end_waiting();
    world.saw("notifications/cancelled", 64).await;
    assert_eq!(world.server.answers().len(), 65);
    let round = world.resume(&waiting[0].1, &json!({})).await;
    assert_eq!(round.fails().await, "not_waiting");
}

#[tokio::test]
async fn a_person_has_ten_minutes_and_then_the_call_ends_at_the_server() {
    let world = World::start(false).await;
    let said = world.server.says_events();
    let round = world.begin().await;
    let call = world.saw("tools/call", 1).await;
    said.send_request("q", "elicitation/create", FORM);
    let (waits, _) = round.waits().await;
    pass(9 * MINUTE).await;
    assert!(world.server.answers().is_empty());
    pass(MINUTE).await;
    let refused = world.was_answered(1).await;
    assert_eq!(refused["error"]["code"], -32603);
    until_true("the end of the call", async || {
        let cancelled = world.server.received_messages("notifications/cancelled");
        let mut ids = cancelled.iter().map(|one| &one["params"]["requestId"]);
        ids.any(|id| *id == call["id"])
    })
    .await;
    let round = world.resume(&waits, &json!({ "1": {} })).await;
    assert_eq!(round.fails().await, "not_waiting");
}

#[tokio::test]
async fn a_connection_that_nobody_uses_is_let_go_and_made_again_when_needed() {
    let world = World::start(false).await;
    for sessions in [2, 3] {
        world.server.says_text("done");
        assert_eq!(world.begin().await.text().await, "done");
        world.saw("initialize", sessions).await;
        pass(7 * MINUTE).await;
        let left = || {
            world
                .server
                .seen
                .lock()
                .unwrap()
                .iter()
                .filter(|it| **it == "DELETE")
                .count()
        };
        until_true("the end of its session", async || left() == sessions - 1).await;
    }
}

const MINUTE: Duration = Duration::from_mins(1);

/// Advances the paused clock in small steps, as a sleeping task sees it.
async fn pass(time: Duration) {
    tokio::time::pause();
    let steps = time.as_secs() / 20;
    for _ in 0..steps {
        tokio::time::advance(time / u32::try_from(steps).unwrap()).await;
    }
    tokio::time::resume();
}

#[tokio::test]
async fn a_client_that_leaves_ends_the_call_at_the_server() {
    let world = World::start(false).await;
    let said = world.server.says_events();
    let round = world.begin().await;
    let call = world.saw("tools/call", 1).await;
    drop(round);
    let cancelled = world.saw("notifications/cancelled", 1).await;
    assert_eq!(cancelled["params"]["requestId"], call["id"]);
    drop(said);
}

#[tokio::test]
async fn a_state_of_another_kind_of_server_does_not_go_on() {
    let world = World::start(false).await;
    let said = world.server.says_events();
    let round = world.begin().await;
    world.saw("tools/call", 1).await;
    said.send_request("q", "elicitation/create", FORM);
    let (mut waits, _) = round.waits().await;
    let state: Value = serde_json::from_slice(&waits.state).unwrap();
    waits.state = json!({ "of": state["of"], "next": { "retry": "s" } })
        .to_string()
        .into();
    let request = world
        .request("ask", interaction_resuming(&waits, &json!({})))
        .await;
    let round = world.send(request).await.unwrap();
    assert_eq!(round.fails().await, "bad_result");
    assert!(ALL.contains("elicitation"));
}
