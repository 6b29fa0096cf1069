//! Tests of complete turns, from a question to its answer.

use serde_json::json;

use super::fixture::{Events, Fixture, PLAIN, request_with_id};
use crate::model::{FunctionChoice, ModelMessage};
use crate::request::{ChatRequest, HistoryMessage, Speaker};
use crate::testing::{FakeGateway, FakeTool, ScriptedModel, call, says, words};

const RECORDS: &str =
    r#"{"data":[{"content":"Hypertension"},{"content":"Lisinopril 10mg daily"}]}"#;

fn patient() -> serde_json::Value {
    json!({"type": "object", "properties": {"patient_id": {"type": "string"}, "limit": {"type": "integer", "default": 5}}, "required": ["patient_id"]})
}

fn hospital() -> FakeGateway {
    FakeGateway::new(
        ["overview", "admissions", "appointments", "records"].map(|name| {
            FakeTool::runs(name, |arguments| {
                if arguments["patient_id"] == "NUGWI" {
                    Ok(crate::clients::ToolAnswer {
                        text: RECORDS.to_owned(),
                        is_error: false,
                    })
                } else {
                    Ok(crate::clients::ToolAnswer {
                        text: "Invalid patient_id: NOGWI".to_owned(),
                        is_error: true,
                    })
                }
            })
            .takes(patient())
        }),
    )
}

const TOOLS: &str = "    tools: { rename: { get_patient_records: records } }\n";

#[tokio::test]
async fn a_question_is_answered_from_what_a_tool_gave() {
    let model = ScriptedModel::new([
        says(
            "Let me look. ",
            &[call(
                "c1",
                "get_patient_records",
                r#"{"patient_id":"NUGWI"}"#,
            )],
        ),
        words("Hypertension, on Lisinopril 10mg daily."),
    ]);
    let fixture = Fixture::new(model, hospital(), TOOLS).await;
    let events = fixture.says("Show me all records of NUGWI").await;
    assert_eq!(
        events
            .kinds()
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>(),
        [
            "token",
            "tool_call",
            "tool_result",
            "token",
            "token",
            "token",
            "token",
            "token",
            "usage",
            "done"
        ]
    );
    let result = events.only_event("tool_result");
    assert_eq!(result["tool_name"], "get_patient_records");
    assert_eq!(result["data"][0]["content"], "Hypertension");
    assert_eq!(result["error"], json!(null));
    assert_eq!(
        events.text(),
        "Let me look. Hypertension, on Lisinopril 10mg daily."
    );
    let done = events.last();
    assert_eq!(done["finish_reason"], "stop");
    assert_eq!(done["conversation_id"], "c");
    assert_eq!(done["turn_id"], "m");
    assert_eq!(
        fixture.gateway.calls(),
        [(
            "records".to_owned(),
            json!({"patient_id": "NUGWI", "limit": 5})
        )]
    );
    // The model received the rules, the question, its own call and the result.
    let requests = fixture.model.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[0].choice, FunctionChoice::Auto);
    let ModelMessage::System(system) = &requests[1].messages[0] else {
        panic!("{requests:?}");
    };
    assert!(system.starts_with("You help dr.yenji."), "{system}");
    assert_eq!(fixture.model.last_results(), [RECORDS]);
    assert_eq!(
        fixture.gateway.messages("c"),
        [
            ("user", "Show me all records of NUGWI"),
            ("assistant", "Let me look. "),
            ("tool", RECORDS),
            ("assistant", "Hypertension, on Lisinopril 10mg daily."),
        ]
        .map(|(role, text)| (role.to_owned(), text.to_owned()))
    );
}

#[tokio::test]
async fn five_questions_come_to_their_tools_and_a_typing_error_to_an_error() {
    for (tool, patient) in [
        ("overview", "NUGWI"),
        ("get_patient_records", "NUGWI"),
        ("admissions", "NUGWI"),
        ("appointments", "NUGWI"),
        ("overview", "NOGWI"),
    ] {
        let model = ScriptedModel::new([
            says(
                "",
                &[call(
                    "c1",
                    tool,
                    &json!({"patient_id": patient}).to_string(),
                )],
            ),
            words("Done."),
        ]);
        let fixture = Fixture::new(model, hospital(), TOOLS).await;
        let events = fixture.says("a question").await;
        let result = events.only_event("tool_result");
        assert_eq!(result["success"], patient == "NUGWI");
        if patient == "NOGWI" {
            assert_eq!(result["error"], "Invalid patient_id: NOGWI");
            assert_eq!(fixture.model.last_results(), ["Invalid patient_id: NOGWI"]);
        }
        assert_eq!(events.last()["finish_reason"], "stop");
    }
}

#[tokio::test]
async fn only_the_callers_tools_that_are_the_assistants_are_offered() {
    let fixture = Fixture::new(
        ScriptedModel::new([words("Hello.")]),
        hospital(),
        "    tools: { allow: [\"a*\"] }\n",
    )
    .await;
    fixture.says("hello").await;
    let functions = &fixture.model.requests()[0].functions;
    let names: Vec<_> = functions.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["admissions", "appointments"]);
}

