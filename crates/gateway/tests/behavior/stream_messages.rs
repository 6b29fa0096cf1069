//! Messages that clients receive while their tool runs.

use std::time::Duration;

use futures::channel::mpsc::UnboundedSender;
use reqwest::RequestBuilder;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use wardgate_domain::Status;
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_proto::toolrunner::v1::call_tool_response::Event;

use crate::sessions::{begin_with, within};
use crate::sse::{self, Client};
use crate::world::{LEGACY, MODERN, OLDEST, Reply, World};
use wardgate_testkit::{AppendBehavior, EventStreamClient, tool_result};

/// Creates a call whose `_meta` has further members.
fn call_with(world: &World, version: &str, tool: &str, members: &str) -> RequestBuilder {
    let modern = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"#;
    let modern = if version == MODERN { modern } else { "" };
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"{tool}","_meta":{{{modern}{members}}}}}}}"#
    );
    world.tools_call(version, tool, "{}").body(body)
}

pub(crate) fn progress(done: f64, total: f64, message: &str) -> Event {
    Event::Progress(pb::Progress {
        progress: done,
        total,
        message: message.to_owned(),
    })
}

fn log(level: &str, logger: &str, data: &str) -> Event {
    Event::Log(pb::LogMessage {
        level: level.to_owned(),
        logger: logger.to_owned(),
        data_json: data.to_owned().into(),
    })
}

pub(crate) fn final_result() -> Event {
    Event::Result(tool_result("the secret result", &json!({ "rows": [1.10] })))
}

/// Sends all `events` at once.
fn tells(world: &World, events: impl IntoIterator<Item = Event>) -> UnboundedSender<Event> {
    let tool = world.tool_runner.live();
    for event in events {
        tool.unbounded_send(event).unwrap();
    }
    tool
}

/// Returns all messages of a stream until its end.
async fn read_messages(mut ear: EventStreamClient) -> Vec<Value> {
    let mut heard = Vec::new();
    while let Some(message) = ear.next_message().await {
        heard.push(message);
    }
    heard
}

const TOKEN: &str = r#""progressToken":"t\u00e9""#;

