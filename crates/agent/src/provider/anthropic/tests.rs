use serde_json::json;

use super::*;
use crate::model::ModelEvent::{self, *};
use crate::model::TokenUsage;
use crate::provider::ProviderKind;
use crate::provider::testing::read_pieces;

async fn read_events(events: &[Value]) -> (Vec<ModelEvent>, Result<(), ModelError>) {
    let events: Vec<_> = events
        .iter()
        .map(|event| {
            format!(
                "event: {}\ndata: {event}\n\n",
                event["type"].as_str().unwrap()
            )
        })
        .collect();
    read_pieces(ProviderKind::Anthropic, vec![events.concat().into_bytes()]).await
}

fn start() -> Value {
    json!({"type": "message_start", "message": {"role": "assistant", "content": [],
        "usage": {"input_tokens": 10, "cache_read_input_tokens": 5, "cache_creation_input_tokens": null, "output_tokens": 1}}})
}

fn begin(index: u64, block: &Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn delta(index: u64, delta: &Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

fn stop(reason: &str) -> Value {
    json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 20}})
}

fn usage() -> ModelEvent {
    Usage(TokenUsage {
        input: 15,
        output: 20,
    })
}

fn call(id: &str, arguments: &str) -> ModelEvent {
    Call(FunctionCall {
        id: id.to_owned(),
        name: "one".to_owned(),
        arguments: arguments.to_owned(),
    })
}

#[tokio::test]
async fn text_thoughts_and_calls_come_out_of_their_blocks() {
    let (events, end) = read_events(&[
        start(),
        json!({"type": "ping"}),
        begin(0, &json!({"type": "thinking", "thinking": ""})),
        delta(0, &json!({"type": "thinking_delta", "thinking": "hm"})),
        delta(0, &json!({"type": "signature_delta", "signature": "x"})),
        json!({"type": "content_block_stop", "index": 0}),
        begin(1, &json!({"type": "text", "text": ""})),
        delta(1, &json!({"type": "text_delta", "text": "I look"})),
        begin(
            2,
            &json!({"type": "tool_use", "id": "a", "name": "one", "input": {}}),
        ),
        delta(2, &json!({"type": "input_json_delta", "partial_json": ""})),
        delta(
            2,
            &json!({"type": "input_json_delta", "partial_json": "{\"x\":"}),
        ),
        delta(
            2,
            &json!({"type": "input_json_delta", "partial_json": "1}"}),
        ),
        begin(
            3,
            &json!({"type": "tool_use", "id": "b", "name": "one", "input": {}}),
        ),
        json!({"type": "something_new"}),
        stop("tool_use"),
        json!({"type": "message_stop"}),
    ])
    .await;
    assert_eq!(end, Ok(()));
    assert_eq!(
        events,
        [
            Reasoning("hm".to_owned()),
            Text("I look".to_owned()),
            call("a", "{\"x\":1}"),
            call("b", "{}"),
            usage(),
            Finished(FinishReason::Calls),
        ]
    );
}

#[tokio::test]
async fn a_message_that_is_not_streamed_is_read_too() {
    let message = json!({"type": "message", "role": "assistant", "stop_reason": "tool_use",
        "content": [{"type": "text", "text": "I look"}, {"type": "tool_use", "id": "a", "name": "one", "input": {"x": 1}}],
        "usage": {"input_tokens": 15, "output_tokens": 20}});
    let (events, end) = read_pieces(
        ProviderKind::Anthropic,
        vec![message.to_string().into_bytes()],
    )
    .await;
    assert_eq!(end, Ok(()));
    let text = Text("I look".to_owned());
    assert_eq!(
        events,
        [
            text,
            call("a", "{\"x\":1}"),
            usage(),
            Finished(FinishReason::Calls)
        ]
    );
}

#[tokio::test]
async fn every_end_has_its_reason_and_none_gives_half_a_call() {
    for (reason, finished) in [
        ("end_turn", FinishReason::Calls),
        ("max_tokens", FinishReason::Length),
        ("refusal", FinishReason::Filtered),
        ("pause_turn", FinishReason::Other("pause_turn".to_owned())),
    ] {
        let (events, end) = read_events(&[
            begin(
                0,
                &json!({"type": "tool_use", "id": "a", "name": "one", "input": {}}),
            ),
            delta(
                0,
                &json!({"type": "input_json_delta", "partial_json": "{\"x\":"}),
            ),
            stop(reason),
        ])
        .await;
        assert_eq!(end, Ok(()));
        assert_eq!(events.last(), Some(&Finished(finished.clone())));
        assert_eq!(
            events.len() == 3,
            finished == FinishReason::Calls,
            "{reason}"
        );
    }
}

#[tokio::test]
async fn an_error_event_or_a_missing_end_is_an_error() {
    let text = begin(0, &json!({"type": "text", "text": "Hi"}));
    let hi = vec![Text("Hi".to_owned())];
    let overloaded =
        json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    let busy = ModelError::Busy { retry_after: None };
    assert_eq!(
        read_events(&[text.clone(), overloaded]).await,
        (hi.clone(), Err(busy))
    );
    assert_eq!(
        read_events(&[start(), text]).await,
        (hi, Err(ModelError::Cut))
    );
}

#[test]
fn a_request_puts_the_results_of_an_answer_into_the_message_after_it() {
    let call = |id: &str, arguments: &str| FunctionCall {
        id: id.to_owned(),
        name: "one".to_owned(),
        arguments: arguments.to_owned(),
    };
    let result = |id: &str, is_error| ModelMessage::Result {
        call_id: id.to_owned(),
        name: "one".to_owned(),
        text: "7".to_owned(),
        is_error,
    };
    let request = ModelRequest {
        model: "m".to_owned(),
        messages: vec![
            ModelMessage::System("Be brief.".to_owned()),
            ModelMessage::User("Look it up.".to_owned()),
            ModelMessage::Assistant {
                text: String::new(),
                calls: vec![call("a", "{\"x\":1}"), call("b", "{'x'")],
            },
            result("a", false),
            result("b", true),
            ModelMessage::System("Answer now.".to_owned()),
            ModelMessage::User("And?".to_owned()),
        ],
        functions: vec![Function {
            name: "one".to_owned(),
            description: "Looks.".to_owned(),
            parameters: json!({"type": "object"}),
        }],
        choice: FunctionChoice::None,
        temperature: Some(0.0),
        max_output_tokens: None,
    };
    insta::assert_snapshot!(serde_json::to_string_pretty(&body(&request)).unwrap());
}
