//! Exchanges with a real model on a real server, which `tests/real-model/run` starts and records.

use std::path::Path;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use serde_json::{Value, json};
use tokio::time::Instant;
use wardgate_testkit::lowest_chance;

use super::replay::CASSETTES;
use super::testing::{complete, read_pieces};
use super::{Provider, ProviderKind, openai};
use crate::model::{
    FinishReason, Function, FunctionCall, FunctionChoice, ModelError, ModelEvent, ModelMessage,
    ModelRequest,
};

fn server(variable: &str) -> Provider {
    let url = std::env::var(variable)
        .unwrap_or_else(|_| panic!("{variable} is not set: run tests/real-model/run"));
    let settings =
        json!({"type": "openai", "base_url": url, "timeout": "5m", "idle_timeout": "5m"});
    let settings = serde_json::from_value(settings).unwrap();
    Provider::open("real", &settings, lowest_chance()).unwrap()
}

/// Sends a request, stores the server's response and returns its text and calls.
async fn record(
    name: &str,
    provider: &Provider,
    request: &ModelRequest,
) -> (String, Vec<FunctionCall>) {
    let body = openai::body(request, false);
    let started = Instant::now();
    let post = || {
        let deadline = started + Duration::from_secs(600);
        let body = body.to_string().into();
        async move { provider.http.post(body, deadline).await }
    };
    let sent = match post().await {
        Err(ModelError::Cut) => post().await,
        sent => sent,
    };
    let pieces: Vec<_> = sent.unwrap().try_collect().await.unwrap();
    let bytes = pieces.concat();
    let file = |extension: &str| Path::new(CASSETTES).join(format!("{name}.{extension}"));
    std::fs::write(file("sse"), &bytes).unwrap();
    let body = serde_json::to_string_pretty(&body).unwrap() + "\n";
    std::fs::write(file("json"), body).unwrap();

    let (events, end) = read_pieces(ProviderKind::OpenAi, vec![bytes]).await;
    println!("{name} ({:?}): {events:#?}", started.elapsed());
    assert_eq!(end, Ok(()), "{name}");
    let mut answer = (String::new(), Vec::new());
    for event in events {
        match event {
            ModelEvent::Text(text) => answer.0.push_str(&text),
            ModelEvent::Call(call) => answer.1.push(call),
            _ => {}
        }
    }
    answer
}

fn create_request(messages: Vec<ModelMessage>, functions: Vec<Function>) -> ModelRequest {
    ModelRequest {
        model: "qwen2.5-coder-1.5b-instruct".to_owned(),
        messages,
        functions,
        choice: FunctionChoice::Auto,
        temperature: Some(0.0),
        max_output_tokens: Some(160),
    }
}

fn parcel_status() -> Function {
    Function {
        name: "parcel_status".to_owned(),
        description: "Where a parcel is and when it arrives.".to_owned(),
        parameters: json!({
            "type": "object",
            "properties": {"parcel_id": {"type": "string", "description": "Two letters and four digits"}},
            "required": ["parcel_id"],
        }),
    }
}

fn system(text: &str) -> ModelMessage {
    ModelMessage::System(text.to_owned())
}

fn user(text: &str) -> ModelMessage {
    ModelMessage::User(text.to_owned())
}

fn result_message(call: &FunctionCall, text: &Value, is_error: bool) -> ModelMessage {
    ModelMessage::Result {
        call_id: call.id.clone(),
        name: call.name.clone(),
        text: text.to_string(),
        is_error,
    }
}

