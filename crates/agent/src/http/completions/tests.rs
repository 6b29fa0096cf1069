use serde_json::{Value, json};

use super::super::testing::{an_answer, data, done_event, script, text, token};
use super::*;
use crate::ErrorKind;

fn head() -> CompletionHead {
    CompletionHead {
        id: "chatcmpl-1".to_owned(),
        created: 1_762_869_000,
        model: "clinic".to_owned(),
        chat_id: None,
    }
}

fn failed_turn_events(begun: bool) -> Vec<EventBody> {
    let mut events = vec![
        EventBody::Error {
            kind: ErrorKind::ModelFailed,
            message: "the model provider is busy".to_owned(),
        },
        done_event(FinishReason::Error),
    ];
    if begun {
        events.insert(0, token("Let me"));
    }
    events
}

async fn chunks(events: Vec<EventBody>, include_usage: bool) -> Vec<Value> {
    let reply = stream_reply(script(events), head(), include_usage)
        .await
        .unwrap();
    data(&text(reply.into_body()).await)
}

#[tokio::test]
async fn a_whole_reply_has_every_field_of_a_completion() {
    let reply = whole::reply(script(an_answer()), head()).await.unwrap();
    insta::assert_snapshot!(serde_json::to_string_pretty(&reply).unwrap());
}

#[tokio::test]
async fn a_stream_is_chunks_with_tools_in_the_extension() {
    let chunks = chunks(an_answer(), true).await;
    insta::assert_snapshot!(serde_json::to_string_pretty(&chunks).unwrap());
}

#[tokio::test]
async fn usage_comes_only_when_it_is_asked_for() {
    let chunks = chunks(an_answer(), false).await;
    assert!(chunks.iter().all(|chunk| chunk.get("usage").is_none()));
    assert_eq!(chunks.last().unwrap(), "[DONE]");
}

#[tokio::test]
async fn what_fails_before_it_begins_has_an_http_status() {
    let streamed = stream_reply(script(failed_turn_events(false)), head(), false)
        .await
        .unwrap_err();
    let whole = whole::reply(script(failed_turn_events(true)), head())
        .await
        .unwrap_err();
    for problem in [streamed, whole] {
        let response = problem.into_response();
        assert_eq!(response.status(), 502);
        // A retry would run tools a second time.
        assert_eq!(response.headers()["x-should-retry"], "false");
        let body: Value = serde_json::from_str(&text(response.into_body()).await).unwrap();
        let expected = json!({ "error": {
            "message": "the model provider is busy",
            "type": "server_error",
            "param": null,
            "code": "model_failed",
        }});
        assert_eq!(body, expected);
    }
}

#[tokio::test]
async fn a_model_that_is_not_configured_is_no_reason_to_send_the_request_again() {
    let events = vec![
        EventBody::Error {
            kind: ErrorKind::ModelNotConfigured,
            message: "assistant `later` has no model: set LLM_BASE_URL".to_owned(),
        },
        done_event(FinishReason::Error),
    ];
    let problem = whole::reply(script(events), head()).await.unwrap_err();
    let response = problem.into_response();
    assert_eq!(response.status(), 404);
    assert_eq!(response.headers()["x-should-retry"], "false");
    let body: Value = serde_json::from_str(&text(response.into_body()).await).unwrap();
    assert_eq!(body["error"]["code"], "model_not_configured");
}

#[tokio::test]
async fn what_fails_on_its_way_says_so_in_the_stream() {
    let chunks = chunks(failed_turn_events(true), false).await;
    let [.., error, end] = chunks.as_slice() else {
        panic!("{chunks:?}");
    };
    assert_eq!(error["error"]["code"], "model_failed");
    assert_eq!(end, "[DONE]");
}

#[tokio::test]
async fn an_error_that_the_turn_survives_fails_nothing() {
    let mut events = an_answer();
    events.insert(
        0,
        EventBody::Error {
            kind: ErrorKind::ToolNotAvailable,
            message: "Tool 'x' not available".to_owned(),
        },
    );
    let reply = whole::reply(script(events.clone()), head()).await.unwrap();
    assert_eq!(reply["choices"][0]["finish_reason"], "stop");
    assert_eq!(reply["wardgate"][0]["kind"], "tool_not_available");
    let chunks = chunks(events, false).await;
    assert!(
        chunks
            .iter()
            .any(|chunk| chunk["wardgate"]["kind"] == "tool_not_available")
    );
    assert!(chunks.iter().all(|chunk| chunk.get("error").is_none()));
}

