//! Tests of a provider with a scripted server on a real socket.

use std::time::Duration;

use futures::StreamExt;
use metrics_exporter_prometheus::PrometheusBuilder;
use serde_json::{Value, json};
use wardgate_testkit::lowest_chance;

use super::testing::{Completion, Reply, ScriptedProvider, collect, complete, open_reader};
use super::*;
use crate::model::{FinishReason, Function, FunctionCall, FunctionChoice, TokenUsage};

const HI: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}\n\n";
const STOP: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
const USAGE: &str =
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":2}}\n\n";
const CALL: &str = "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\
                    \"function\":{\"name\":\"one\",\"arguments\":\"{}\"}}]}}]}\n\n";
const DONE: &str = "data: [DONE]\n\n";

fn provider(server: &ScriptedProvider, changes: Value) -> Provider {
    let mut settings =
        json!({"type": "openai", "base_url": format!("{}/v1", server.url), "api_key": "canary"});
    let Value::Object(changes) = changes else {
        panic!("changes are an object");
    };
    settings.as_object_mut().unwrap().extend(changes);
    let settings = serde_json::from_value(settings).unwrap();
    Provider::open("local", &settings, lowest_chance()).unwrap()
}

fn request() -> ModelRequest {
    ModelRequest {
        model: "m".to_owned(),
        messages: vec![ModelMessage::User("Hello".to_owned())],
        functions: vec![Function {
            name: "one".to_owned(),
            description: String::new(),
            parameters: json!({"type": "object"}),
        }],
        choice: FunctionChoice::Auto,
        temperature: None,
        max_output_tokens: None,
    }
}

async fn run(replies: Vec<Reply>, changes: Value) -> (Result<Completion, ModelError>, usize) {
    let server = ScriptedProvider::start(replies).await;
    let answer = complete(&provider(&server, changes), &request()).await;
    (answer, server.requests().len())
}

fn said_hi() -> Completion {
    Completion {
        text: "Hi".to_owned(),
        calls: vec![],
        finish: Some(FinishReason::Stop),
    }
}

#[tokio::test]
async fn an_answer_comes_piece_by_piece_and_whole() {
    let server = ScriptedProvider::start([Reply::stream(&[HI, HI, CALL, STOP, USAGE, DONE])]).await;
    let stream = provider(&server, json!({}))
        .stream(&request())
        .await
        .unwrap();
    let call = FunctionCall {
        id: "a".to_owned(),
        name: "one".to_owned(),
        arguments: "{}".to_owned(),
    };
    let expected = vec![
        ModelEvent::Text("Hi".to_owned()),
        ModelEvent::Text("Hi".to_owned()),
        ModelEvent::Call(call),
        ModelEvent::Usage(TokenUsage {
            input: 5,
            output: 2,
        }),
        ModelEvent::Finished(FinishReason::Calls),
    ];
    assert_eq!(collect(stream).await, (expected, Ok(())));

    let [seen] = server.requests().try_into().unwrap();
    assert!(
        seen.head
            .starts_with("post /v1/chat/completions http/1.1\r\n")
    );
    assert!(seen.head.contains("authorization: bearer canary"));
    assert_eq!(seen.body["messages"][0]["content"], "Hello");
}

#[tokio::test]
async fn the_first_event_is_given_out_before_the_answer_ends() {
    let server = ScriptedProvider::start([Reply::stall_after(&[HI])]).await;
    let mut stream = provider(&server, json!({}))
        .stream(&request())
        .await
        .unwrap();
    assert_eq!(
        stream.next().await,
        Some(Ok(ModelEvent::Text("Hi".to_owned())))
    );
    drop(stream);
    server.closed().await;
}

#[tokio::test]
async fn dropping_the_wait_for_an_answer_ends_the_request() {
    let server = ScriptedProvider::start([Reply::silence()]).await;
    let provider = provider(&server, json!({}));
    let request = request();
    let mut waiting = Box::pin(provider.stream(&request));
    while server.requests().is_empty() {
        assert!(futures::poll!(&mut waiting).is_pending());
        tokio::task::yield_now().await;
    }
    drop(waiting);
    server.closed().await;
}

