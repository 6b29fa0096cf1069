//! Tests of a busy gateway: requests are retried a few times after the requested pause, and then the failure is reported.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::fixture::{Events, Fixture, PLAIN};
use crate::clients::{GatewayFailure, ToolAnswer};
use crate::testing::{FakeGateway, FakeTool, ScriptedModel, call, says, words};

/// Runs a turn whose tool is rejected as busy `times` times with a pause of `seconds`. Returns how the turn ended, how often the
/// tool was called, and how long that took.
async fn turned_away(
    times: u64,
    seconds: u64,
    writes: bool,
    more: &str,
) -> (Events, u64, Duration) {
    let calls = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&calls);
    let tool = FakeTool::runs("clock", move |_| {
        if counted.fetch_add(1, Ordering::SeqCst) < times {
            return Err(GatewayFailure::Busy {
                retry_after: Some(Duration::from_secs(seconds)),
                message: "There is too much to do.".to_owned(),
            });
        }
        Ok(ToolAnswer {
            text: "noon".to_owned(),
            is_error: false,
        })
    });
    let tool = if writes { tool.writes() } else { tool };
    let model = ScriptedModel::new([says("", &[call("c1", "clock", "{}")]), words("Well.")]);
    let fixture = Fixture::new(model, FakeGateway::new([tool]), more).await;
    let began = Instant::now();
    let events = fixture.says("when?").await;
    (events, calls.load(Ordering::SeqCst), began.elapsed())
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_turned_away_is_made_again_when_the_gateway_said() {
    for writes in [false, true] {
        let (events, calls, took) = turned_away(2, 3, writes, PLAIN).await;
        assert_eq!(events.only_event("tool_result")["success"], true);
        assert_eq!((calls, took.as_secs()), (3, 6));
        assert_eq!(events.text(), "Well.");
    }
}

#[tokio::test(start_paused = true)]
async fn the_model_is_told_of_what_is_turned_away_for_long_and_the_turn_goes_on() {
    // Rejected too often; with too long a pause; with a pause until after the turn's end.
    let short = "    limits: { seconds: 4 }\n";
    for (times, seconds, more, made) in [(9, 1, PLAIN, 3), (9, 11, PLAIN, 1), (9, 5, short, 1)] {
        for writes in [false, true] {
            let (events, calls, took) = turned_away(times, seconds, writes, more).await;
            let result = events.only_event("tool_result");
            assert_eq!(result["success"], false, "{events:?}");
            assert_eq!(result["error"], "There is too much to do.");
            assert_eq!((calls, took.as_secs()), (made, made - 1), "{more}");
            assert_eq!(events.text(), "Well.");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn lists_and_memory_are_asked_for_again_too_and_the_person_hears_why_there_is_no_answer() {
    let turn = async |turned_away: usize| {
        let gateway = FakeGateway::new([]);
        gateway.turn_away(turned_away);
        let fixture = Fixture::new(ScriptedModel::new([words("Hello.")]), gateway, PLAIN).await;
        fixture.says("hello").await
    };
    assert_eq!(turn(2).await.text(), "Hello.");
    let events = turn(3).await;
    let error: &Value = events.only_event("error");
    assert_eq!(error["kind"], "gateway_failed");
    assert_eq!(error["message"], "There is too much to do.");
}
