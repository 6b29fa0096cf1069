//! Tests of servers at a URL.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use serde_json::{Value, json};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use wardgate_testkit::until_true;

use super::scripted::ScriptedServer;
use super::{at_once, call, soon, text, tool_call, upstream};
use crate::testing::http::{fixture, serve, settings};
use crate::{
    CallResult, ClientCapabilities, Continuation, Health, Participation, PassthroughMembers,
    Responses, Round, RoundStart, ServerMessage, UpstreamError,
};

#[tokio::test]
async fn a_call_before_any_listing_repeats_its_marked_arguments() {
    let (_, url) = fixture("modern", true).await;
    let upstream = upstream(&settings(&url));
    let echoed = call(&upstream, "echo", r#"{"region":" edge "}"#)
        .await
        .unwrap();
    assert_eq!(echoed.structured.unwrap().get(), r#"{"region":" edge "}"#);
}

#[tokio::test]
async fn a_dropped_call_is_cancelled_at_the_server() {
    for era in ["modern", "legacy"] {
        let (fixture, url) = fixture(era, false).await;
        let upstream = upstream(&settings(&url));
        let operation = tool_call("wait", "{}");
        let waiting = upstream.call_tool(&operation, soon(), None);
        tokio::select! {
            outcome = waiting => panic!("{outcome:?}"),
            () = until_true("the call", async || fixture.state.waiting.load(Ordering::SeqCst) == 1) => {}
        }
        until_true("its end", async || {
            fixture.state.cancelled.load(Ordering::SeqCst) == 1
        })
        .await;
    }
}

#[tokio::test]
async fn a_legacy_session_is_kept_renewed_and_ended() {
    for forgets_with in [404, 400] {
        let mut server = ScriptedServer::new("any");
        server.forgets_with = forgets_with;
        Box::pin(keep_renew_and_end_a_session(server)).await;
    }
}

async fn keep_renew_and_end_a_session(server: ScriptedServer) {
    let (server, url) = server.start().await;
    let upstream = upstream(&settings(&url));
    call(&upstream, "any", "{}").await.unwrap();
    let headers = server.headers_of("tools/call");
    assert_eq!(headers["mcp-session-id"], "session-0");
    assert_eq!(headers["mcp-protocol-version"], "2025-11-25");
    assert!(headers.get("mcp-method").is_none());
    assert!(
        server
            .headers_of("initialize")
            .get("mcp-session-id")
            .is_none()
    );

    server.forget_session();
    call(&upstream, "any", "{}").await.unwrap();
    upstream.close().await;
    let methods = server.methods();
    let of = |wanted: &str| methods.iter().filter(|method| *method == wanted).count();
    assert_eq!(
        (of("server/discover"), of("initialize"), of("DELETE")),
        (1, 2, 2),
        "{methods:?}"
    );
    assert_eq!(of("tools/call"), 3, "{methods:?}");
}

#[tokio::test]
async fn a_legacy_answer_is_fetched_when_its_stream_breaks_off() {
    let (server, url) = ScriptedServer::new("any").start().await;
    let upstream = upstream(&settings(&url));
    call(&upstream, "any", "{}").await.unwrap();
    server.breaks_off.store(true, Ordering::SeqCst);
    call(&upstream, "any", "{}").await.unwrap();
    assert!(!server.breaks_off.load(Ordering::SeqCst));
}

#[tokio::test]
async fn a_call_whose_session_is_forgotten_midway_is_not_made_again() {
    for forgets_with in [404, 400] {
        let mut server = ScriptedServer::new("any");
        server.forgets_with = forgets_with;
        let (server, url) = server.start().await;
        let upstream = upstream(&settings(&url));
        call(&upstream, "first", "{}").await.unwrap();
        server.breaks_off.store(true, Ordering::SeqCst);
        server.forgets_midway.store(true, Ordering::SeqCst);
        let outcome = call(&upstream, "second", "{}").await.unwrap_err();
        assert!(matches!(outcome, UpstreamError::Broken(_)), "{outcome}");
        let methods = server.methods();
        let calls = methods.iter().filter(|method| *method == "tools/call");
        assert_eq!(calls.count(), 2, "{methods:?}");
    }
}

#[tokio::test]
async fn requests_of_a_legacy_server_are_answered_by_post() {
    let (server, url) = ScriptedServer::new("asks").start().await;
    let upstream = upstream(&settings(&url));
    call(&upstream, "any", "{}").await.unwrap();
    let seen = server.seen.lock().unwrap();
    let answers: Vec<_> = seen
        .iter()
        .filter(|(_, _, body)| body.get("method").is_none() && body.get("id").is_some())
        .map(|(_, _, body)| (body["id"].clone(), body["error"]["code"].clone()))
        .collect();
    let expected = [
        ("a", Value::Null),
        ("b", json!(-32601)),
        ("c", json!(-32601)),
        ("d", json!(-32601)),
    ];
    assert_eq!(answers, expected.map(|(id, code)| (json!(id), code)));
}

#[tokio::test]
async fn a_server_that_hangs_or_drips_costs_only_the_time_of_the_call() {
    let silent = ScriptedServer::new("silent");
    let mut dripping = ScriptedServer::new("any");
    dripping.drips = true;
    for server in [silent, dripping] {
        let (_, url) = server.start().await;
        let upstream = upstream(&settings(&url));
        upstream.list_prompts(soon()).await.unwrap_err();
        let operation = tool_call("any", "{}");
        let outcome = upstream.call_tool(&operation, at_once(), None).await;
        assert!(
            matches!(outcome, Err(UpstreamError::Timeout)),
            "{outcome:?}"
        );
    }
}

#[tokio::test]
async fn a_connection_reset_midway_is_told_as_broken() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut request = [0; 4096];
            let read = connection.read(&mut request).await.unwrap();
            let request = String::from_utf8_lossy(&request[..read]).into_owned();
            let json = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length:";
            let answer = if request.contains("server/discover") {
                let result = json!({ "jsonrpc": "2.0", "id": 1, "result": {
                    "supportedVersions": ["2026-07-28"], "capabilities": {}, "resultType": "complete",
                }})
                .to_string();
                format!("{json} {}\r\n\r\n{result}", result.len())
            } else {
                format!("{json} 1000\r\n\r\n{{\"jsonrpc\":")
            };
            connection.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    let upstream = upstream(&settings(&url));
    let outcome = upstream
        .read_resource("memo://one", soon())
        .await
        .unwrap_err();
    assert!(matches!(outcome, UpstreamError::Broken(_)), "{outcome}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unreachable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    drop(listener);
    let upstream = upstream(&settings(&url));
    let outcome = call(&upstream, "any", "{}").await.unwrap_err();
    assert!(
        matches!(outcome, UpstreamError::Unreachable(_)),
        "{outcome}"
    );
    assert!(matches!(*upstream.health().borrow(), Health::Down { .. }));
}

#[tokio::test]
async fn refused_credentials_and_failures_show_no_era() {
    for code in [401, 403, 503] {
        let mut server = ScriptedServer::new("any");
        server.status = Some(code);
        let (server, url) = server.start().await;
        let upstream = upstream(&settings(&url));
        let outcome = call(&upstream, "any", "{}").await.unwrap_err();
        match outcome {
            UpstreamError::Status(seen) => assert_eq!(seen, code),
            UpstreamError::Unreachable(_) => assert_eq!(code, 503),
            other => panic!("{other}"),
        }
        assert_eq!(server.methods(), ["server/discover"]);
    }
}

#[tokio::test]
async fn a_tool_with_a_misplaced_header_mark_is_left_out() {
    let (_, url) = ScriptedServer::new("faulty").start().await;
    let tools = upstream(&settings(&url)).list_tools(soon()).await.unwrap();
    let names: Vec<_> = tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["good", "last"]);
}

#[tokio::test]
async fn a_redirect_of_a_call_is_not_followed() {
    let (elsewhere, target) = ScriptedServer::new("any").start().await;
    let redirect = Router::new().fallback(move || {
        let target = target.clone();
        async move {
            Response::builder()
                .status(307)
                .header("location", target)
                .body(Body::empty())
                .unwrap()
        }
    });
    let upstream = upstream(&settings(&serve(redirect).await));
    call(&upstream, "any", "{}").await.unwrap_err();
    assert!(elsewhere.methods().is_empty());
}

#[tokio::test]
async fn real_servers_of_both_eras_ask_their_client_and_go_on() {
    for (era, key, state) in [("modern", "who", "as it was"), ("legacy", "1", "")] {
        let (_, url) = fixture(era, false).await;
        let upstream = upstream(&settings(&url));
        let client = Arc::new(Participation {
            capabilities: ClientCapabilities::parse(br#"{"roots":{}}"#).unwrap(),
            log_level: None,
            others: PassthroughMembers::default(),
            is_legacy: false,
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
        let Round::Waits { requests, then } = round.await.unwrap() else {
            panic!("it does not ask, {era}");
        };
        let asked: Value = serde_json::from_str(&requests).unwrap();
        assert_eq!(asked[key]["method"], "roots/list", "{era}");
        let answers = json!({ key: { "roots": [{ "uri": "file:///a" }] } }).to_string();
        let responses = Responses::parse(answers.as_bytes()).unwrap();
        let start = match then {
            Continuation::Retry(state) => RoundStart::Retry { state, responses },
            Continuation::Open(exchange) => RoundStart::Open {
                exchange,
                responses,
            },
            Continuation::Again => panic!("it forgot"),
        };
        let round = upstream.round(&operation, &client, start, soon(), &mut deaf);
        let Round::Done(result) = round.await.unwrap() else {
            panic!("it asks again, {era}");
        };
        let answer = text(&CallResult::parse(&result).unwrap());
        assert!(
            answer.starts_with(state) && answer.contains("file:///a"),
            "{answer}"
        );
    }
}
