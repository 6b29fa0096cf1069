//! Tests of approvals: a pending call runs exactly as it was shown, once, or not at all.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use super::fixture::{Events, Fixture};
use crate::clients::GatewayFailure;
use crate::request::ApprovalDecision::{Approve, Refuse};
use crate::testing::{FakeGateway, FakeTool, ScriptedModel, answer, call, says, words};

fn gateway() -> FakeGateway {
    let schema = json!({"type": "object", "properties": {"day": {"type": "string"}, "room": {"type": "string", "default": "A"}}});
    FakeGateway::new([
        FakeTool::gives("look", "free"),
        FakeTool::gives("book", "booked").writes().takes(schema),
        FakeTool::gives("wipe", "wiped").writes().asks_first(),
    ])
}

const APPROVED: &str = "    approval: { tools: [book], expires: 15m }\n";

fn book() -> ScriptedModel {
    let calls = [
        call("c1", "look", "{}"),
        call("c2", "book", r#"{"day":"Monday"}"#),
        call("c3", "look", r#"{"n":2}"#),
    ];
    ScriptedModel::new([says("I book. ", &calls), words("Booked.")])
}

async fn request_approval(fixture: &Fixture) -> (Events, String) {
    let events = fixture.says("book Monday").await;
    assert_eq!(events.last()["finish_reason"], "approval_required");
    let asks = events.only_event("approval_required");
    let id = asks["approval_id"].as_str().unwrap().to_owned();
    (events, id)
}

#[tokio::test]
async fn an_approved_call_runs_as_it_was_shown_and_the_turn_goes_on() {
    let fixture = Fixture::new(book(), gateway(), APPROVED).await;
    let (events, id) = request_approval(&fixture).await;
    let asks = events.only_event("approval_required");
    assert_eq!(asks["arguments"], json!({"day": "Monday", "room": "A"}));
    assert!(asks["expires_at"].as_str().unwrap().ends_with('Z'));
    assert_eq!(fixture.gateway.effects(), 0);
    assert!(fixture.gateway.messages("c").is_empty(), "the turn is open");
    // Events that were sent before are not repeated.
    let rest = fixture.decides(&id, Approve).await;
    assert_eq!(rest.kinds()[..2], ["tool_result", "tool_result"]);
    assert_eq!(rest.text(), "Booked.");
    assert!(rest.0[0]["id"].as_u64() > events.last()["id"].as_u64());
    assert_eq!(fixture.gateway.effects(), 1);
    assert!(
        fixture
            .gateway
            .calls()
            .contains(&("book".to_owned(), json!({"day": "Monday", "room": "A"})))
    );
    assert_eq!(fixture.gateway.state("c", "m"), "complete");
    // The decision is stored in the conversation, but no model receives it.
    let said = fixture.gateway.messages("c");
    assert!(
        said.iter()
            .any(|(_, text)| text.contains(r#""approved":true"#)),
        "{said:?}"
    );
    assert!(!fixture.model.was_told("nonce"));
    // The complete turn can be replayed.
    let again = fixture.says("book Monday").await;
    assert_eq!(again.text(), "I book. Booked.");
    assert_eq!(again.events_of_kind("tool_result").len(), 3);
    assert_eq!(fixture.gateway.effects(), 1);
}

#[tokio::test]
async fn a_refused_call_does_not_run_and_the_model_is_told() {
    let fixture = Fixture::new(book(), gateway(), APPROVED).await;
    let (_, id) = request_approval(&fixture).await;
    let rest = fixture.decides(&id, Refuse).await;
    assert_eq!(rest.events_of_kind("tool_result")[0]["success"], false);
    assert_eq!(fixture.gateway.effects(), 0);
    let results = fixture.model.last_results();
    assert!(results[1].contains("The person refused"), "{results:?}");
    assert_eq!(rest.text(), "Booked.");
}

#[tokio::test]
async fn a_decision_is_taken_once() {
    for (first, second) in [(Approve, Approve), (Approve, Refuse), (Refuse, Approve)] {
        let fixture = Fixture::new(book(), gateway(), APPROVED).await;
        let (_, id) = request_approval(&fixture).await;
        fixture.decides(&id, first).await;
        let effects = fixture.gateway.effects();
        let again = fixture.decides(&id, second).await;
        let error = again.only_event("error");
        assert_eq!(error["kind"], "invalid_approval");
        assert_eq!(fixture.gateway.effects(), effects);
    }
}

#[tokio::test]
async fn of_two_decisions_at_once_one_is_taken() {
    let fixture = Fixture::new(book(), gateway(), APPROVED).await;
    fixture.model.then(words("Booked too."));
    let (_, id) = request_approval(&fixture).await;
    let (one, other) = tokio::join!(fixture.decides(&id, Approve), fixture.decides(&id, Refuse));
    let refused = one.events_of_kind("error").len() + other.events_of_kind("error").len();
    assert_eq!(refused, 1, "{one:?}\n{other:?}");
}

#[tokio::test]
async fn somebody_elses_forged_and_late_decisions_are_refused() {
    let fixture = Fixture::new(book(), gateway(), APPROVED).await;
    let (_, id) = request_approval(&fixture).await;
    for events in [
        fixture.decides_as("billing.bo", &id, Approve).await,
        fixture.decides("forged", Approve).await,
    ] {
        assert_eq!(events.only_event("error")["kind"], "invalid_approval");
    }
    fixture
        .clock
        .advance(std::time::Duration::from_secs(15 * 60));
    let events = fixture.decides(&id, Approve).await;
    let message = events.only_event("error")["message"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(message.contains("expired"), "{message}");
    assert_eq!(fixture.gateway.effects(), 0);
    // Sending the message again asks for a new approval.
    let again = fixture.says("book Monday").await;
    assert_eq!(again.events_of_kind("approval_required").len(), 1);
    assert_eq!(fixture.model.requests().len(), 1);
}

#[tokio::test]
async fn a_call_that_would_now_run_otherwise_than_it_was_shown_does_not_run() {
    let fixture = Fixture::new(book(), gateway(), APPROVED).await;
    let (_, id) = request_approval(&fixture).await;
    let changed = json!({"type": "object", "properties": {"day": {"type": "string"}, "room": {"type": "string", "default": "B"}}});
    fixture.gateway.set_tools([
        FakeTool::gives("look", "free"),
        FakeTool::gives("book", "booked").writes().takes(changed),
    ]);
    let events = fixture.decides(&id, Approve).await;
    assert_eq!(fixture.gateway.effects(), 0);
    assert_eq!(events.only_event("error")["kind"], "invalid_approval");
    assert_eq!(events.text(), "Booked.", "and the turn goes on");
}

#[tokio::test]
async fn a_tool_may_ask_for_approval_itself_and_several_calls_ask_one_after_the_other() {
    let calls = [
        call("c1", "wipe", r#"{"n":1}"#),
        call("c2", "wipe", r#"{"n":2}"#),
    ];
    let model = ScriptedModel::new([says("", &calls), words("Done.")]);
    let fixture = Fixture::new(model, gateway(), "").await;
    let (_, first) = request_approval(&fixture).await;
    let events = fixture.decides(&first, Approve).await;
    assert_eq!(events.last()["finish_reason"], "approval_required");
    assert_eq!(fixture.gateway.effects(), 1);
    let asks = events.only_event("approval_required");
    assert_eq!(asks["call_id"], "c2");
    let second = asks["approval_id"].as_str().unwrap().to_owned();
    let events = fixture.decides(&second, Refuse).await;
    assert_eq!(events.text(), "Done.");
    assert_eq!(fixture.gateway.effects(), 1);
}

#[tokio::test]
async fn an_approval_is_for_one_call_whatever_ids_the_model_gives() {
    let calls = [
        call("call_0_1", "wipe", r#"{"n":1}"#),
        call("", "wipe", r#"{"n":1}"#),
        call("call_0_1", "look", "{}"),
        call("a\0", "look", "{}"),
        call("a\u{fffd}", "look", "{}"),
    ];
    let model = ScriptedModel::new([says("", &calls), words("Done.")]);
    let fixture = Fixture::new(model, gateway(), "").await;
    let (events, first) = request_approval(&fixture).await;
    let ids = events.events_of_kind("tool_call");
    let ids: std::collections::BTreeSet<_> = ids.iter().map(|it| it["call_id"].as_str()).collect();
    assert_eq!(ids.len(), calls.len(), "{ids:?}");
    let events = fixture.decides(&first, Approve).await;
    assert_eq!(events.last()["finish_reason"], "approval_required");
    assert_eq!(fixture.gateway.effects(), 1);
}

#[tokio::test]
async fn a_call_that_somebody_has_to_approve_at_the_gateway_holds_the_turn_until_it_is_approved() {
    let approved = Arc::new(AtomicBool::new(false));
    let is_approved = Arc::clone(&approved);
    let pay = move |_: &_| {
        if is_approved.load(Ordering::SeqCst) {
            return Ok(answer("paid"));
        }
        Err(GatewayFailure::NeedsApproval {
            request_id: "a1".to_owned(),
            expires_at: "2027-01-15T08:15:00Z".to_owned(),
            message: "It needs an approval.".to_owned(),
        })
    };
    let gateway = FakeGateway::new([
        FakeTool::gives("look", "free"),
        FakeTool::runs("pay", pay).writes(),
    ]);
    let calls = [
        call("c1", "look", "{}"),
        call("c2", "pay", "{}"),
        call("c3", "look", r#"{"n":2}"#),
    ];
    let model = ScriptedModel::new([says("I pay. ", &calls), words("Paid.")]);
    let fixture = Fixture::new(model, gateway, "").await;
    let events = fixture.says("pay").await;
    let pending = events.only_event("approval_pending");
    assert_eq!(pending["request_id"], "a1");
    assert_eq!(
        (&pending["call_id"], &pending["tool_name"]),
        (&json!("c2"), &json!("pay"))
    );
    assert_eq!(pending["message"], "It needs an approval.");
    assert_eq!(events.last()["finish_reason"], "approval_required");
    assert_eq!(
        events.events_of_kind("tool_result").len(),
        1,
        "what waits holds back those behind it"
    );
    assert_eq!(
        events.text(),
        "I pay. ",
        "the model says nothing of a result that there is not"
    );
    assert_eq!(fixture.gateway.effects(), 0);
    assert!(fixture.gateway.messages("c").is_empty(), "the turn is open");

    approved.store(true, Ordering::SeqCst);
    let rest = fixture.says("pay").await;
    assert_eq!(rest.text(), "I pay. Paid.");
    assert_eq!(rest.events_of_kind("tool_result").len(), 3);
    assert_eq!(fixture.gateway.effects(), 1);
}
