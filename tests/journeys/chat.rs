//! Tests of chats: a person asks, a model decides, governed tools run, and the conversation is stored.

mod canaries;
mod contents;
mod follows;
mod kill;
mod provider;
mod talk;

use serde_json::{Value, json};
use wardgate_testkit::{System, TestApp};

use super::extra_tools::{Counter, LOOK_OFTEN};
use super::people::{billing, doctor, of_patient};
use crate::WARDGATE;

use provider::{Piece, Provider};
use talk::{PersonMessage, finish, of_type, send_message, text};

/// Starts `wardgate up` with the demo and its assistant, whose model is `provider`.
fn start(provider: &Provider) -> TestApp {
    let environment = [("LLM_BASE_URL", provider.url.as_str()), LOOK_OFTEN];
    TestApp::start_with(WARDGATE, &environment)
}

fn person_message(text: &str) -> PersonMessage {
    PersonMessage {
        conversation: "visit-1".to_owned(),
        id: "question-1".to_owned(),
        text: text.to_owned(),
    }
}

/// Sends a message and returns all events until the end of the stream.
async fn collect_events(app: &TestApp, token: &str, message: &PersonMessage) -> Vec<Value> {
    let events = send_message(app.client().base(), token, message)
        .await
        .unwrap();
    events.rest().await
}

/// Calls a method of the memory.
async fn call_memory(system: &impl System, token: &str, method: &str, params: Value) -> Value {
    let reply = system.client().modern(token, method, params).await;
    reply.result()
}

/// Returns the messages of a conversation that its next turn would see.
async fn context(system: &impl System, token: &str, conversation: &str) -> Vec<Value> {
    let params = json!({ "conversation_id": conversation, "max_messages": 100 });
    let result = call_memory(system, token, "memory/get_context", params).await;
    result["messages"].as_array().unwrap().clone()
}

fn roles(messages: &[Value]) -> Vec<&str> {
    let roles = messages.iter().map(|message| message["role"].as_str());
    roles.map(Option::unwrap).collect()
}

#[tokio::test]
async fn a_provider_that_is_cut_leaves_no_half_turn() {
    let provider = Provider::start().await;
    let app = start(&provider);
    let mut counter = Counter::add_to(&app).await;
    let (token, message) = (doctor(&app), person_message("Note that I was here."));
    let call = Piece::Call("count_up", json!({ "note": "here" }));

    // The connection breaks within the first words, within the round of a call, and within the words after the call.
    let half = vec![Piece::Text("I am abo"), Piece::Cut];
    let half_round = vec![Piece::Text("I note it.\n"), call.clone(), Piece::Cut];
    let half_answer = vec![vec![call.clone()], half.clone()];
    for (script, state, notes) in [
        (vec![half], "none", 0),
        (vec![half_round], "none", 0),
        (half_answer, "open", 1),
    ] {
        provider.plays(script);
        let events = collect_events(&app, &token, &message).await;
        assert_eq!(finish(&events), "error");
        assert_eq!(of_type(&events, "error")[0]["kind"], "model_failed");
        assert_eq!(counter.notes().await.len(), notes);
        let kept = context(&app, &token, &message.conversation).await;
        assert!(kept.is_empty(), "{kept:?}");
        let turn = json!({ "conversation_id": message.conversation, "turn_id": message.id });
        let turn = call_memory(&app, &token, "memory/get_turn", turn).await;
        assert_eq!(turn["state"], state);
    }

    provider.plays(vec![vec![call], vec![Piece::Text("It is noted.")]]);
    let events = collect_events(&app, &token, &message).await;
    assert_eq!(
        (finish(&events), text(&events).as_str()),
        ("stop", "It is noted.")
    );
    assert_eq!(counter.notes().await, ["here"]);
    let kept = context(&app, &token, &message.conversation).await;
    assert_eq!(roles(&kept), ["user", "assistant", "tool", "assistant"]);
}

/// A text that is in messages, arguments and answers, and must be found only in the conversation.
const CANARY: &str = "kiwicanary";