#[tokio::test]
async fn calls_that_only_read_run_at_once_and_are_told_in_their_order() {
    let calls: Vec<_> = (0..5)
        .map(|n| {
            call(
                &format!("c{n}"),
                "overview",
                &json!({"patient_id": "NUGWI", "limit": n}).to_string(),
            )
        })
        .collect();
    let model = ScriptedModel::new([says("", &calls), words("Done.")]);
    let fixture = Fixture::new(model, hospital(), "    limits: { parallel: 3 }\n").await;
    let events = fixture.says("compare").await;
    let ids: Vec<_> = events
        .events_of_kind("tool_result")
        .iter()
        .map(|it| it["call_id"].clone())
        .collect();
    assert_eq!(ids, ["c0", "c1", "c2", "c3", "c4"]);
    assert_eq!(fixture.gateway.most_running(), 3);
}

#[tokio::test]
async fn calls_that_may_write_run_alone() {
    let gateway = FakeGateway::new([
        FakeTool::gives("look", "1"),
        FakeTool::gives("book", "2").writes(),
    ]);
    let calls = [
        call("c0", "book", r#"{"a":1}"#),
        call("c1", "book", r#"{"a":2}"#),
        call("c2", "look", "{}"),
    ];
    let model = ScriptedModel::new([says("", &calls), words("Done.")]);
    let fixture = Fixture::new(model, gateway, PLAIN).await;
    let events = fixture.says("book both").await;
    assert_eq!(events.events_of_kind("tool_result").len(), 3);
    assert_eq!(fixture.gateway.most_running(), 1);
    let order: Vec<_> = fixture
        .gateway
        .calls()
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(order, ["book", "book", "look"]);
}

#[tokio::test]
async fn a_model_that_calls_in_text_is_understood_and_its_call_never_shown() {
    for (calls, speaks_text_only) in [("text", false), ("native", false), ("native", true)] {
        let text = "I look.\nTOOL: overview\nPARAMETERS: {\"patient_id\": \"NUGWI\"}";
        let mut model = ScriptedModel::new([words(text), words("All is well.")]);
        model.speaks_text_only = speaks_text_only;
        let fixture = Fixture::new(model, hospital(), &format!("    calls: {calls}\n")).await;
        let events = fixture.says("how is NUGWI?").await;
        assert_eq!(
            events.text().replace('\n', ""),
            "I look.All is well.",
            "{calls}"
        );
        assert_eq!(events.only_event("tool_result")["success"], true);
        let last = fixture.model.requests().pop().unwrap();
        let is_text = calls == "text" || speaks_text_only;
        assert_eq!(last.functions.is_empty(), is_text);
        if is_text {
            let ModelMessage::User(results) = last.messages.last().unwrap() else {
                panic!("{last:?}");
            };
            assert!(
                results.starts_with("\n[Tool Result: overview]\n{"),
                "{results}"
            );
        }
    }
}

#[tokio::test]
async fn what_a_model_says_of_a_result_before_there_is_one_is_neither_told_nor_kept() {
    for calls in ["text", "native"] {
        let call = "I look.\nTOOL: overview\nPARAMETERS: {\"patient_id\": \"NUGWI\"}";
        let model = ScriptedModel::new([
            words(&format!("{call}\n\nTool Result: there is no such patient.")),
            words("All is well."),
        ]);
        let fixture = Fixture::new(model, hospital(), &format!("    calls: {calls}\n")).await;
        let events = fixture.says("how is NUGWI?").await;
        assert_eq!(events.text().replace('\n', ""), "I look.All is well.");
        assert_eq!(events.only_event("tool_result")["success"], true);
        assert!(fixture.model.was_told("I look."));
        assert!(!fixture.model.was_told("no such patient"));
    }
}

#[tokio::test]
async fn a_model_in_text_mode_may_only_say_that_it_uses_a_tool() {
    let gateway = FakeGateway::new([FakeTool::gives("clock", "noon")]);
    let model = ScriptedModel::new([words("I will use the clock tool."), words("Noon.")]);
    let fixture = Fixture::new(model, gateway, "    calls: text\n").await;
    let events = fixture.says("what time is it?").await;
    assert_eq!(events.only_event("tool_result")["data"], "noon");
}

#[tokio::test]
async fn the_next_turn_remembers_and_a_question_is_not_asked_twice() {
    let model = ScriptedModel::new([words("Hello."), words("Again."), words("Thrice.")]);
    let fixture = Fixture::new(model, FakeGateway::default(), PLAIN).await;
    fixture.says("hello").await;
    let more = |message: &str| ChatRequest {
        message: message.to_owned(),
        conversation_id: Some("c".to_owned()),
        ..ChatRequest::default()
    };
    fixture.hears(more("and?")).await;
    let messages = &fixture.model.requests()[1].messages;
    assert_eq!(messages.len(), 4, "{messages:?}");
    assert_eq!(messages[1], ModelMessage::User("hello".to_owned()));
    // Another client has stored the question before.
    fixture.gateway.memory_now(
        "memory/add_message",
        &json!({"conversation_id": "c", "messages": [{"message_id": "x", "role": "user", "content": "q"}]}),
    );
    fixture.hears(more("q")).await;
    let messages = &fixture.model.requests()[2].messages;
    let asked = |it: &&ModelMessage| **it == ModelMessage::User("q".to_owned());
    assert_eq!(messages.iter().filter(asked).count(), 1);
}

#[tokio::test]
async fn what_a_client_says_was_said_is_used_where_it_names_no_conversation() {
    let fixture = Fixture::new(
        ScriptedModel::new([words("Yes.")]),
        FakeGateway::default(),
        PLAIN,
    )
    .await;
    let request = ChatRequest {
        message: "still?".to_owned(),
        history: vec![HistoryMessage {
            speaker: Speaker::Assistant,
            text: "It rains.".to_owned(),
        }],
        ..ChatRequest::default()
    };
    let events = fixture.hears(request).await;
    assert_eq!(fixture.model.requests()[0].messages.len(), 3);
    let made = events.last()["conversation_id"].as_str().unwrap();
    assert_eq!(
        fixture.gateway.messages(made).len(),
        2,
        "the client's word is not kept"
    );
}

#[tokio::test]
async fn a_complete_turn_is_told_again_without_asking_anybody() {
    let model = ScriptedModel::new([
        says(
            "I look. ",
            &[
                call("c1", "overview", r#"{"patient_id":"NUGWI"}"#),
                call("c2", "nothing", "{}"),
            ],
        ),
        words("All is well."),
    ]);
    let fixture = Fixture::new(model, hospital(), PLAIN).await;
    let first = fixture.says("how is NUGWI?").await;
    let again = fixture.says("how is NUGWI?").await;
    assert_eq!(again.text(), first.text());
    assert_eq!(again.last()["message_id"], first.last()["message_id"]);
    assert_eq!(fixture.model.requests().len(), 2);
    assert_eq!(fixture.gateway.calls().len(), 1);
    // A client that resumes after any event receives exactly the rest of the text.
    let mut seen = String::new();
    for event in &first.0 {
        if event["type"] == "token" {
            seen.push_str(event["text"].as_str().unwrap());
        }
        let mut request = request_with_id("how is NUGWI?");
        request.after = event["id"].as_u64();
        let rest = fixture.hears(request).await;
        assert_eq!(format!("{seen}{}", rest.text()), first.text(), "{event}");
    }
}

#[tokio::test]
async fn another_message_under_a_taken_id_is_refused() {
    let model = ScriptedModel::new([words("Hello.")]);
    let fixture = Fixture::new(model, FakeGateway::default(), PLAIN).await;
    fixture.says("hello").await;
    let events = fixture.says("something else").await;
    assert_eq!(events.only_event("error")["kind"], "conflict");
}

#[tokio::test]
async fn a_command_calls_its_tool_and_the_model_or_the_result_answers() {
    const COMMANDS: &str = "    commands:\n      /of: { words: [patient_id], tool: overview, arguments: { patient_id: \"{{ patient_id }}\" } }\n      /raw: { words: [patient_id], tool: overview, arguments: { patient_id: \"{{ patient_id }}\" }, answer: result }\n";
    let fixture = Fixture::new(ScriptedModel::new([words("Fine.")]), hospital(), COMMANDS).await;
    let events = fixture.says("/of NUGWI").await;
    assert_eq!(events.only_event("tool_result")["success"], true);
    assert_eq!(events.text(), "Fine.");
    assert_eq!(fixture.model.last_results(), [RECORDS]);
    let of = |message: &str, id: &str| ChatRequest {
        message_id: Some(id.to_owned()),
        ..request_with_id(message)
    };
    let events = fixture.hears(of("/raw NUGWI", "m2")).await;
    assert_eq!(events.text(), RECORDS);
    let events = fixture.hears(of("/raw", "m3")).await;
    assert_eq!(events.text(), "/raw <patient_id>");
    assert_eq!(fixture.model.requests().len(), 1, "neither asked the model");
}

#[tokio::test]
async fn a_slow_reader_slows_the_turn_and_loses_nothing() {
    use futures::StreamExt;

    let text = "word ".repeat(500);
    let fixture = Fixture::new(
        ScriptedModel::new([words(&text)]),
        FakeGateway::default(),
        PLAIN,
    )
    .await;
    let slow = fixture.stream(request_with_id("much")).then(async |event| {
        tokio::task::yield_now().await;
        event
    });
    assert_eq!(Events::from_stream(slow.boxed()).await.text(), text);
}