#[tokio::test(start_paused = true)]
async fn a_slow_answer_begins_with_its_headers() {
    let slow = stream::once(std::future::pending::<AgentEvent>());
    assert!(stream_reply(slow.boxed(), head(), false).await.is_ok());
}

fn parse_completion(body: &str) -> Result<Completion, Value> {
    Completion::parse(body.as_bytes(), &http::HeaderMap::new())
        .map_err(|problem| problem.body()["error"].clone())
}

#[test]
fn the_last_thing_the_person_says_is_the_question() {
    let body = r#"{"model":"clinic","temperature":2,"messages":[
        {"role":"system","content":"You are"},{"role":"user","content":"one"},{"role":"assistant","content":"two"},
        {"role":"user","content":[{"type":"text","text":"th"},{"type":"text","text":"ree"}]},
        {"role":"assistant","content":null,"tool_calls":[]}]}"#;
    let chat = parse_completion(body).unwrap().chat;
    assert_eq!(chat.message, "three");
    let history: Vec<&str> = chat
        .history
        .iter()
        .map(|message| message.text.as_str())
        .collect();
    assert_eq!(history, ["one", "two"]);
    assert_eq!(chat.model.as_deref(), Some("clinic"));
}

#[test]
fn chat_id_is_the_conversation_and_then_nothing_else_is_history() {
    let body = r#"{"chat_id":"chat_123456","stream":true,"stream_options":{"include_usage":true},
        "messages":[{"role":"user","content":"one"},{"role":"user","content":"two"}]}"#;
    let completion = parse_completion(body).unwrap();
    assert_eq!(
        completion.chat.conversation_id.as_deref(),
        Some("chat_123456")
    );
    assert!(completion.chat.history.is_empty());
    assert!(completion.stream && completion.include_usage);
}

#[test]
fn a_request_sent_again_is_the_same_turn() {
    let mut headers = http::HeaderMap::new();
    headers.insert("idempotency-key", "retry-1".parse().unwrap());
    let message = r#"[{"role":"user","content":"hi"}]"#;
    let read = |body: String| {
        Completion::parse(body.as_bytes(), &headers)
            .unwrap()
            .chat
            .message_id
    };
    let within = format!(r#"{{"chat_id":"c","messages":{message}}}"#);
    assert_eq!(read(within).as_deref(), Some("retry-1"));
    assert_eq!(read(format!(r#"{{"messages":{message}}}"#)), None);
}

#[test]
fn what_an_assistant_cannot_do_is_named() {
    let user = r#""messages":[{"role":"user","content":"secret"}]"#;
    for (body, param) in [
        ("{}".to_owned(), "messages"),
        (r#"{"messages":"secret"}"#.to_owned(), "messages"),
        (r#"{"messages":[]}"#.to_owned(), "messages"),
        (r#"{"messages":["secret"]}"#.to_owned(), "messages"),
        (
            r#"{"messages":[{"role":"assistant","content":"secret"}]}"#.to_owned(),
            "messages",
        ),
        (
            r#"{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}"#.to_owned(),
            "messages",
        ),
        (
            r#"{"messages":[{"role":"secret","content":"x"}]}"#.to_owned(),
            "messages",
        ),
        (format!(r#"{{{user},"n":2}}"#), "n"),
        (format!(r#"{{{user},"stream":"secret"}}"#), "stream"),
        (
            format!(r#"{{{user},"response_format":{{"type":"json_object"}}}}"#),
            "response_format",
        ),
        (format!(r#"{{{user},"chat_id":1}}"#), "chat_id"),
    ] {
        let Err(error) = parse_completion(&body) else {
            panic!("{body} was taken");
        };
        assert_eq!(error["param"], param, "{body}");
        assert!(
            !error["message"].as_str().unwrap().contains("secret"),
            "{error}"
        );
    }
}