#[tokio::test]
async fn a_chat_in_up_streams_and_is_on_record() {
    let provider = Provider::start().await;
    let app = start(&provider);
    let _counter = Counter::add_to(&app).await;
    let token = doctor(&app);
    provider.plays(vec![
        vec![
            Piece::Text("I note kiwicanary.\n"),
            Piece::Call("count_up", json!({ "note": CANARY })),
            Piece::Call("get_patient_records", of_patient("NUGWI")),
        ],
        vec![Piece::Text("kiwicanary "), Piece::Text("is noted.")],
    ]);
    provider.hold_responses(Some((1, 1)));
    let message = person_message("Please note kiwicanary.");
    let mut events = send_message(app.client().base(), &token, &message)
        .await
        .unwrap();
    // The person reads what the model has written so far, although the model has not finished.
    while !text(&events.seen).ends_with("kiwicanary ") {
        assert!(events.next().await.is_some(), "{:?}", events.seen);
    }
    provider.hold_responses(None);
    let events = events.rest().await;
    assert_eq!(finish(&events), "stop");
    assert_eq!(text(&events), "I note kiwicanary.\nkiwicanary is noted.");
    let results = of_type(&events, "tool_result");
    assert!(results.iter().all(|result| result["success"] == true));
    assert_eq!(results[1]["data"].as_array().unwrap().len(), 2);
    assert_eq!(
        context(&app, &token, &message.conversation).await.len(),
        5,
        "the conversation knows it"
    );

    let records = app.records();
    let by_doctor: Vec<&Value> = records
        .iter()
        .filter(|record| record["user"] == "dr.yenji")
        .collect();
    let of = |name: &str, value: &str| {
        let found = by_doctor.iter().filter(|record| record[name] == value);
        found.count()
    };
    assert_eq!(of("tool", "count_up"), 2, "an intent and an outcome");
    assert_eq!(of("tool", "get_medical_records"), 1);
    assert!(of("table_name", "Memory") >= 4, "{by_doctor:?}");
    let metrics = app.metrics().await;
    assert!(metrics.contains("wardgate_agent_turns"), "{metrics}");
    let record = format!("{records:?}");
    for (place, text) in [
        ("record", record),
        ("log", app.process.log()),
        ("metrics", metrics),
    ] {
        assert!(!text.contains(CANARY), "{place}: {text}");
    }
}

#[tokio::test]
async fn what_the_agent_offers_is_what_the_caller_may_call() {
    let provider = Provider::start().await;
    provider.plays(vec![vec![Piece::Text("Nothing to do.")]]);
    let app = start(&provider);
    let mut offered_to = Vec::new();
    for token in [doctor(&app), billing(&app)] {
        let events = collect_events(&app, &token, &person_message("What can you do?")).await;
        assert_eq!(finish(&events), "stop");
        let mut offered = offered_tools(&provider);
        offered.sort();
        let mut may_call = app.client().tool_names(&token).await;
        may_call.sort();
        assert_eq!(offered, may_call);
        offered_to.push(offered);
    }
    assert_ne!(offered_to[0], offered_to[1]);

    // The model asks for a tool that it may not call. The call is refused and does not run.
    provider.plays(vec![
        vec![Piece::Call("get_patient_records", of_patient("NUGWI"))],
        vec![Piece::Text("I may not.")],
    ]);
    let mut message = person_message("Read her records.");
    message.id = "question-2".to_owned();
    let events = collect_events(&app, &billing(&app), &message).await;
    assert_eq!(finish(&events), "stop");
    let error = of_type(&events, "error")[0];
    assert_eq!(error["kind"], "tool_not_available");
    let records = app.records();
    assert!(
        !records
            .iter()
            .any(|record| record["tool"] == "get_medical_records")
    );
    // The model's attempt is on record as a violation by the person for whom it acted.
    let refused: Vec<_> = records
        .iter()
        .filter(|record| record["reason"] == "not_available")
        .collect();
    assert_eq!(refused.len(), 1, "{records:?}");
    assert_eq!(refused[0]["violation"], true);
    assert_eq!(refused[0]["requested_tool"], "get_patient_records");
    assert_eq!(refused[0]["status"], "denied");
}

/// Returns the tools that the model was offered last, by their names in the catalogue.
fn offered_tools(provider: &Provider) -> Vec<String> {
    let request = provider.requests().pop().unwrap();
    let tools = request["tools"].as_array().unwrap().iter();
    tools
        .map(|tool| tool["function"]["name"].as_str().unwrap())
        .map(|name| own_name(name).to_owned())
        .collect()
}

/// Returns the name in the catalogue of a tool of the demo's assistant.
fn own_name(name: &str) -> &str {
    match name {
        "get_patient_admissions" => "get_admissions",
        "get_patient_appointments" => "get_appointments",
        "get_patient_records" => "get_medical_records",
        "get_my_shifts" => "get_shifts",
        name => name,
    }
}

#[tokio::test]
async fn start_survives_without_a_model() {
    // An empty value is the same as none, and overrides the variable of the developer.
    let app = TestApp::start_with(WARDGATE, &[("LLM_BASE_URL", "")]);
    let (token, client) = (doctor(&app), app.client());
    let events = collect_events(&app, &token, &person_message("Hello?")).await;
    assert_eq!(finish(&events), "error");
    let error = of_type(&events, "error")[0];
    assert_eq!(error["kind"], "model_not_configured");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("LLM_BASE_URL"), "{message}");
    assert!(context(&app, &token, "visit-1").await.is_empty());

    let records = client
        .call(&token, "get_medical_records", of_patient("NUGWI"))
        .await;
    assert_eq!(records.rows().len(), 2, "everything else works");
    assert_eq!(client.get("/ready").await.status, 200);
}