#[tokio::test]
async fn progress_is_heard_as_it_comes_under_the_token_as_it_was_written() {
    let world = World::start().await;
    for (version, token) in [
        (MODERN, r#""t\u00e9""#),
        (LEGACY, "12345678901234567890"),
        (OLDEST, "0"),
    ] {
        let tool = tells(&world, [progress(0.5, 2.0, "half\nway")]);
        let members = format!(r#""progressToken":{token}"#);
        let mut ear = EventStreamClient::open(call_with(&world, version, "reads", &members)).await;
        assert_eq!(ear.header("cache-control"), "no-store");
        assert_eq!(ear.header("x-accel-buffering"), "no");
        let heard = ear.next_event().await.unwrap();
        let said = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":0.5,"total":2,"message":"half\nway"}}}}"#
        );
        assert_eq!(heard, format!("event: message\ndata: {said}"));
        tool.unbounded_send(progress(1.0, 0.0, "")).unwrap();
        let heard = ear.next_message().await.unwrap();
        assert_eq!(heard["params"]["progress"], 1);
        assert!(heard["params"].get("total").is_none(), "{heard}");
        tool.unbounded_send(final_result()).unwrap();
        let answer = ear.next_message().await.unwrap();
        assert_eq!(
            (&answer["id"], &answer["result"]["isError"]),
            (&json!(7), &json!(false))
        );
        assert!(answer["result"]["_meta"]["dev.wardgate/receipt"].is_object());
        assert!(
            ear.next_message().await.is_none(),
            "something follows the answer"
        );
    }
}

/// Time to observe that something does not happen.
const A_WHILE: Duration = Duration::from_millis(150);

#[tokio::test]
async fn a2_progress_leaves_only_after_the_intent_of_its_call_is_acknowledged() {
    let world = World::start().await;
    for version in [MODERN, LEGACY, OLDEST] {
        let before = world.audit.attempts.count();
        let intents = world.audit.intents.count();
        let (release, held) = oneshot::channel();
        world.audit.next([AppendBehavior::keep_after(held)]);
        let tool = tells(&world, [progress(0.5, 2.0, "half")]);
        let request = call_with(&world, version, "reads", TOKEN);
        let mut hearing = tokio::spawn(async move {
            let mut ear = EventStreamClient::open(request).await;
            (ear.next_message().await, ear)
        });
        world.audit.attempts.reaches(before + 1).await;
        let early = tokio::time::timeout(A_WHILE, &mut hearing).await;
        assert!(early.is_err(), "{version}: progress left early");
        assert_eq!(world.audit.intents.count(), intents, "{version}");
        release.send(()).unwrap();
        let (heard, mut ear) = hearing.await.unwrap();
        assert_eq!(heard.unwrap()["params"]["progress"], 0.5);
        assert_eq!(world.audit.intents.count(), intents + 1, "{version}");
        tool.unbounded_send(final_result()).unwrap();
        assert_eq!(ear.next_message().await.unwrap()["id"], 7);
    }
}

#[tokio::test]
async fn progress_only_rises_and_what_is_no_number_is_not_said() {
    let world = World::start().await;
    let steps = [1.0, 1.0, 0.5, f64::NAN, f64::INFINITY, 1.5, 1e18, 2.0];
    let steps = steps.map(|done| progress(done, f64::INFINITY, ""));
    let _tool = tells(&world, steps.into_iter().chain([final_result()]));
    let heard =
        read_messages(EventStreamClient::open(call_with(&world, MODERN, "reads", TOKEN)).await)
            .await;
    let said: Vec<f64> = heard
        .iter()
        .filter_map(|message| message["params"]["progress"].as_f64())
        .collect();
    assert_eq!(said, [1.0, 1.5, 1e18]);
    assert_eq!(heard.len(), 4, "{heard:?}");
    assert!(heard[0]["params"].get("total").is_none());
}

#[tokio::test]
async fn a_call_of_which_nothing_is_to_be_heard_stays_one_json_answer() {
    let world = World::start().await;
    let batch = format!(
        "[{}]",
        r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"reads","_meta":{"progressToken":1}}}"#
    );
    let level = r#""io.modelcontextprotocol/logLevel":"error""#;
    for request in [
        call_with(&world, MODERN, "reads", r#""x":1"#),
        call_with(&world, MODERN, "reads", level),
        call_with(&world, MODERN, "reads", r#""progressToken":null"#),
        call_with(&world, MODERN, "reads", TOKEN).header("accept", "application/json"),
        call_with(&world, LEGACY, "reads", ""),
        world.message(OLDEST, "ping", "").body(batch),
    ] {
        // The fourth request has two Accept headers.
        let mut request = request.build().unwrap();
        let accepts = request.headers().get_all("accept").iter().count();
        if accepts == 2 {
            request
                .headers_mut()
                .insert("accept", "application/json".parse().unwrap());
        }
        let before = world.audit.intents.count();
        let _tool = tells(
            &world,
            [
                progress(1.0, 2.0, "x"),
                log("info", "", "1"),
                final_result(),
            ],
        );
        let reply = world.http.execute(request).await.unwrap();
        assert_eq!(reply.headers()["content-type"], "application/json");
        assert!(reply.text().await.unwrap().contains("the secret result"));
        assert_eq!(world.audit.intents.count(), before);
    }
}

#[tokio::test]
async fn log_messages_are_heard_from_the_level_on_that_the_request_asks_for() {
    let world = World::start().await;
    let told = || {
        [
            log("info", "", r#""too little""#),
            log("warning", "db", r#"{"n":1.10}"#),
            log("loud", "", "1"),
            log("emergency", "", "[\"\u{2028}\\n\"]"),
            final_result(),
        ]
    };
    let _tool = tells(&world, told());
    let level = r#""io.modelcontextprotocol/logLevel":"warning""#;
    let mut ear = EventStreamClient::open(call_with(&world, MODERN, "reads", level)).await;
    let heard = ear.next_event().await.unwrap();
    let said = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"warning","logger":"db","data":{"n":1.10}}}"#;
    assert_eq!(heard, format!("event: message\ndata: {said}"));
    let heard = ear.next_message().await.unwrap();
    assert_eq!(
        heard["params"],
        json!({ "level": "emergency", "data": ["\u{2028}\n"] })
    );
    assert_eq!(ear.next_message().await.unwrap()["id"], 7);
    let asked = world.tool_runner.asked.entries().pop().unwrap();
    assert_eq!(asked.interaction.unwrap().log_level, "warning");

    // The call of an older client without a session has no log level.
    let _tool = tells(&world, told());
    let reply = Reply::to(call_with(&world, LEGACY, "reads", level)).await;
    assert!(reply.is_released());
    let asked = world.tool_runner.asked.entries().pop().unwrap();
    assert_eq!(asked.interaction.unwrap().log_level, "");
}

#[tokio::test]
async fn terms_that_cannot_be_kept_are_refused_by_name() {
    let world = World::start().await;
    let long = format!(r#""progressToken":"{}""#, "x".repeat(300));
    for (version, members, expected) in [
        (MODERN, r#""progressToken":1.5"#, "progressToken"),
        (LEGACY, r#""progressToken":{}"#, "progressToken"),
        (LEGACY, &long, "progressToken"),
        (
            MODERN,
            r#""io.modelcontextprotocol/logLevel":"loud""#,
            "logLevel",
        ),
        (
            MODERN,
            r#""io.modelcontextprotocol/logLevel":7"#,
            "logLevel",
        ),
    ] {
        let reply = Reply::to(call_with(&world, version, "reads", members)).await;
        assert_eq!(reply.code(), -32602, "{reply:?}");
        assert!(reply.text.contains(expected), "{reply:?}");
    }
    assert_eq!(world.tool_runner.asked.count(), 0);
}

#[tokio::test]
async fn the_intent_is_on_record_before_the_first_word_whatever_the_tool() {
    let world = World::start().await;
    for (tool, before) in [("reads", 0), ("writes", 1)] {
        let says = tells(&world, [progress(1.0, 0.0, ""), progress(2.0, 0.0, "")]);
        let mut ear = EventStreamClient::open(call_with(&world, MODERN, tool, TOKEN)).await;
        ear.next_message().await.unwrap();
        assert_eq!(world.audit.intents.count(), before + 1);
        says.unbounded_send(final_result()).unwrap();
        let heard = read_messages(ear).await;
        let intents = world.audit.intents.entries();
        assert_eq!(intents.len(), before + 1, "one intent is enough");
        let answered = &heard.last().unwrap()["result"]["_meta"]["dev.wardgate/callId"];
        assert_eq!(*answered, intents[before].call_id.to_string());
        assert!(intents[before].decision_id.is_some());
    }
}

#[tokio::test]
async fn a_record_that_is_away_stops_the_first_word() {
    let world = World::start().await;
    world
        .audit
        .next([AppendBehavior::Fail, AppendBehavior::Fail]);
    let _tool = tells(&world, [progress(1.0, 0.0, "the secret"), final_result()]);
    let reply = Reply::to(call_with(&world, MODERN, "reads", TOKEN)).await;
    assert_eq!(reply.header("content-type"), "application/json");
    assert_eq!(reply.code(), -32603, "{reply:?}");
    assert!(!reply.text.contains("secret"), "{reply:?}");
    reply.failed_call();
    assert_eq!(world.tool_runner.dropped.reaches(1).await.len(), 1);
    assert_eq!(world.audit.outcomes.count(), 0);
}

#[tokio::test]
async fn an_outcome_that_cannot_be_recorded_ends_a_stream_without_the_result() {
    let world = World::start().await;
    let says = tells(&world, [progress(1.0, 0.0, "")]);
    let mut ear = EventStreamClient::open(call_with(&world, MODERN, "reads", TOKEN)).await;
    ear.next_message().await.unwrap();
    world
        .audit
        .next([AppendBehavior::Fail, AppendBehavior::Fail]);
    says.unbounded_send(final_result()).unwrap();
    let heard = read_messages(ear).await;
    assert_eq!(heard.len(), 1);
    assert_eq!(
        (&heard[0]["id"], &heard[0]["error"]["code"]),
        (&json!(7), &json!(-32603))
    );
}

#[tokio::test]
async fn hanging_up_in_the_middle_of_a_stream_cancels_for_modern_clients_alone() {
    let world = World::start().await;
    let _modern = tells(&world, [progress(1.0, 0.0, "")]);
    let mut ear = EventStreamClient::open(call_with(&world, MODERN, "reads", TOKEN)).await;
    ear.next_message().await.unwrap();
    drop(ear);
    assert_eq!(world.audit.outcome().await.status, Status::Cancelled);
    assert_eq!(world.tool_runner.dropped.reaches(1).await.len(), 1);

    let legacy = tells(&world, [progress(1.0, 0.0, "")]);
    let mut ear = EventStreamClient::open(call_with(&world, LEGACY, "reads", TOKEN)).await;
    ear.next_message().await.unwrap();
    drop(ear);
    for step in [
        progress(2.0, 0.0, ""),
        progress(3.0, 0.0, ""),
        final_result(),
    ] {
        legacy.unbounded_send(step).unwrap();
    }
    let ended = world.audit.outcomes.reaches(2).await;
    assert_eq!(ended[1].status, Status::Ok);
}

#[tokio::test]
async fn on_a_stream_of_the_first_version_progress_comes_without_words() {
    let world = World::start().await;
    for (version, words) in [("2024-11-05", json!(null)), (OLDEST, json!("half"))] {
        let mut client = Client::connect(&world, version).await;
        let _tool = tells(&world, [progress(1.0, 2.0, "half"), final_result()]);
        let params = json!({ "name": "reads", "_meta": { "progressToken": 5 } });
        client
            .send_message(&world, &sse::request(9, "tools/call", &params))
            .await;
        let heard = client.ear.next_message().await.unwrap();
        assert_eq!(heard["params"]["progressToken"], 5);
        assert_eq!(heard["params"]["message"], words);
        assert_eq!(client.ear.next_message().await.unwrap()["id"], 9);
    }
}

#[tokio::test]
async fn who_hears_nothing_is_asked_nothing() {
    let world = World::start().await;
    let session = begin_with(&world, LEGACY, &json!({ "elicitation": {} })).await;
    for (accepts, able) in [
        ("application/json", false),
        ("application/json, text/event-stream", true),
    ] {
        let request = within(world.tools_call(LEGACY, "reads", "{}"), &session);
        let mut request = request.build().unwrap();
        let accepts = accepts.parse().unwrap();
        request.headers_mut().insert("accept", accepts);
        let reply = world.http.execute(request).await.unwrap();
        assert_eq!(reply.status(), 200);
        let asked = world.tool_runner.asked.entries().pop().unwrap();
        let declared = asked.interaction.unwrap().client_capabilities_json;
        assert_eq!(!declared.is_empty(), able, "{declared:?}");
    }
}
