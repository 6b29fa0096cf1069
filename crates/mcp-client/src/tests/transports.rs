//! Tests of behaviour that stdio and HTTP have in common.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, timeout};

use super::scripted::ScriptedServer;
use super::{call, parse_result, raw, record_report, soon, text, tool_call, upstream};
use crate::testing::script::{ODD_CONTENT, ODD_STRUCTURED, ODD_TOOL};
use crate::testing::{http, program};
use crate::{
    ClientCapabilities, Health, Participation, PassthroughMembers, Round, RoundStart,
    ServerMessage, Upstream, UpstreamError,
};

/// Returns a real server of that era over each transport.
async fn real(era: &str) -> [Upstream; 2] {
    let (_, url) = http::fixture(era, false).await;
    let program = program::settings(&format!("rmcp-{era}"));
    [upstream(&program), upstream(&http::settings(&url))]
}

/// Returns a scripted server over each transport.
async fn start_scripted_servers(kind: &str) -> [Upstream; 2] {
    let (_, url) = ScriptedServer::new(kind).start().await;
    let program = program::settings(kind);
    [upstream(&program), upstream(&http::settings(&url))]
}

#[tokio::test]
async fn servers_of_both_eras_are_listed_called_read_and_prompted() {
    for era in ["modern", "legacy", "both"] {
        let mut servers = Vec::from(real(era).await);
        // This server responds in JSON where possible.
        if era != "both" {
            let (_, url) = http::fixture(era, true).await;
            servers.push(upstream(&http::settings(&url)));
        }
        for upstream in servers {
            is_listed_called_read_and_prompted(&upstream, era).await;
        }
    }
}

