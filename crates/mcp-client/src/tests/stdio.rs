//! Tests of servers over stdio.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::time::Instant;

use wardgate_testkit::until_true;

use super::{at_once, call, parse_result, record_report, soon, text, tool_call, upstream};
use crate::testing::program::{START, deaf_to_sigterm, settings, started_by};
use crate::{
    ClientCapabilities, Continuation, Health, Participation, PassthroughMembers, Program,
    Responses, Round, RoundStart, ServerMessage, Transport, Upstream, UpstreamError,
};

/// Returns whether the process is alive and not a zombie.
fn is_running(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap().starts_with(" Z"))
}

#[tokio::test]
async fn progress_of_others_is_ignored_and_its_text_bounded() {
    let upstream = upstream(&settings("progress"));
    let mut reports = Vec::new();
    let mut sink = |message: ServerMessage| record_report(&mut reports, message);
    let operation = tool_call("any", "{}");
    let result = upstream.call_tool(&operation, soon(), Some(&mut sink));
    assert_eq!(text(&parse_result(&result.await.unwrap())), "done");
    assert_eq!(reports, ["x".repeat(1024)]);
}

#[tokio::test]
async fn a_dropped_call_is_cancelled_at_the_server() {
    for era in ["modern", "legacy"] {
        let upstream = upstream(&settings(&format!("rmcp-{era}")));
        call(&upstream, "cancelled", "{}").await.unwrap();
        let operation = tool_call("wait", "{}");
        let waiting = upstream.call_tool(&operation, at_once(), None);
        let outcome = waiting.await.unwrap_err();
        assert!(matches!(outcome, UpstreamError::Timeout), "{outcome}");
        let deadline = soon();
        while text(&call(&upstream, "cancelled", "{}").await.unwrap()) != "1" {
            assert!(Instant::now() < deadline, "{era}");
        }
    }
}

#[tokio::test]
async fn a_server_that_exits_at_an_unknown_first_message_is_started_again() {
    let upstream = upstream(&settings("exits_unless_initialized"));
    call(&upstream, "any", "{}").await.unwrap();
}

#[tokio::test]
async fn a_server_that_does_not_answer_the_probe_is_initialized() {
    let upstream = upstream(&settings("ignores_discover"));
    call(&upstream, "any", "{}").await.unwrap();
}

#[tokio::test]
async fn a_server_that_dies_fails_its_calls_and_is_started_again() {
    let upstream = upstream(&settings("dies"));
    let mut pids = Vec::new();
    for _ in 0..2 {
        let outcome = call(&upstream, "any", "{}").await.unwrap_err();
        pids.push(outcome.to_string());
        assert!(matches!(outcome, UpstreamError::Broken(_)), "{outcome}");
    }
    assert!(pids[0].contains("exit status: 7"), "{pids:?}");
    assert!(matches!(*upstream.health().borrow(), Health::Down { .. }));
}

#[tokio::test]
async fn a_server_that_ends_again_and_again_is_started_less_often() {
    let upstream = upstream(&settings("dies"));
    let deadline = soon();
    loop {
        match call(&upstream, "any", "{}").await.unwrap_err() {
            UpstreamError::Broken(_) => assert!(Instant::now() < deadline),
            UpstreamError::Unreachable(cause) => {
                assert!(cause.contains("repeatedly"), "{cause}");
                break;
            }
            other => panic!("{other}"),
        }
    }
}

#[tokio::test]
async fn a_program_that_cannot_be_started_is_unreachable() {
    let upstream = upstream(&Transport::Stdio(Program {
        argv: vec!["/no/such/program".to_owned()],
        env: BTreeMap::new(),
        directory: PathBuf::from("/"),
    }));
    let outcome = call(&upstream, "any", "{}").await.unwrap_err();
    assert!(
        matches!(outcome, UpstreamError::Unreachable(_)),
        "{outcome}"
    );
    assert!(matches!(*upstream.health().borrow(), Health::Down { .. }));
}

#[tokio::test]
async fn a_server_that_hangs_costs_only_the_time_of_the_call() {
    let upstream = upstream(&settings("silent"));
    upstream.list_tools(soon()).await.unwrap_err();
    let operation = tool_call("any", "{}");
    let outcome = upstream.call_tool(&operation, at_once(), None).await;
    assert!(matches!(outcome, Err(UpstreamError::Timeout)));
}

#[tokio::test]
async fn a_slow_start_serves_the_next_call() {
    let upstream = upstream(&started_by(&format!("sleep 1; {START}"), "any"));
    let operation = tool_call("any", "{}");
    let first = upstream.call_tool(&operation, at_once(), None).await;
    assert!(matches!(first, Err(UpstreamError::Timeout)));
    call(&upstream, "any", "{}").await.unwrap();
}

#[tokio::test]
async fn a_start_that_failed_after_its_callers_left_is_tried_again() {
    let directory = tempfile::TempDir::new().unwrap();
    let starts = directory.path().join("starts");
    let fails_twice = format!(
        "echo x >> {starts}; if [ $(wc -l < {starts}) -le 2 ]; then sleep 0.5; exit 1; fi; {START}",
        starts = starts.display()
    );
    let upstream = upstream(&started_by(&fails_twice, "any"));
    let operation = tool_call("any", "{}");
    let first = upstream.call_tool(&operation, at_once(), None).await;
    assert!(matches!(first, Err(UpstreamError::Timeout)));
    let health = upstream.health();
    until_true("the failure", async || {
        matches!(*health.borrow(), Health::Down { .. })
    })
    .await;
    call(&upstream, "any", "{}").await.unwrap();
}