#[tokio::test]
async fn what_may_pass_is_tried_again_until_the_attempts_are_used_up() {
    let busy = Reply::new("429 Too Many Requests", &["retry-after: 0"], "{}");
    let loading = Reply::new(
        "503 Service Unavailable",
        &[],
        "{\"error\":{\"message\":\"Loading model\",\"code\":503}}",
    );
    let failed = Reply::new("500 Internal Server Error", &[], "oh");
    let error = "data: {\"error\":{\"type\":\"overloaded_error\"}}\n\n";
    let hi = Reply::stream(&[HI, STOP, DONE]);
    for first in [
        busy,
        loading.clone(),
        failed,
        Reply::disconnect(),
        Reply::cut(&[]),
        Reply::cut(&[": wait\n\n"]),
        Reply::stream(&[error]),
    ] {
        let replies = vec![first.clone(), first.clone(), hi.clone()];
        let (answer, asked) = run(replies, json!({})).await;
        assert_eq!((answer, asked), (Ok(said_hi()), 3), "{first:?}");
    }
    let (answer, asked) = run(vec![loading; 3], json!({"attempts": 2})).await;
    assert_eq!(
        (answer, asked),
        (Err(ModelError::Busy { retry_after: None }), 2)
    );
}

#[tokio::test]
async fn what_cannot_pass_is_not_tried_again() {
    let long = Reply::new("429 Too Many Requests", &["retry-after: 3600"], "{}");
    let hour = ModelError::Busy {
        retry_after: Some(Duration::from_secs(3_600)),
    };
    let key = Reply::new(
        "401 Unauthorized",
        &[],
        "{\"error\":{\"message\":\"bad key canary\"}}",
    );
    let moved = Reply::new(
        "307 Temporary Redirect",
        &["location: http://127.0.0.1:1/"],
        "",
    );
    let page = Reply::new("200 OK", &["content-type: text/html"], "<html></html>");
    for (reply, expected) in [
        (long, hour),
        (key, ModelError::Credentials { status: 401 }),
        (moved, ModelError::Refused { status: 307 }),
        (page, ModelError::Unreadable),
    ] {
        let (answer, asked) = run(vec![reply; 2], json!({})).await;
        assert_eq!((answer, asked), (Err(expected), 1));
    }
}

