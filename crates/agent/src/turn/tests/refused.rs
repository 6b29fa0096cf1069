//! Tests of calls that the agent refuses: the gateway records them with a reason from a closed set.

use serde_json::json;
use wardgate_domain::AgentRefusal;

use super::fixture::{Fixture, PLAIN};
use crate::request::ApprovalDecision::{Approve, Refuse};
use crate::testing::{FakeGateway, FakeTool, ScriptedModel, call, says, words};

fn clock() -> FakeGateway {
    let schema = json!({
        "type": "object",
        "properties": {"zone": {"type": "string"}},
        "required": ["zone"]
    });
    FakeGateway::new([
        FakeTool::gives("clock", "TOOL: clock\nPARAMETERS: {\"zone\": \"CET\"}").takes(schema),
        FakeTool::gives("wipe", "wiped").writes().asks_first(),
    ])
}

const TEXT: &str = "    calls: text\n";

#[tokio::test]
async fn each_call_that_the_agent_refuses_is_put_on_record_with_its_reason() {
    for (name, arguments, refusal) in [
        ("nothing", "{}", AgentRefusal::NotAvailable),
        ("", "{}", AgentRefusal::NotAvailable),
        ("clock", "{}", AgentRefusal::Arguments),
        ("clock", "{\"zone\": ", AgentRefusal::Arguments),
    ] {
        let model = ScriptedModel::new([says("", &[call("c1", name, arguments)]), words("Sorry.")]);
        let fixture = Fixture::new(model, clock(), PLAIN).await;
        assert_eq!(fixture.says("when?").await.text(), "Sorry.");
        assert_eq!(fixture.gateway.refusals(), [(name.to_owned(), refusal)]);
        assert!(fixture.gateway.calls().is_empty());
        // A complete turn that is replayed neither repeats nor refuses a call.
        fixture.says("when?").await;
        assert_eq!(fixture.gateway.refusals().len(), 1);
    }
}

#[tokio::test]
async fn a_call_that_was_made_already_is_put_on_record_as_repeated() {
    let zone = r#"{"zone":"UTC"}"#;
    let again = |id: &str| says("", &[call(id, "clock", zone)]);
    let mut answers: Vec<_> = (0..8).map(|round| again(&format!("c{round}"))).collect();
    answers.push(words("It is noon."));
    let fixture = Fixture::new(ScriptedModel::new(answers), clock(), PLAIN).await;
    fixture.says("when?").await;
    let refused = fixture.gateway.refusals();
    let repeated = ("clock".to_owned(), AgentRefusal::Repeated);
    assert!(refused.contains(&repeated), "{refused:?}");
    assert!(refused.iter().all(|it| *it == repeated), "{refused:?}");
}

#[tokio::test]
async fn calls_in_the_text_that_are_refused_are_put_on_record_too() {
    let unreadable = "TOOL: clock\nPARAMETERS: {\"a\": }";
    let model = ScriptedModel::new([words(unreadable), words("Sorry.")]);
    let fixture = Fixture::new(model, clock(), TEXT).await;
    fixture.says("when?").await;
    let refused = fixture.gateway.refusals();
    assert_eq!(refused, [("clock".to_owned(), AgentRefusal::Unreadable)]);

    let model = ScriptedModel::new([
        words("TOOL: clock\nPARAMETERS: {\"zone\": \"UTC\"}"),
        words("TOOL: clock\nPARAMETERS: {\"zone\": \"CET\"}"),
        words("I will not."),
    ]);
    let fixture = Fixture::new(model, clock(), TEXT).await;
    fixture.says("when?").await;
    let refused = fixture.gateway.refusals();
    assert_eq!(refused, [("clock".to_owned(), AgentRefusal::InData)]);
}

#[tokio::test]
async fn a_call_that_the_person_declines_is_put_on_record() {
    let model = ScriptedModel::new([says("", &[call("c1", "wipe", "{}")]), words("Well.")]);
    let fixture = Fixture::new(model, clock(), PLAIN).await;
    let events = fixture.says("wipe it").await;
    assert!(fixture.gateway.refusals().is_empty());
    let id = events.only_event("approval_required")["approval_id"].clone();
    fixture.decides(id.as_str().unwrap(), Refuse).await;
    let refused = fixture.gateway.refusals();
    assert_eq!(refused, [("wipe".to_owned(), AgentRefusal::Declined)]);
}

#[tokio::test]
async fn a_refusal_is_on_record_once_however_often_its_round_is_judged_again() {
    let calls = [
        call("c1", "nothing", "{}"),
        call("c2", "nothing", "{}"),
        call("c3", "wipe", "{}"),
    ];
    let model = ScriptedModel::new([says("", &calls), words("Done.")]);
    let fixture = Fixture::new(model, clock(), PLAIN).await;
    fixture.says("wipe it").await;
    let events = fixture.says("wipe it").await;
    let id = events.only_event("approval_required")["approval_id"].clone();
    let rest = fixture.decides(id.as_str().unwrap(), Approve).await;
    assert_eq!(rest.text(), "Done.");
    let refused = ("nothing".to_owned(), AgentRefusal::NotAvailable);
    assert_eq!(fixture.gateway.refusals(), [refused.clone(), refused]);
}

#[tokio::test]
async fn a_refused_call_that_cannot_be_recorded_does_not_run_either_and_the_turn_goes_on() {
    let model = ScriptedModel::new([says("", &[call("c1", "nothing", "{}")]), words("Sorry.")]);
    let fixture = Fixture::new(model, clock(), PLAIN).await;
    fixture.gateway.record_nothing();
    let events = fixture.says("when?").await;
    assert_eq!(events.only_event("error")["kind"], "tool_not_available");
    assert_eq!(events.text(), "Sorry.");
    assert!(fixture.gateway.calls().is_empty());
}