#[tokio::test]
async fn an_answer_that_is_none_is_told_as_such() {
    for kind in ["contentless", "listless", "scalar", "neither", "task"] {
        let upstream = upstream(&settings(kind));
        let outcome = call(&upstream, "any", "{}").await.unwrap_err();
        assert!(
            matches!(outcome, UpstreamError::BadResult(_)),
            "{kind}: {outcome}"
        );
    }
    let upstream = upstream(&settings("input"));
    let outcome = call(&upstream, "any", "{}").await.unwrap_err();
    assert!(matches!(outcome, UpstreamError::InputRequired), "{outcome}");
}

#[tokio::test]
async fn the_words_of_an_error_are_kept_apart() {
    let upstream = upstream(&settings("refuses"));
    let outcome = call(&upstream, "any", "{}").await.unwrap_err();
    assert!(
        !format!("{outcome} {outcome:?}").contains("secret"),
        "{outcome:?}"
    );
    let UpstreamError::Rpc(error) = outcome else {
        panic!("{outcome}");
    };
    assert_eq!(
        (error.code, error.message.as_str()),
        (-32602, "secret words")
    );
}

#[tokio::test]
async fn an_endless_line_ends_the_server() {
    let upstream = upstream(&settings("floods"));
    let outcome = call(&upstream, "any", "{}").await.unwrap_err();
    assert!(matches!(outcome, UpstreamError::Broken(_)), "{outcome}");
}

#[tokio::test]
async fn pings_are_answered_and_other_requests_refused() {
    let upstream = upstream(&settings("asks"));
    call(&upstream, "any", "{}").await.unwrap();
    // The answers were sent before this call on the same stream.
    let answers = text(&call(&upstream, "heard", "{}").await.unwrap());
    let answers: Vec<Value> = serde_json::from_str(&answers).unwrap();
    let refused = |id: &str| {
        let answer = answers.iter().find(|answer| answer["id"] == id).unwrap();
        answer["error"]["code"].clone()
    };
    assert_eq!(
        answers[0],
        json!({ "jsonrpc": "2.0", "id": "a", "result": {} })
    );
    assert_eq!(
        [refused("b"), refused("c"), refused("d")],
        [-32601, -32601, -32601]
    );
}

#[tokio::test]
async fn a_dropped_server_and_all_it_started_are_ended() {
    let parent = started_by(&format!("sleep 1000 & {START}"), "any");
    let upstream = upstream(&parent);
    let pid = text(&call(&upstream, "any", "{}").await.unwrap());
    let children = format!("/proc/{pid}/task/{pid}/children");
    let children = std::fs::read_to_string(children).unwrap();
    let child = children.split_whitespace().next().unwrap().to_owned();
    assert!(is_running(&pid) && is_running(&child));
    drop(upstream);
    until_true("the server's end", async || !is_running(&pid)).await;
    until_true("its child's end", async || !is_running(&child)).await;
}

#[tokio::test]
async fn a_server_that_ignores_its_closed_input_and_sigterm_is_killed() {
    let upstream = upstream(&deaf_to_sigterm("stubborn"));
    let pid = text(&call(&upstream, "any", "{}").await.unwrap());
    upstream.close().await;
    assert!(!is_running(&pid));
}

#[tokio::test]
async fn a_server_sees_path_home_and_what_it_was_given() {
    let upstream = upstream(&settings("environment"));
    let names = text(&call(&upstream, "any", "{}").await.unwrap());
    assert_eq!(names, "HOME PATH WARDGATE_TEST_UPSTREAM");
}

fn participation() -> Arc<Participation> {
    Arc::new(Participation {
        capabilities: ClientCapabilities::parse(br#"{"elicitation":{}}"#).unwrap(),
        log_level: Some("debug".parse().unwrap()),
        others: PassthroughMembers::default(),
        is_legacy: false,
    })
}

async fn round(upstream: &Upstream, start: RoundStart, logged: &mut usize) -> Round {
    let operation = tool_call("any", "{}");
    let mut listener = |message: ServerMessage| {
        *logged += usize::from(matches!(message, ServerMessage::Log(_)));
        !matches!(message, ServerMessage::Question(_))
    };
    let client = participation();
    let round = upstream.round(&operation, &client, start, soon(), &mut listener);
    round.await.unwrap()
}

fn final_result(round: Round) -> String {
    match round {
        Round::Done(result) => result.get().to_owned(),
        other => panic!("no result: {other:?}"),
    }
}

#[tokio::test]
async fn a_question_is_of_the_only_call_and_of_nobody_where_there_are_more() {
    let upstream = upstream(&settings("interviews"));
    let mut logged = 0;
    let first = round(&upstream, RoundStart::Beginning, &mut logged).await;
    let Round::Waits {
        requests,
        then: Continuation::Open(exchange),
    } = first
    else {
        panic!("{first:?}");
    };
    assert!(requests.contains(r#""message":"Who?""#), "{requests}");
    assert_eq!(logged, 1);

    // With two open calls, the messages of the server cannot be assigned.
    let second = final_result(round(&upstream, RoundStart::Beginning, &mut logged).await);
    assert!(
        second.contains("several requests are in progress"),
        "{second}"
    );
    assert_eq!(logged, 1);

    let responses = Responses::parse(br#"{"1":{"action":"accept","n":1.10}}"#).unwrap();
    let start = RoundStart::Open {
        exchange,
        responses,
    };
    let first = final_result(round(&upstream, start, &mut logged).await);
    assert!(first.contains("accept"), "{first}");
}