async fn is_listed_called_read_and_prompted(upstream: &Upstream, era: &str) {
    let tools = upstream.list_tools(soon()).await.unwrap();
    let names: Vec<_> = tools.iter().map(|tool| tool.name.as_str()).collect();
    let expected = ["echo", "wait", "steps", "fail", "grow", "cancelled"];
    assert_eq!(names, expected, "{era}");
    assert_eq!(upstream.instructions().as_deref(), Some("Grow first."));

    let echoed = call(upstream, "echo", r#"{"region":"Zürich"}"#);
    let echoed = echoed.await.unwrap();
    assert_eq!(echoed.structured.unwrap().get(), r#"{"region":"Zürich"}"#);
    assert!(!echoed.is_error);
    assert!(call(upstream, "fail", "{}").await.unwrap().is_error);
    let unknown = call(upstream, "no_such_tool", "{}").await.unwrap_err();
    assert!(matches!(unknown, UpstreamError::Rpc(_)), "{unknown}");

    assert_eq!(upstream.list_resources(soon()).await.unwrap().len(), 1);
    let templates = upstream.list_resource_templates(soon()).await.unwrap();
    assert!(templates[0].get().contains("memo://{name}"));
    let memo = upstream.read_resource("memo://one", soon()).await.unwrap();
    assert!(memo.get().contains("a memo"), "{}", memo.get());
    assert_eq!(upstream.list_prompts(soon()).await.unwrap().len(), 1);
    let arguments = raw(r#"{"name":"Ann"}"#);
    let greeting = upstream.get_prompt("greet", &arguments, soon()).await;
    let greeting = greeting.unwrap();
    assert!(greeting.get().contains("Greet"), "{}", greeting.get());
    assert_eq!(*upstream.health().borrow(), Health::Up);
}

#[tokio::test]
async fn progress_comes_back_to_the_call_that_asked_for_it() {
    for era in ["modern", "legacy"] {
        for upstream in real(era).await {
            let mut reports = Vec::new();
            let mut sink = |message: ServerMessage| record_report(&mut reports, message);
            let operation = tool_call("steps", "{}");
            let with = upstream.call_tool(&operation, soon(), Some(&mut sink));
            assert_eq!(
                text(&parse_result(&with.await.unwrap())),
                "asked for progress: true"
            );
            assert_eq!(reports, ["step 1", "step 2", "step 3"], "{era}");
            let without = call(&upstream, "steps", "{}").await.unwrap();
            assert_eq!(text(&without), "asked for progress: false");
        }
    }
}

#[tokio::test]
async fn changed_tools_are_announced() {
    for era in ["modern", "legacy"] {
        for upstream in real(era).await {
            let mut changes = upstream.tools_changed();
            let before = upstream.list_tools(soon()).await.unwrap().len();
            // The listening request may not have arrived yet.
            let deadline = soon();
            loop {
                call(&upstream, "grow", "{}").await.unwrap();
                let change = timeout(Duration::from_millis(100), changes.changed()).await;
                if change.is_ok() {
                    break;
                }
                assert!(Instant::now() < deadline, "{era}");
            }
            assert!(upstream.list_tools(soon()).await.unwrap().len() > before);
        }
    }
}

#[tokio::test]
async fn nothing_is_lost_on_the_way() {
    for odd in start_scripted_servers("odd").await {
        let tools = odd.list_tools(soon()).await.unwrap();
        assert_eq!(tools[0].raw.get(), ODD_TOOL);
        let result = call(&odd, "odd", "{}").await.unwrap();
        assert_eq!(result.content.unwrap().get(), ODD_CONTENT);
        assert_eq!(result.structured.unwrap().get(), ODD_STRUCTURED);
        assert_eq!(result.meta.unwrap().get(), r#"{"k":0.10}"#);
        assert!(result.is_error);
    }
    let arguments = "{ \"b\" : 1.10,\n\"a\":[12345678901234567890123, \"line\\nbreak\"] }";
    // Over stdio, a message is a single line.
    let sent = [arguments.replace('\n', " "), arguments.to_owned()];
    for (mirror, sent) in start_scripted_servers("mirror").await.iter().zip(sent) {
        let seen = text(&call(mirror, "odd", arguments).await.unwrap());
        assert!(seen.contains(&format!("\"arguments\":{sent}")), "{seen}");
    }
}

#[tokio::test]
async fn answers_to_other_requests_are_ignored() {
    for (kind, expected) in [
        ("wrong_id", "right"),
        ("twice", "first"),
        ("noisy", "heard"),
    ] {
        for upstream in start_scripted_servers(kind).await {
            for _ in 0..3 {
                let result = call(&upstream, "any", "{}").await.unwrap();
                assert_eq!(text(&result), expected, "{kind}");
            }
        }
    }
}

#[tokio::test]
async fn an_answer_too_large_fails_alone() {
    for upstream in start_scripted_servers("large").await {
        let outcome = call(&upstream, "large", "{}").await.unwrap_err();
        assert!(matches!(outcome, UpstreamError::TooLarge), "{outcome}");
        call(&upstream, "small", "{}").await.unwrap();
    }
}

/// Calls the fixture's tool `ask`, and returns its input requests, whose keys show in which era the server asked.
async fn asks_as(upstream: &Upstream, is_legacy: bool) -> Value {
    let client = Arc::new(Participation {
        capabilities: ClientCapabilities::parse(br#"{"roots":{}}"#).unwrap(),
        log_level: None,
        others: PassthroughMembers::default(),
        is_legacy,
    });
    let operation = tool_call("ask", "{}");
    let mut deaf = |_: ServerMessage| false;
    let round = upstream.round(
        &operation,
        &client,
        RoundStart::Beginning,
        soon(),
        &mut deaf,
    );
    let Round::Waits {
        requests,
        then: _then,
    } = round.await.unwrap()
    else {
        panic!("it asks");
    };
    serde_json::from_str(&requests).unwrap()
}

#[tokio::test]
async fn a_legacy_client_is_asked_in_the_legacy_way_by_a_server_that_does_not_name_its_newer_era() {
    for (era, is_legacy, key) in [
        ("unnamed", true, "1"),
        ("unnamed", false, "who"),
        ("modern", true, "who"),
    ] {
        for upstream in real(era).await {
            let asked = asks_as(&upstream, is_legacy).await;
            assert_eq!(asked[key]["method"], "roots/list", "{era} {is_legacy}");
        }
    }
}
