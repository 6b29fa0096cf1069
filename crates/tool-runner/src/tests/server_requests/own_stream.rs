//! Tests of the messages and requests that servers of earlier versions send on their own stream (GET), which names no
//! call.

use serde_json::{Value, json};
use wardgate_proto::toolrunner::v1::call_tool_response::Event;

use super::{FORM, World, interaction_offering, interaction_resuming, result};

#[tokio::test]
async fn what_is_asked_there_is_of_the_only_call_that_is_open() {
    let world = World::start(false).await;
    let own = world.server.says_outside();
    let said = world.server.says_events();
    let round = world.begin().await;
    let call = world.saw("tools/call", 1).await;
    own.send_request("q", "elicitation/create", FORM);
    let (waits, requests) = round.waits().await;
    let form: Value = serde_json::from_str(FORM).unwrap();
    assert_eq!(requests["1"]["params"], form);
    own.send_request("p", "ping", "{}");
    assert_eq!(world.was_answered(1).await["result"], json!({}));
    let answer = json!({ "action": "accept", "content": { "n": 1.5 } });
    let round = world.resume(&waits, &json!({ "1": answer })).await;
    let heard = world.was_answered(2).await;
    assert_eq!(
        heard,
        json!({ "jsonrpc": "2.0", "id": "q", "result": answer })
    );
    said.end(&call["id"], "done");
    assert_eq!(round.text().await, "done");

    // Without an open call there is no client to ask.
    own.send_request("late", "elicitation/create", FORM);
    let refused = world.was_answered(3).await;
    assert_eq!(refused["error"]["code"], -32601, "{refused}");
}

#[tokio::test]
async fn a_server_that_answers_in_one_piece_asks_there_and_waits() {
    let world = World::start(false).await;
    let own = world.server.says_outside();
    let answer = world.server.says_later();
    let request = world
        .request("ask", interaction_offering(r#"{"roots":{}}"#))
        .await;
    let round = world.send(request).await.unwrap();
    world.saw("tools/call", 1).await;
    // A request that the client does not support is refused here too.
    own.send_request("f", "elicitation/create", FORM);
    let refused = world.was_answered(1).await;
    assert_eq!(refused["error"]["code"], -32601, "{refused}");
    own.send_request("r", "roots/list", "{}");
    let (waits, requests) = round.waits().await;
    assert_eq!(requests["1"]["method"], "roots/list");
    let answers = json!({ "1": { "roots": [] } });
    let request = world
        .request("ask", interaction_resuming(&waits, &answers))
        .await;
    let round = world.send(request).await.unwrap();
    world.was_answered(2).await;
    answer.send(result("done")).unwrap();
    assert_eq!(round.text().await, "done");
}

#[tokio::test]
async fn with_several_calls_open_the_server_hears_that_it_must_say_of_which_it_asks() {
    let world = World::start(false).await;
    let own = world.server.says_outside();
    let mut open = Vec::new();
    for number in 1..=2 {
        let said = world.server.says_events();
        let round = world.begin().await;
        let call = world.saw("tools/call", number).await;
        open.push((said, round, call));
    }
    own.send_request("q", "elicitation/create", FORM);
    let refused = world.was_answered(1).await;
    let words = refused["error"]["message"].as_str().unwrap();
    assert_eq!(refused["error"]["code"], -32603);
    assert!(
        words.contains("several requests are in progress"),
        "{words}"
    );
    for (said, round, call) in open {
        said.end(&call["id"], "done");
        assert_eq!(round.text().await, "done");
    }
}

#[tokio::test]
async fn a_call_that_was_left_may_still_be_meant_for_a_while() {
    let world = World::start(false).await;
    let own = world.server.says_outside();
    let _left = world.server.says_events();
    let round = world.begin().await;
    world.saw("tools/call", 1).await;
    drop(round);
    world.saw("notifications/cancelled", 1).await;
    let said = world.server.says_events();
    let round = world.begin().await;
    let call = world.saw("tools/call", 2).await;
    own.send_request("q", "elicitation/create", FORM);
    let refused = world.was_answered(1).await;
    assert_eq!(refused["error"]["code"], -32603, "{refused}");
    said.end(&call["id"], "done");
    assert_eq!(round.text().await, "done");
}

#[tokio::test]
async fn whoever_was_sent_elsewhere_hears_once_that_it_is_done() {
    let world = World::start(false).await;
    let own = world.server.says_outside();
    let said = world.server.says_events();
    let round = world.begin().await;
    let call = world.saw("tools/call", 1).await;
    let visit = json!({
        "mode": "url", "url": "https://a.example/x", "message": "m", "elicitationId": "e-1",
    });
    said.send_request("q", "elicitation/create", &visit.to_string());
    let (waits, _) = round.waits().await;
    let accepted = json!({ "1": { "action": "accept" } });
    let mut round = world.resume(&waits, &accepted).await;
    world.was_answered(1).await;
    for id in ["another", "e-1", "e-1"] {
        let over = json!({ "elicitationId": id });
        own.notify("notifications/elicitation/complete", &over);
    }
    let Event::Completed(over) = round.next().await else {
        panic!("it is not told");
    };
    assert_eq!(over.elicitation_id, "e-1");
    said.end(&call["id"], "done");
    assert_eq!(round.text().await, "done");
}
