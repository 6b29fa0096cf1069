//! Tests of a turn that is killed at any step and resumed: no effect occurs twice, and every stream is well-formed.

use futures::StreamExt;

use super::fixture::{Events, Fixture, PLAIN, request_with_id};
use crate::testing::{FakeGateway, FakeTool, ScriptedModel, call, says, words};

fn gateway() -> FakeGateway {
    FakeGateway::new([
        FakeTool::gives("look", "free"),
        FakeTool::gives("book", "booked").writes(),
    ])
}

/// Creates a model that answers in three rounds, two of which have a tool with effects.
fn model() -> ScriptedModel {
    ScriptedModel::new(answers())
}

fn answers() -> Vec<Vec<Result<crate::model::ModelEvent, crate::model::ModelError>>> {
    vec![
        says(
            "First. ",
            &[call("c1", "look", "{}"), call("c2", "book", r#"{"n":1}"#)],
        ),
        says("Then. ", &[call("c3", "book", r#"{"n":2}"#)]),
        words("All is booked."),
    ]
}

/// Returns the number of steps and the events of an undisturbed turn.
async fn run_undisturbed_turn() -> (usize, Events) {
    let fixture = Fixture::new(model(), gateway(), PLAIN).await;
    let events = fixture.says("book").await;
    (fixture.gateway.steps(), events)
}

#[tokio::test]
async fn a_turn_that_dies_at_any_step_goes_on_with_no_effect_twice() {
    let (steps, whole) = run_undisturbed_turn().await;
    assert!(steps > 20, "{steps}");
    for dies_at in 1..=steps {
        let fixture = Fixture::new(model(), gateway(), PLAIN).await;
        fixture.gateway.die_at(dies_at);
        let mut stream = fixture.stream(request_with_id("book"));
        let mut seen = Vec::new();
        loop {
            tokio::select! {
                biased;
                event = stream.next() => match event {
                    Some(event) => seen.push(serde_json::to_value(event).unwrap()),
                    None => break,
                },
                () = fixture.gateway.died.notified() => break,
            }
        }
        drop(stream);
        assert!(
            fixture.gateway.messages("c").is_empty()
                || fixture.gateway.state("c", "m") == "complete",
            "half a turn shows at step {dies_at}"
        );
        fixture.gateway.die_at(0);
        // The model is asked only for answers that the journal lacks.
        let asked = fixture.model.requests().len();
        let kept = fixture.gateway.rounds_kept("c", "m");
        assert!(
            kept <= asked && asked <= kept + 1,
            "step {dies_at}: {asked} {kept}"
        );
        fixture.model.rewind(answers().split_off(kept));
        let mut again = request_with_id("book");
        again.after = seen.last().and_then(|event| event["id"].as_u64());
        let rest = fixture.hears(again).await;
        assert_eq!(fixture.gateway.effects(), 2, "step {dies_at}");
        let booked = fixture.gateway.calls();
        let booked = booked.iter().filter(|(name, _)| name == "book").count();
        assert_eq!(booked, 2, "step {dies_at}");
        assert_eq!(rest.last()["finish_reason"], "stop", "step {dies_at}");
        assert_eq!(fixture.gateway.state("c", "m"), "complete");
        // The events before the interruption and the remaining events form the complete text.
        let from = rest.0[0]["id"].as_u64().unwrap();
        let told: String = seen
            .iter()
            .filter(|event| event["type"] == "token" && event["id"].as_u64().unwrap() < from)
            .filter_map(|event| event["text"].as_str())
            .collect();
        assert_eq!(
            format!("{told}{}", rest.text()),
            whole.text(),
            "step {dies_at}"
        );
        let said = fixture.gateway.messages("c");
        assert_eq!(said.len(), 7, "step {dies_at}: {said:?}");
        // A replay has the same events as an undisturbed turn.
        let replay = fixture.says("book").await;
        assert_eq!(replay.timeless(), whole.timeless(), "step {dies_at}");
    }
}

#[tokio::test]
async fn two_streams_of_one_turn_do_everything_once() {
    let fixture = Fixture::new(ScriptedModel::by_round(answers()), gateway(), PLAIN).await;
    let (one, other) = tokio::join!(fixture.says("book"), fixture.says("book"));
    assert_eq!(one.text(), other.text());
    assert_eq!(fixture.gateway.effects(), 2, "{one:?}\n{other:?}");
    assert_eq!(fixture.gateway.messages("c").len(), 7);
}

#[tokio::test]
async fn two_streams_that_come_to_different_answers_do_not_mix() {
    // The first answer is so long that it has to wait for its reader before it is complete.
    let long = "yes ".repeat(40);
    let model = ScriptedModel::new([words(&long), words("No.")]);
    let fixture = Fixture::new(model, gateway(), PLAIN).await;
    let mut one = fixture.stream(request_with_id("book"));
    one.next().await.unwrap();
    let other = fixture.says("book").await;
    assert_eq!(other.last()["finish_reason"], "stop");
    let one = Events::from_stream(one).await;
    assert_eq!(one.only_event("error")["kind"], "conflict");
    let said = fixture.gateway.messages("c");
    assert_eq!(said.last().unwrap().1, "No.");
    assert_eq!(said.len(), 2);
}
