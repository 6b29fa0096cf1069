//! Tests of errors: the stream ends regularly, and the conversation stays usable.

use std::time::Duration;

use futures::StreamExt;
use serde_json::json;

use super::fixture::{Fixture, PLAIN, request_with_id};
use crate::clients::GatewayFailure;
use crate::model::{FinishReason, ModelError, ModelEvent, ModelMessage};
use crate::request::ChatRequest;
use crate::testing::{FakeGateway, FakeTool, ScriptedModel, call, says, words};

fn clock() -> FakeGateway {
    FakeGateway::new([
        FakeTool::gives("clock", "noon").takes(json!({
            "type": "object",
            "properties": {"zone": {"type": "string"}},
            "required": ["zone"],
            "additionalProperties": false
        })),
        FakeTool::runs("broken", |_| {
            Err(GatewayFailure::Refused {
                code: -32603,
                reason: None,
                message: "The tool did not answer within 30 s.".to_owned(),
            })
        }),
        FakeTool::runs("unplugged", |_| Err(GatewayFailure::Unreachable)),
        FakeTool::runs("late", |_| {
            Err(GatewayFailure::Unavailable {
                message: "Timeout after 30s".to_owned(),
            })
        }),
    ])
}

#[tokio::test]
async fn every_class_of_error_goes_back_to_the_model_and_the_turn_goes_on() {
    let zone = r#"{"zone":"UTC"}"#;
    for (name, arguments, error) in [
        (
            "nothing",
            "{}",
            "Tool 'nothing' not available for role 'Doctor'",
        ),
        ("", "{}", "Tool '' not available for role 'Doctor'"),
        ("clock", r#"{"zone": "#, "send a single JSON object"),
        ("clock", "{}", "`zone` is required"),
        ("clock", r#"{"zone":"UTC","x":1}"#, "x"),
        ("broken", zone, "did not answer within 30 s"),
        ("late", zone, "Timeout after 30s"),
        (
            "unplugged",
            zone,
            "Tool execution failed: the gateway cannot be reached",
        ),
    ] {
        let model = ScriptedModel::new([says("", &[call("c1", name, arguments)]), words("Sorry.")]);
        let fixture = Fixture::new(model, clock(), PLAIN).await;
        let events = fixture.says("when?").await;
        let result = events.only_event("tool_result");
        assert_eq!(result["success"], false);
        assert_eq!(result["data"], json!(null));
        let told = result["error"].as_str().unwrap();
        assert!(told.contains(error), "{told}");
        assert_eq!(fixture.model.last_results(), [told]);
        assert_eq!(events.text(), "Sorry.");
        assert_eq!(events.last()["finish_reason"], "stop");
        let is_denied = told.contains("not available");
        assert_eq!(
            events.events_of_kind("error").len(),
            usize::from(is_denied),
            "{events:?}"
        );
        assert_eq!(
            fixture.gateway.calls().is_empty(),
            !matches!(name, "broken" | "unplugged" | "late")
        );
        // In the next turn, the model is told what is still known.
        fixture.model.then(words("Yes."));
        let next = ChatRequest {
            message_id: None,
            ..request_with_id("really?")
        };
        assert_eq!(fixture.hears(next).await.text(), "Yes.");
        assert_eq!(fixture.model.last_results().len(), 1);
    }
}

#[tokio::test]
async fn a_stream_that_is_cut_ends_in_an_error_and_the_same_message_goes_on() {
    let cut = || {
        vec![
            Ok(ModelEvent::Text("Well, ".to_owned())),
            Err(ModelError::Cut),
        ]
    };
    let endless = || {
        let call = call("c1", "clock", r#"{"zone":"UTC"}"#);
        vec![
            Ok(ModelEvent::Text("I ".to_owned())),
            Ok(ModelEvent::Call(call)),
        ]
    };
    for answer in [
        cut(),
        endless(),
        vec![Err(ModelError::Busy { retry_after: None })],
    ] {
        let fixture = Fixture::new(ScriptedModel::new([answer]), clock(), PLAIN).await;
        let events = fixture.says("when?").await;
        assert_eq!(events.only_event("error")["kind"], "model_failed");
        assert_eq!(events.last()["finish_reason"], "error");
        assert!(
            fixture.gateway.calls().is_empty(),
            "half an answer runs nothing"
        );
        assert!(
            fixture.gateway.messages("c").is_empty(),
            "and is not remembered"
        );
        fixture.model.then(words("At noon."));
        let mut again = request_with_id("when?");
        again.after = events.last()["id"].as_u64();
        let events = fixture.hears(again).await;
        // The part of the interrupted answer that the client received is void.
        assert_eq!(events.text(), "At noon.");
        assert_eq!(fixture.gateway.messages("c").len(), 2);
    }
}

#[tokio::test]
async fn an_answer_without_words_is_an_error_that_can_be_tried_again() {
    for answer in [
        words("  \n"),
        vec![Ok(ModelEvent::Finished(FinishReason::Stop))],
    ] {
        let fixture = Fixture::new(ScriptedModel::new([answer]), clock(), PLAIN).await;
        let events = fixture.says("when?").await;
        assert_eq!(events.only_event("error")["kind"], "empty_answer");
        assert_eq!(events.text(), "");
        fixture.model.then(words("At noon."));
        assert_eq!(fixture.says("when?").await.text(), "At noon.");
    }
}

#[tokio::test]
async fn an_answer_that_came_to_its_limit_says_so_then_and_later() {
    let answer = vec![
        Ok(ModelEvent::Text("It is no".to_owned())),
        Ok(ModelEvent::Finished(FinishReason::Length)),
    ];
    let fixture = Fixture::new(ScriptedModel::new([answer]), clock(), PLAIN).await;
    assert_eq!(
        fixture.says("when?").await.last()["finish_reason"],
        "length"
    );
    assert_eq!(
        fixture.says("when?").await.last()["finish_reason"],
        "length"
    );
}

#[tokio::test]
async fn without_memory_nothing_is_asked_and_nothing_runs() {
    let fixture = Fixture::new(ScriptedModel::new([words("x")]), clock(), PLAIN).await;
    fixture.gateway.lose_memory();
    let events = fixture.says("when?").await;
    assert_eq!(events.only_event("error")["kind"], "gateway_failed");
    assert!(fixture.model.requests().is_empty());
    // The part of the turn that the client received stays valid.
    let mut again = request_with_id("when?");
    again.after = Some(19_000_000);
    let events = fixture.hears(again).await;
    assert!(events.0.iter().all(|event| event["id"] == 19_000_000));
}

#[tokio::test]
async fn what_cannot_be_a_message_is_refused_with_its_remedy() {
    let fixture = Fixture::new(ScriptedModel::default(), clock(), PLAIN).await;
    let request = |change: fn(&mut ChatRequest)| {
        let mut request = request_with_id("hello");
        change(&mut request);
        request
    };
    for (request, kind, message) in [
        (
            request(|it| it.message = "  ".to_owned()),
            "invalid_request",
            "`message` is empty",
        ),
        (
            request(|it| it.message = "x".repeat(300_000)),
            "invalid_request",
            "256 KiB",
        ),
        (
            request(|it| it.message_id = Some("x".repeat(97))),
            "invalid_request",
            "`message_id`",
        ),
        (
            request(|it| it.conversation_id = Some("a\nb".to_owned())),
            "invalid_request",
            "`conversation_id`",
        ),
        (
            request(|it| it.model = Some("nobody".to_owned())),
            "unknown_model",
            "list of models",
        ),
    ] {
        let events = fixture.hears(request).await;
        let error = events.only_event("error");
        assert_eq!(error["kind"], kind);
        assert!(
            error["message"].as_str().unwrap().contains(message),
            "{error}"
        );
    }
    assert!(fixture.gateway.remembers_nothing());
}

#[tokio::test]
async fn hanging_up_cancels_the_tool_and_gives_up_a_turn_that_nobody_can_name() {
    for (message_id, state) in [(None, "abandoned"), (Some("m"), "open")] {
        let gateway = FakeGateway::new([FakeTool::gives("slow", "late").hangs()]);
        let model = ScriptedModel::new([says("", &[call("c1", "slow", "{}")])]);
        let fixture = Fixture::new(model, gateway, PLAIN).await;
        let mut request = request_with_id("go");
        request.message_id = message_id.map(str::to_owned);
        let mut stream = fixture.stream(request);
        let first = stream.next().await.unwrap();
        assert_eq!(serde_json::to_value(first).unwrap()["type"], "tool_call");
        // Let the call start.
        while fixture.gateway.most_running() == 0 {
            let _ = tokio::time::timeout(Duration::from_millis(20), stream.next()).await;
        }
        drop(stream);
        assert_eq!(fixture.gateway.cancellations(), 1);
        tokio::time::timeout(Duration::from_mins(1), async {
            while fixture.gateway.only_turn("c").1 != state {
                tokio::task::yield_now().await;
            }
        })
        .await
        .unwrap();
        assert!(
            fixture.gateway.messages("c").is_empty(),
            "half a turn is never shown"
        );
    }
}

#[tokio::test]
async fn an_assistant_without_a_model_is_listed_and_says_what_to_set() {
    let fixture = Fixture::new(
        ScriptedModel::default(),
        clock(),
        "  - name: later\n    provider: scripted\n    model: \"${WARDGATE_TEST_NO_SUCH_VARIABLE}\"\n    prompts: { en: x }\n",
    )
    .await;
    let caller = crate::testing::caller("a", &[]);
    let models = fixture.agent.models(&caller);
    assert_eq!(models[0].missing, Vec::<String>::new());
    assert_eq!(models[1].missing, ["WARDGATE_TEST_NO_SUCH_VARIABLE"]);
    let mut request = request_with_id("hello");
    request.model = Some("later".to_owned());
    let events = fixture.hears(request).await;
    let error = events.only_event("error");
    assert_eq!(error["kind"], "model_not_configured");
    assert_eq!(
        error["message"],
        "assistant `later` has no model: set WARDGATE_TEST_NO_SUCH_VARIABLE"
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_that_still_runs_for_an_interrupted_turn_is_waited_for() {
    let asked = std::sync::atomic::AtomicUsize::new(0);
    let tool = FakeTool::runs("slow", move |_| {
        let is_running = asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst) < 3;
        Ok(crate::clients::ToolAnswer {
            text: if is_running {
                "Tool execution failed: the call with its idempotency key is still running; try again later"
            } else {
                "done"
            }
            .to_owned(),
            is_error: is_running,
        })
    });
    let tool = tool.writes();
    let model = ScriptedModel::new([says("", &[call("c1", "slow", "{}")]), words("Done.")]);
    let fixture = Fixture::new(model, FakeGateway::new([tool]), PLAIN).await;
    let events = fixture.says("go").await;
    assert_eq!(events.only_event("tool_result")["data"], "done");
}

#[tokio::test]
async fn whether_a_tool_with_effects_ran_is_not_left_to_the_model_to_guess() {
    let losses = [
        GatewayFailure::Unreachable,
        GatewayFailure::Late,
        GatewayFailure::Unavailable {
            message: "It is not known whether the tool ran.".to_owned(),
        },
    ];
    for loss in losses {
        let asked = std::sync::atomic::AtomicUsize::new(0);
        let tool = FakeTool::runs("book", move |_| {
            match asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
                0 => Err(loss.clone()),
                _ => Ok(crate::clients::ToolAnswer {
                    text: "booked".to_owned(),
                    is_error: false,
                }),
            }
        });
        let model = ScriptedModel::new([says("", &[call("c1", "book", "{}")]), words("Done.")]);
        let fixture = Fixture::new(model, FakeGateway::new([tool.writes()]), PLAIN).await;
        let events = fixture.hears(request_with_id("book")).await;
        assert_eq!(events.only_event("error")["kind"], "gateway_failed");
        assert!(
            events.events_of_kind("tool_result").is_empty(),
            "{events:?}"
        );
        assert_eq!(events.last()["finish_reason"], "error");
        // The same message with the same id settles the call, and the model continues from there.
        let events = fixture.hears(request_with_id("book")).await;
        assert_eq!(events.only_event("tool_result")["data"], "booked");
        assert_eq!(events.last()["finish_reason"], "stop");
        assert_eq!(fixture.gateway.effects(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_only_reads_cannot_have_itself_called_again() {
    let tool = FakeTool::runs("sly", |_| {
        Ok(crate::clients::ToolAnswer {
            text: "the call with its idempotency key is still running".to_owned(),
            is_error: true,
        })
    });
    let model = ScriptedModel::new([says("", &[call("c1", "sly", "{}")]), words("Odd.")]);
    let fixture = Fixture::new(model, FakeGateway::new([tool]), PLAIN).await;
    assert_eq!(fixture.says("go").await.text(), "Odd.");
    assert_eq!(fixture.gateway.calls().len(), 1);
}

#[tokio::test]
async fn a_result_that_memory_cannot_take_now_is_told_to_nobody() {
    let calls = [call("c1", "book", "{}")];
    let model = ScriptedModel::new([says("", &calls), words("Once more?")]);
    let fixture = Fixture::new(model, FakeGateway::default(), PLAIN).await;
    let gateway = std::sync::Arc::downgrade(&fixture.gateway);
    let book = FakeTool::runs("book", move |_| {
        gateway.upgrade().unwrap().lose_memory();
        Ok(crate::clients::ToolAnswer {
            text: "booked".to_owned(),
            is_error: false,
        })
    });
    fixture.gateway.set_tools([book.writes()]);
    let events = fixture.says("book").await;
    assert_eq!(events.only_event("error")["kind"], "gateway_failed");
    assert!(events.events_of_kind("tool_result").is_empty());
    assert_eq!(fixture.model.requests().len(), 1);
}

#[tokio::test]
async fn only_a_result_that_the_caller_may_no_longer_see_is_withheld_anything_else_ends_the_stream()
{
    for (reason, is_withheld) in [
        ("denied", true),
        ("unknown_tool", true),
        ("conflict", false),
        ("invalid_params", false),
    ] {
        let calls = [call("c1", "look", "{}")];
        let model = ScriptedModel::new([says("", &calls), words("Done.")]);
        let gateway = FakeGateway::new([FakeTool::gives("look", "secret")]);
        gateway.refuse_results(Some(reason));
        let fixture = Fixture::new(model, gateway, PLAIN).await;
        let events = fixture.says("look").await;
        if is_withheld {
            let told = events.only_event("tool_result")["error"].as_str().unwrap();
            assert!(told.starts_with("[withheld"), "{told}");
            assert_eq!(events.text(), "Done.");
            continue;
        }
        assert_eq!(events.only_event("error")["kind"], "conflict", "{reason}");
        assert!(
            events.events_of_kind("tool_result").is_empty(),
            "{events:?}"
        );
        assert_eq!(fixture.model.requests().len(), 1);
        // The turn is still open.
        fixture.gateway.refuse_results(None);
        let events = fixture.says("look").await;
        assert_eq!(events.only_event("tool_result")["data"], "secret");
        assert_eq!(events.text(), "Done.");
    }
}

/// Stores a turn in memory as it is read by a user who may no longer see the result of its tool.
fn withheld_turn(fixture: &Fixture, state: &str) {
    let gateway = &fixture.gateway;
    gateway.memory_now("memory/get_or_create", &json!({"conversation_id": "c"}));
    let turn = json!({
        "conversation_id": "c",
        "turn": {"id": "m", "state": state},
        "messages": [
            {"message_id": "m", "role": "user", "source": "person", "content": "when?"},
            {"message_id": "m/0", "role": "assistant", "source": "model", "author": "helper", "content": "I look.",
                "tool_calls": [{"id": "c1", "name": "clock", "arguments": {}}]},
            {"message_id": "m/0.0", "role": "tool", "source": "tool", "content": "", "withheld": true,
                "tool": {"call_id": "c1", "name": "clock", "is_error": false}},
            {"message_id": "m/1", "role": "assistant", "source": "model", "author": "helper", "content": "", "withheld": true},
        ],
    });
    gateway.memory_now("memory/add_message", &turn);
}

#[tokio::test]
async fn a_turn_told_again_says_what_is_withheld_and_an_open_one_does_not_go_on_from_it() {
    let fixture = Fixture::new(ScriptedModel::default(), clock(), PLAIN).await;
    withheld_turn(&fixture, "complete");
    let events = fixture.says("when?").await;
    assert!(
        events.text().starts_with("I look.\n\n[withheld"),
        "{events:?}"
    );
    assert_eq!(events.only_event("tool_result")["success"], false);

    let fixture = Fixture::new(ScriptedModel::default(), clock(), PLAIN).await;
    withheld_turn(&fixture, "open");
    let events = fixture.says("when?").await;
    assert_eq!(events.only_event("error")["kind"], "conflict");
    assert!(fixture.model.requests().is_empty());
}

#[tokio::test]
async fn a_turn_goes_on_with_its_own_assistant_only() {
    let other = "  - name: other\n    provider: scripted\n    model: m\n    prompts: { en: x }\n";
    let model = ScriptedModel::new([words("Noon."), words("Midnight.")]);
    let fixture = Fixture::new(model, clock(), other).await;
    fixture.says("when?").await;
    let mut request = request_with_id("when?");
    request.model = Some("other".to_owned());
    let events = fixture.hears(request).await;
    assert_eq!(events.only_event("error")["kind"], "conflict");
    assert_eq!(fixture.says("when?").await.text(), "Noon.");
}

#[tokio::test]
async fn a_call_in_the_text_that_cannot_be_read_is_told_to_the_model_and_not_to_the_person() {
    let unavailable = "Tool 'null' not available for role 'Doctor'";
    let unreadable = "could not be read";
    for (written, error) in [
        ("TOOL: clock\nPARAMETERS: {\"a\": }", unreadable),
        ("TOOL: clock\nPARAMETERS: {\"zone\": \"UT", unreadable),
        ("TOOL: clock\nPARAMETERS: [1]", unreadable),
        ("TOOL: null\nPARAMETERS: {\"zone\": \"UTC\"}", unavailable),
        ("TOOL:\nPARAMETERS: {\"zone\": \"UTC\"}", unavailable),
        (
            "<tool_call>{\"name\": \"clock\", \"arguments\": {\"a\": }}</tool_call>",
            unreadable,
        ),
        (
            "<tool_call>{\"name\": \"clock\", \"arguments\": [1]}</tool_call>",
            unreadable,
        ),
        (
            "<tool_call>{\"name\": null, \"arguments\": {}}</tool_call>",
            unavailable,
        ),
        (
            "{\"name\": null, \"arguments\": {\"zone\": \"UTC\"}}",
            unavailable,
        ),
        ("[{\"name\": \"\", \"parameters\": {}}]", unavailable),
        ("{\"tool\": null, \"tool_input\": {}}", unavailable),
        (
            "[TOOL_CALLS][{\"name\": \"clock\", \"arguments\": {]",
            unreadable,
        ),
    ] {
        let answer = words(&format!("I look.\n{written}\nIt is noon."));
        let model = ScriptedModel::new([answer, words("Sorry.")]);
        let fixture = Fixture::new(model, clock(), "    calls: text\n").await;
        let events = fixture.says("when?").await;
        let result = events.only_event("tool_result");
        assert_eq!(result["success"], false, "{written}");
        let told = result["error"].as_str().unwrap();
        assert!(told.contains(error), "{written}: {told}");
        assert_eq!(
            events.text().split_whitespace().collect::<Vec<_>>(),
            ["I", "look.", "Sorry."]
        );
        assert_eq!(events.last()["finish_reason"], "stop");
        assert!(fixture.gateway.calls().is_empty(), "{written}");
        let shown = &fixture.model.requests()[1].messages;
        let is_told = |message: &ModelMessage| match message {
            ModelMessage::User(text) => text.contains(told),
            _ => false,
        };
        assert!(shown.iter().any(is_told), "{written}: {shown:?}");
        // The call is also refused when the turn is replayed.
        let again = fixture.says("when?").await;
        assert_eq!(again.only_event("tool_result")["success"], false);
        assert!(fixture.gateway.calls().is_empty());
    }
}

#[tokio::test]
async fn a_call_without_a_name_in_the_middle_of_words_goes_back_to_the_model() {
    let written = "I call {\"name\": null, \"arguments\": {\"zone\": \"UTC\"}} now.";
    let model = ScriptedModel::new([words(written), words("Sorry.")]);
    let fixture = Fixture::new(model, clock(), "    calls: text\n").await;
    let events = fixture.says("when?").await;
    assert_eq!(events.only_event("tool_result")["success"], false);
    let shown: Vec<_> = events
        .text()
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    assert_eq!(shown, ["I", "call", "Sorry."]);
}

#[tokio::test]
async fn words_that_only_speak_of_calls_are_an_answer() {
    for answer in [
        "Write `{\"name\": null, \"arguments\": {}}`, not more.",
        "A tool: {\"name\": null, \"parameters\": {\"type\": \"object\", \"properties\": {}}}",
        "Write `TOOL: clock` and then PARAMETERS: {}.",
        "The tag <tool_call> begins a call.",
        "```\nTOOL: clock\nPARAMETERS: {\"a\": }\n```",
        "{\"name\": null}",
    ] {
        let model = ScriptedModel::new([words(answer)]);
        let fixture = Fixture::new(model, clock(), "    calls: text\n").await;
        let events = fixture.says("how?").await;
        assert_eq!(events.text(), answer);
        assert!(events.events_of_kind("tool_result").is_empty());
    }
}

#[tokio::test]
async fn what_is_said_before_a_call_and_after_it_are_paragraphs_of_their_own() {
    let zone = r#"{"zone":"UTC"}"#;
    let model = ScriptedModel::new([
        says("I look now.", &[call("c1", "clock", zone)]),
        says("", &[call("c2", "clock", r#"{"zone":"CET"}"#)]),
        words("FINAL"),
    ]);
    let fixture = Fixture::new(model, clock(), PLAIN).await;
    let events = fixture.says("when?").await;
    assert_eq!(events.text(), "I look now.\n\nFINAL");
    // Replay the turn completely, and from the middle.
    let again = fixture.says("when?").await;
    assert_eq!(again.text(), events.text());
    let mut rest = request_with_id("when?");
    rest.after = events.events_of_kind("tool_result")[0]["id"].as_u64();
    assert_eq!(fixture.hears(rest).await.text(), "\n\nFINAL");
}
