//! Tests of the limits of a turn: the model gets one last round without tools, and the stream names the limit.

use futures::StreamExt;
use serde_json::json;

use super::fixture::{Events, Fixture, PLAIN, request_with_id};
use crate::model::{FunctionCall, FunctionChoice, ModelEvent, ModelMessage, TokenUsage};
use crate::request::{BearerToken, ChatRequest};
use crate::testing::{FakeGateway, FakeTool, ScriptedModel, call, caller, says, words};
use crate::turn_slots::MAX_TURNS;

fn gateway() -> FakeGateway {
    FakeGateway::new([
        FakeTool::gives("look", "1"),
        FakeTool::gives("slow", "late").hangs(),
    ])
}

fn look_call(n: usize) -> FunctionCall {
    call(&format!("c{n}"), "look", &json!({ "n": n }).to_string())
}

async fn run_capped_turn(model: ScriptedModel, limits: &str) -> (Fixture, Events) {
    let fixture = Fixture::new(model, gateway(), limits).await;
    let events = fixture.says("look").await;
    assert_eq!(events.text(), "Enough.");
    assert_eq!(events.last()["finish_reason"], "stop");
    let last = fixture.model.requests().pop().unwrap();
    assert_eq!(last.choice, FunctionChoice::None);
    let again = fixture.says("look").await;
    assert_eq!(
        again.last()["cap"],
        events.last()["cap"],
        "told again as it was"
    );
    (fixture, events)
}

#[tokio::test]
async fn rounds_are_limited() {
    let model = ScriptedModel::new([
        says("", &[look_call(1)]),
        says("", &[look_call(2)]),
        // A call in the last round does not run.
        says("Enough.", &[look_call(3)]),
    ]);
    let (fixture, events) = run_capped_turn(model, "    limits: { turns: 2 }\n").await;
    assert_eq!(events.last()["cap"], "turns");
    assert_eq!(fixture.gateway.calls().len(), 2);
}

#[tokio::test]
async fn identical_calls_are_limited_however_they_are_written() {
    let write = |id: &str, arguments: &str| says("", &[call(id, "look", arguments)]);
    let model = ScriptedModel::new([
        write("a", r#"{"a":1,"b":2}"#),
        write("b", r#"{"b":2, "a":1}"#),
        write("c", r#"{"a":1,"b":2}"#),
        words("Enough."),
    ]);
    let (fixture, events) = run_capped_turn(model, "    limits: { identical_calls: 2 }\n").await;
    assert_eq!(events.last()["cap"], "identical_calls");
    assert_eq!(fixture.gateway.calls().len(), 2);
    let results = fixture.model.last_results();
    assert!(
        results[2].contains("Use the result you have"),
        "{results:?}"
    );
}

#[tokio::test]
async fn a_model_that_never_answers_is_stopped_and_the_stream_says_by_which_limit() {
    let ask = words("TOOL: look\nPARAMETERS: {}\n\nTool Result: 1");
    let model = ScriptedModel::new([ask.clone(), ask.clone(), ask.clone(), ask]);
    let fixture = Fixture::new(
        model,
        gateway(),
        "    calls: text\n    limits: { identical_calls: 2 }\n",
    )
    .await;
    let events = fixture.says("look").await;
    assert_eq!(events.text(), "");
    assert_eq!(events.only_event("error")["kind"], "empty_answer");
    assert_eq!(events.last()["finish_reason"], "error");
    assert_eq!(events.last()["cap"], "identical_calls");
    assert_eq!(fixture.gateway.calls().len(), 2);
    assert_eq!(fixture.model.requests().len(), 4);
}

#[tokio::test]
async fn tokens_are_limited_and_estimated_where_they_are_not_counted() {
    let mut counted = says("", &[look_call(1)]);
    counted.push(Ok(ModelEvent::Usage(TokenUsage {
        input: 900,
        output: 200,
    })));
    let (_, events) = run_capped_turn(
        ScriptedModel::new([counted, words("Enough.")]),
        "    limits: { tokens: 1000 }\n",
    )
    .await;
    assert_eq!(events.last()["cap"], "tokens");
    assert_eq!(events.only_event("usage")["input_tokens"], 910);
    let (_, events) = run_capped_turn(
        ScriptedModel::new([says("", &[look_call(1)]), words("Enough.")]),
        "    limits: { tokens: 5 }\n",
    )
    .await;
    assert_eq!(events.last()["cap"], "tokens");
}

#[tokio::test(start_paused = true)]
async fn time_is_limited_and_ends_the_tool_that_takes_it() {
    let model = ScriptedModel::new([says("", &[call("c", "slow", "{}")]), words("Enough.")]);
    let (fixture, events) = run_capped_turn(model, "    limits: { seconds: 30 }\n").await;
    assert_eq!(events.last()["cap"], "seconds");
    let error = events.only_event("tool_result")["error"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(
        error,
        "Tool execution failed: the gateway did not answer in time"
    );
    assert_eq!(fixture.gateway.cancellations(), 1);
}

#[tokio::test]
async fn a_model_in_text_mode_is_no_longer_told_of_tools_and_its_call_is_not_shown() {
    let ask = "TOOL: look\nPARAMETERS: {}";
    let model = ScriptedModel::new([words(ask), words(&format!("Enough. {ask}"))]);
    let fixture = Fixture::new(
        model,
        gateway(),
        "    calls: text\n    limits: { turns: 1 }\n",
    )
    .await;
    let events = fixture.says("look").await;
    assert_eq!(events.text().trim(), "Enough.");
    assert_eq!(events.last()["cap"], "turns");
    let requests = fixture.model.requests();
    let speaks_of_tools = |n: usize| match &requests[n].messages[0] {
        ModelMessage::System(text) => text.contains("TOOL: name"),
        other => panic!("{other:?}"),
    };
    assert!(speaks_of_tools(0) && !speaks_of_tools(1));
}

#[tokio::test]
async fn one_person_has_so_many_turns_at_a_time_and_takes_no_place_of_another() {
    let tool = FakeTool::gives("look", "free").hangs();
    let looks = (0..MAX_TURNS).map(|_| says("", &[call("c1", "look", "{}")]));
    let model = ScriptedModel::new(looks.chain([words("Yes."), words("Yes.")]));
    let fixture = Fixture::new(model, FakeGateway::new([tool]), PLAIN).await;
    let mut streams: Vec<_> = (0..MAX_TURNS)
        .map(|number| {
            fixture.stream(ChatRequest {
                message_id: Some(number.to_string()),
                ..request_with_id("look")
            })
        })
        .collect();
    for stream in &mut streams {
        stream.next().await.unwrap();
    }
    let refused = fixture.says("free?").await;
    assert_eq!(refused.only_event("error")["kind"], "too_many_turns");
    let other = caller("nurse.joy", &[]);
    let stream = fixture
        .agent
        .chat(other, BearerToken::new("o"), request_with_id("free?"));
    assert_eq!(Events::from_stream(stream).await.text(), "Yes.");
    streams.pop();
    let mut again = request_with_id("free?");
    again.conversation_id = Some("d".to_owned());
    assert_eq!(fixture.hears(again).await.text(), "Yes.");
}