#[tokio::test]
async fn an_answer_that_began_is_not_asked_for_again() {
    for replies in [
        vec![Reply::cut(&[HI, CALL]); 2],
        vec![Reply::stream(&[HI, CALL]); 2],
    ] {
        let server = ScriptedProvider::start(replies).await;
        let stream = provider(&server, json!({}))
            .stream(&request())
            .await
            .unwrap();
        let hi = vec![ModelEvent::Text("Hi".to_owned())];
        assert_eq!(collect(stream).await, (hi, Err(ModelError::Cut)));
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test]
async fn a_connection_that_breaks_after_the_end_took_nothing() {
    let (answer, _) = run(vec![Reply::cut(&[HI, STOP])], json!({})).await;
    assert_eq!(answer, Ok(said_hi()));
}

#[tokio::test]
async fn a_provider_behind_a_proxy_is_reached_through_it_alone() {
    let proxy = ScriptedProvider::start(vec![Reply::stream(&[HI, STOP, DONE])]).await;
    let behind = json!({
        "base_url": "http://llm.invalid/v1",
        "allow_http": true,
        "proxy": proxy.url,
    });
    let answer = complete(&provider(&proxy, behind), &request()).await;
    assert_eq!(answer.unwrap(), said_hi());
    let seen = proxy.requests();
    let [request] = &*seen else {
        panic!("{seen:?}");
    };
    let asked = "post http://llm.invalid/v1/chat/completions http/1.1";
    assert!(request.head.starts_with(asked), "{}", request.head);
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unreachable() {
    let nobody = ScriptedProvider::start([]).await;
    let answer = complete(&provider(&nobody, json!({})), &request()).await;
    assert_eq!(answer, Err(ModelError::Unreachable));
}

#[tokio::test]
async fn no_provider_is_waited_for_longer_than_its_limits() {
    let late = |reply, changes| async move {
        let (answer, asked) = run(vec![reply; 2], changes).await;
        assert_eq!((answer, asked), (Err(ModelError::Late), 1));
    };
    late(Reply::silence(), json!({"timeout": "50ms"})).await;
    late(Reply::stall_after(&[]), json!({"timeout": "50ms"})).await;
    late(Reply::stall_after(&[HI]), json!({"idle_timeout": "50ms"})).await;
    late(
        Reply::endless(": keep-alive\n\n"),
        json!({"total_timeout": "200ms"}),
    )
    .await;
}

#[tokio::test]
async fn an_endless_answer_ends_at_its_limit() {
    for piece in [HI, CALL] {
        let (answer, _) = run(
            vec![Reply::endless(piece)],
            json!({"max_answer_bytes": 1_000}),
        )
        .await;
        assert_eq!(answer, Err(ModelError::TooLarge), "{piece}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_close_after_the_end_is_not_waited_for() {
    let said = [HI, STOP, USAGE].map(|text| Ok(Bytes::from(text)));
    let body = stream::iter(said).chain(stream::pending()).boxed();
    let reading = open_reader(ProviderKind::OpenAi, body).await.unwrap();
    let started = Instant::now();
    let (events, end) = collect(
        reading
            .with_telemetry(AnswerTelemetry::start(ProviderKind::OpenAi, "m"))
            .boxed(),
    )
    .await;
    assert_eq!((events.len(), end), (3, Ok(())));
    assert_eq!(started.elapsed(), GRACE);
}

#[tokio::test]
async fn a_wire_without_functions_says_so() {
    let server = ScriptedProvider::start([]).await;
    assert!(provider(&server, json!({})).carries_calls());
    assert!(!provider(&server, json!({"type": "ollama"})).carries_calls());
}

#[tokio::test]
async fn no_key_is_shown() {
    let server = ScriptedProvider::start([]).await;
    let provider = provider(&server, json!({"headers": {"x-account": "canary"}}));
    assert!(!format!("{provider:?}").contains("canary"));
}

#[tokio::test]
async fn answers_and_failures_are_counted_without_their_contents() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let refused = Reply::new("400 Bad Request", &[], "{\"error\":\"canary\"}");
    let server = ScriptedProvider::start([
        Reply::stream(&[HI, STOP, USAGE, DONE]),
        refused,
        Reply::stall_after(&[HI]),
    ])
    .await;
    let provider = provider(&server, json!({}));
    complete(&provider, &request()).await.unwrap();
    complete(&provider, &request()).await.unwrap_err();
    drop(provider.stream(&request()).await.unwrap());

    let lines = recorder.handle().render();
    let labels =
        "gen_ai_operation_name=\"chat\",gen_ai_provider_name=\"openai\",gen_ai_request_model=\"m\"";
    for line in [
        format!("gen_ai_client_token_usage_sum{{{labels},gen_ai_token_type=\"input\"}} 5"),
        format!("gen_ai_client_token_usage_sum{{{labels},gen_ai_token_type=\"output\"}} 2"),
        format!("gen_ai_client_operation_duration_count{{{labels}}} 1"),
        format!("gen_ai_client_operation_duration_count{{{labels},error_type=\"refused\"}} 1"),
        format!("gen_ai_client_operation_duration_count{{{labels},error_type=\"cancelled\"}} 1"),
        format!("gen_ai_client_operation_time_to_first_chunk_count{{{labels}}} 2"),
    ] {
        assert!(lines.contains(&line), "{line}\n{lines}");
    }
    assert!(!lines.contains("canary") && !lines.contains("Hi"));
}
