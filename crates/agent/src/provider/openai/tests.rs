use serde_json::json;

use super::*;
use crate::model::ModelEvent::{self, *};
use crate::model::TokenUsage;
use crate::provider::ProviderKind;
use crate::provider::testing::read_pieces;

async fn read_text(text: &str) -> (Vec<ModelEvent>, Result<(), ModelError>) {
    read_pieces(ProviderKind::OpenAi, vec![text.as_bytes().to_vec()]).await
}

/// Reads a stream of `chunks`, each of which is sent as one server-sent event.
async fn read_chunks(chunks: &[Value]) -> (Vec<ModelEvent>, Result<(), ModelError>) {
    let events: Vec<_> = chunks
        .iter()
        .map(|chunk| format!("data: {chunk}\n\n"))
        .collect();
    let stream = events.concat();
    read_text(&stream).await
}

fn delta(delta: &Value) -> Value {
    json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

fn finish(reason: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

fn calls_of(events: Vec<ModelEvent>) -> Vec<(String, String)> {
    events
        .into_iter()
        .filter_map(|event| match event {
            Call(call) => Some((call.name, call.arguments)),
            _ => None,
        })
        .collect()
}

fn text(text: &str) -> ModelEvent {
    Text(text.to_owned())
}

#[tokio::test]
async fn text_thoughts_and_counts_come_out_in_order() {
    let (events, end) = read_chunks(&[
        delta(&json!({"role": "assistant", "content": null})),
        delta(&json!({"reasoning_content": "hm"})),
        delta(&json!({"reasoning": "so", "content": ""})),
        delta(&json!({"content": "Hello"})),
        delta(&json!({"content": [{"type": "text", "text": " there"}]})),
        finish("stop"),
        json!({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}),
    ])
    .await;
    assert_eq!(end, Ok(()));
    assert_eq!(
        events,
        [
            Reasoning("hm".to_owned()),
            Reasoning("so".to_owned()),
            text("Hello there"),
            Usage(TokenUsage {
                input: 7,
                output: 3
            }),
            Finished(FinishReason::Stop),
        ]
    );
}

#[tokio::test]
async fn the_streams_of_real_servers_give_whole_calls() {
    let expected = [
        ("one".to_owned(), "{\"x\":1}".to_owned()),
        ("two".to_owned(), "{}".to_owned()),
    ];
    let piece = |index: u64, arguments: &str| json!({"tool_calls": [{"index": index, "function": {"arguments": arguments}}]});
    let streams = [
        (
            "interleaved, the first piece empty or a brace",
            vec![
                delta(
                    &json!({"role": "assistant", "content": null, "tool_calls": [
                {"index": 0, "id": "a", "type": "function", "function": {"name": "one", "arguments": ""}}]}),
                ),
                delta(&json!({"tool_calls": [
                {"index": 1, "id": "b", "type": "function", "function": {"name": "two", "arguments": "{"}}]})),
                delta(&piece(0, "{\"x\":")),
                delta(&piece(1, "}")),
                delta(&piece(0, "1}")),
                finish("tool_calls"),
            ],
        ),
        (
            "whole calls in one chunk, without an index, an id or a type, and `stop`",
            vec![
                delta(&json!({"tool_calls": [
                {"type": null, "function": {"name": "one", "arguments": {"x": 1}}},
                {"function": {"name": "two", "arguments": null}}]})),
                finish("stop"),
            ],
        ),
        (
            "finish reason in the chunk of the call",
            vec![json!({"choices": [{"delta": {"tool_calls": [
                {"index": 0, "id": "a", "function": {"name": "one", "arguments": "{\"x\":1}"}},
                {"index": 0, "id": "b", "function": {"name": "two", "arguments": ""}}]},
                "finish_reason": "function_call"}]})],
        ),
        (
            "an answer that is not streamed",
            vec![
                json!({"choices": [{"message": {"role": "assistant", "content": null, "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "one", "arguments": "{\"x\":1}"}},
                {"id": "b", "type": "function", "function": {"name": "two", "arguments": "{}"}}]},
                "finish_reason": "tool_calls"}]}),
            ],
        ),
    ];
    for (what, chunks) in streams {
        let (events, end) = read_chunks(&chunks).await;
        assert_eq!(end, Ok(()), "{what}");
        assert_eq!(
            events.last(),
            Some(&Finished(FinishReason::Calls)),
            "{what}"
        );
        assert_eq!(calls_of(events), expected, "{what}");
    }
}