#[tokio::test]
#[ignore = "needs a real model: tests/real-model/run"]
async fn a_real_model_calls_functions() {
    let provider = server("WARDGATE_TEST_REAL_MODEL_FENCED");
    let question = vec![
        system("You help customers of a parcel service. Use the tool to look parcels up."),
        user("Where is parcel AB1234?"),
    ];
    let (_, calls) = record(
        "native_call",
        &provider,
        &create_request(question.clone(), vec![parcel_status()]),
    )
    .await;
    let [call] = calls.as_slice() else {
        panic!("one call: {calls:?}");
    };
    assert_eq!(call.name, "parcel_status");
    let arguments: Value = serde_json::from_str(&call.arguments).unwrap();
    assert_eq!(arguments, json!({"parcel_id": "AB1234"}));

    let with_result = |result: &Value, is_error| {
        let mut messages = question.clone();
        messages.push(ModelMessage::Assistant {
            text: String::new(),
            calls: vec![call.clone()],
        });
        messages.push(result_message(call, result, is_error));
        create_request(messages, vec![parcel_status()])
    };
    let found = json!({"status": "in transit", "place": "Hamburg", "arrives": "Tuesday"});
    let (text, _) = record("native_answer", &provider, &with_result(&found, false)).await;
    assert!(text.contains("Hamburg"), "{text}");
    let unknown = json!({"error": "Unknown parcel_id: AB1234"});
    record("native_error", &provider, &with_result(&unknown, true)).await;

    let two = vec![
        question[0].clone(),
        user(
            "Compare the arrival of parcel AB1234 with that of parcel CD5678. Call the tool twice.",
        ),
    ];
    let (_, calls) = record(
        "native_two",
        &provider,
        &create_request(two, vec![parcel_status()]),
    )
    .await;
    assert_eq!(calls.len(), 2);

    let short = ModelRequest {
        max_output_tokens: Some(12),
        ..create_request(question, vec![parcel_status()])
    };
    let (_, calls) = record("native_cut", &provider, &short).await;
    assert_eq!(calls, []);
}

#[tokio::test]
#[ignore = "needs a real model: tests/real-model/run"]
async fn a_real_model_calls_in_words() {
    let provider = server("WARDGATE_TEST_REAL_MODEL");
    let question = user("Where is parcel AB1234?");
    let native = vec![
        system("You help customers of a parcel service. Use the tool to look parcels up."),
        question.clone(),
    ];
    record(
        "stock_template",
        &provider,
        &create_request(native, vec![parcel_status()]),
    )
    .await;

    let prompt = system(
        "You help customers of a parcel service. You have one tool:\n\
         - parcel_status: where a parcel is and when it arrives. Parameters: {\"parcel_id\": string, required}\n\n\
         To use it, answer with exactly these two lines and nothing else:\n\
         TOOL: parcel_status\nPARAMETERS: {\"parcel_id\": \"...\"}\n\n\
         Its result comes as [Tool Result: parcel_status]. Then answer the question from it.",
    );
    let mut messages = vec![prompt, question];
    let (text, _) = record(
        "text_call",
        &provider,
        &create_request(messages.clone(), vec![]),
    )
    .await;
    assert!(text.contains("TOOL: parcel_status"), "{text}");
    messages.push(ModelMessage::Assistant {
        text,
        calls: vec![],
    });
    messages.push(user(
        "[Tool Result: parcel_status]\n{\"status\": \"in transit\", \"place\": \"Hamburg\", \"arrives\": \"Tuesday\"}",
    ));
    let (text, _) = record("text_answer", &provider, &create_request(messages, vec![])).await;
    assert!(text.contains("Hamburg"), "{text}");
}

#[tokio::test]
#[ignore = "needs a real model: tests/real-model/run"]
async fn a_real_server_stops_when_nobody_listens() {
    let provider = server("WARDGATE_TEST_REAL_MODEL");
    let long = ModelRequest {
        max_output_tokens: Some(2_000),
        ..create_request(
            vec![user("Count from 1 to 1000, one number a line.")],
            vec![],
        )
    };
    let mut stream = provider.stream(&long).await.unwrap();
    for _ in 0..5 {
        stream.next().await.unwrap().unwrap();
    }
    drop(stream);
    let started = Instant::now();
    let short = ModelRequest {
        max_output_tokens: Some(5),
        ..create_request(vec![user("Say hello in one word.")], vec![])
    };
    // The server has a single slot, which the first answer would occupy for minutes.
    let answer = complete(&provider, &short).await.unwrap();
    println!(
        "after a cancelled answer: {answer:?} in {:?}",
        started.elapsed()
    );
    assert!(started.elapsed() < Duration::from_secs(30));
    assert_eq!(answer.finish, Some(FinishReason::Stop));
}