#[tokio::test]
async fn framing_comments_and_a_missing_end_mark_do_not_matter() {
    let chunks = [delta(&json!({"content": "é"})), finish("stop")];
    let expected = vec![text("é"), Finished(FinishReason::Stop)];
    let lines: Vec<_> = chunks.iter().map(|chunk| format!("data:{chunk}")).collect();
    for stream in [
        format!(
            "\u{feff}: hello\r\n\r\n{}\r\n\r\n{}\r\n\r\ndata: [DONE]\r\n\r\n",
            lines[0], lines[1]
        ),
        format!("{}\n\n: ping\n\n{}\n\n", lines[0], lines[1]),
        format!("event: message\nid: 1\n{}\n\nx: y\n{}", lines[0], lines[1]),
        format!("{}\r\r{}\r\rdata: [DONE]", lines[0], lines[1]),
    ] {
        assert_eq!(
            read_text(&stream).await,
            (expected.clone(), Ok(())),
            "{stream:?}"
        );
    }
}

#[tokio::test]
async fn an_answer_that_is_not_streamed_is_read_too() {
    let answer = json!({
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
    });
    let expected = vec![
        text("Hi"),
        Usage(TokenUsage {
            input: 1,
            output: 2,
        }),
        Finished(FinishReason::Stop),
    ];
    let pretty = serde_json::to_string_pretty(&answer).unwrap();
    assert_eq!(read_text(&pretty).await, (expected, Ok(())));
}

#[tokio::test]
async fn an_end_mark_alone_ends_an_answer_but_not_half_a_call() {
    let words = format!(
        "data: {}\n\ndata: [DONE]\n\n",
        delta(&json!({"content": "Hi"}))
    );
    let expected = vec![text("Hi"), Finished(FinishReason::Stop)];
    assert_eq!(read_text(&words).await, (expected, Ok(())));

    let half =
        json!({"tool_calls": [{"index": 0, "function": {"name": "one", "arguments": "{\"x\":"}}]});
    let half = format!("data: {}\n\ndata: [DONE]\n\n", delta(&half));
    assert_eq!(read_text(&half).await, (vec![], Err(ModelError::Cut)));
}

#[tokio::test]
async fn a_limit_or_filter_keeps_only_the_calls_that_are_whole() {
    for (reason, finished) in [
        ("length", FinishReason::Length),
        ("content_filter", FinishReason::Filtered),
        ("brown-out", FinishReason::Other("brown-out".to_owned())),
    ] {
        let (events, end) = read_chunks(&[
            delta(&json!({"tool_calls": [{"index": 0, "function": {"name": "one", "arguments": "{}"}}]})),
            delta(&json!({"tool_calls": [{"index": 1, "function": {"name": "two", "arguments": "{\"x\": 1"}}]})),
            delta(&json!({"tool_calls": [{"index": 2, "function": {"name": "three"}}]})),
            finish(reason),
        ])
        .await;
        assert_eq!(end, Ok(()));
        assert_eq!(events.last(), Some(&Finished(finished)));
        assert_eq!(calls_of(events), [("one".to_owned(), "{}".to_owned())]);
    }
}

#[tokio::test]
async fn broken_arguments_of_an_ended_call_are_given_as_they_are() {
    let call =
        json!({"tool_calls": [{"index": 0, "function": {"name": "one", "arguments": "{'x': 1"}}]});
    let (events, _) = read_chunks(&[delta(&call), finish("tool_calls")]).await;
    assert_eq!(calls_of(events), [("one".to_owned(), "{'x': 1".to_owned())]);
}

#[tokio::test]
async fn an_answer_without_an_end_was_cut_and_gives_no_call() {
    let call = json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "one", "arguments": "{}"}}]});
    let (events, end) = read_chunks(&[delta(&json!({"content": "I look"})), delta(&call)]).await;
    assert_eq!((events, end), (vec![text("I look")], Err(ModelError::Cut)));
    let (events, end) =
        read_chunks(&[json!({"choices": [{"delta": {}, "finish_reason": ""}]})]).await;
    assert_eq!((events, end), (vec![], Err(ModelError::Cut)));
}

#[tokio::test]
async fn an_error_in_the_stream_ends_it() {
    for (error, expected) in [
        (
            json!({"error": {"message": "boom", "code": 500}}),
            ModelError::Failed { status: 500 },
        ),
        (
            json!({"error": "Loading model", "choices": []}),
            ModelError::Failed { status: 200 },
        ),
    ] {
        let (events, end) = read_chunks(&[delta(&json!({"content": "Hi"})), error]).await;
        assert_eq!((events, end), (vec![text("Hi")], Err(expected)));
    }
    let (events, end) = read_text("data: {\"choices\"\n\ndata: [DONE]\n\n").await;
    assert_eq!((events, end), (vec![], Err(ModelError::Unreadable)));
}

#[tokio::test]
async fn nothing_after_the_model_stopped_takes_its_answer_back() {
    let expected = vec![text("Hi"), Finished(FinishReason::Stop)];
    for after in [
        "data: {\"error\": \"late\"}\n\n",
        "data: {oh",
        "data: \u{fffd}\n\n",
    ] {
        let stream = format!(
            "data: {}\n\ndata: {}\n\n{after}",
            delta(&json!({"content": "Hi"})),
            finish("stop")
        );
        assert_eq!(
            read_text(&stream).await,
            (expected.clone(), Ok(())),
            "{after}"
        );
    }
}

#[tokio::test]
async fn other_choices_are_not_mixed_in() {
    let (events, _) = read_chunks(&[
        json!({"choices": [{"index": 1, "delta": {"content": "no"}}, {"index": 0, "delta": {"content": "yes"}}]}),
        finish("stop"),
    ])
    .await;
    assert_eq!(events, [text("yes"), Finished(FinishReason::Stop)]);
}

#[test]
fn a_request_says_what_was_said_before() {
    let request = ModelRequest {
        model: "m".to_owned(),
        messages: vec![
            ModelMessage::System("Be brief.".to_owned()),
            ModelMessage::User("Look it up.".to_owned()),
            ModelMessage::Assistant {
                text: String::new(),
                calls: vec![
                    FunctionCall {
                        id: "a".to_owned(),
                        name: "one".to_owned(),
                        arguments: "{\"x\":1}".to_owned(),
                    },
                    FunctionCall {
                        id: "b".to_owned(),
                        name: "one".to_owned(),
                        arguments: "{'x'".to_owned(),
                    },
                ],
            },
            ModelMessage::Result {
                call_id: "a".to_owned(),
                name: "one".to_owned(),
                text: "7".to_owned(),
                is_error: false,
            },
        ],
        functions: vec![Function {
            name: "one".to_owned(),
            description: "Looks.".to_owned(),
            parameters: json!({"type": "object"}),
        }],
        choice: FunctionChoice::Auto,
        temperature: Some(0.0),
        max_output_tokens: Some(9),
    };
    insta::assert_snapshot!(serde_json::to_string_pretty(&body(&request, false)).unwrap());

    let itself = body(&request, true);
    assert_eq!(
        (&itself["max_completion_tokens"], itself.get("max_tokens")),
        (&json!(9), None)
    );
    let last_turn = ModelRequest {
        choice: FunctionChoice::None,
        ..request.clone()
    };
    assert_eq!(body(&last_turn, false)["tool_choice"], "none");
    let plain = ModelRequest {
        functions: vec![],
        ..request
    };
    assert_eq!(
        body(&plain, false).get("tools"),
        None,
        "an empty list is refused by some"
    );
    assert_eq!(body(&plain, false).get("tool_choice"), None);
}
