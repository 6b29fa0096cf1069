use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use axum::http::Method;
use axum::response::Response;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::client::{Client, legacy, notification};
use super::server::{ReceivedRequest, Server, events, open_events, status};
use crate::TokenSource;

const CHANGED: &str = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;

/// Starts a gateway that keeps sessions. `other` answers the requests that the gateway does not handle itself.
async fn start_session_server<F>(version: &'static str, other: F) -> Server
where
    F: Fn(ReceivedRequest) -> BoxFuture<'static, Response> + Send + Sync + 'static,
{
    Server::start(move |arrived| match arrived.rpc_method() {
        "initialize" => {
            let mut response = arrived.result(&format!(r#"{{"protocolVersion":"{version}"}}"#));
            let session = "s1".parse().unwrap();
            response.headers_mut().insert("mcp-session-id", session);
            async { response }.boxed()
        }
        method if method.starts_with("notifications/") => async { status(202) }.boxed(),
        _ => other(arrived),
    })
    .await
}

async fn initialize(server: &mut Server, client: &mut Client) {
    let answer = client.send_request(&legacy(0, "initialize")).await;
    assert!(answer["result"].is_object(), "{answer}");
    client.send_line(&notification("notifications/initialized", "{}"));
    let initialize = server.arrival().await;
    assert_eq!(initialize.header("mcp-protocol-version"), "");
    let ready = server.arrival().await;
    assert_eq!(ready.rpc_method(), "notifications/initialized");
    assert_eq!(ready.header("mcp-session-id"), "s1");
}

#[tokio::test]
async fn a_session_is_named_in_every_request_listened_to_and_ended() {
    let streams = AtomicUsize::new(0);
    let mut server = start_session_server("2025-11-25", move |arrived| {
        let response = match (arrived.method.clone(), streams.load(Ordering::Relaxed)) {
            (Method::GET, 0) => {
                streams.store(1, Ordering::Relaxed);
                events(&format!(
                    "id: 41\nretry: 1\ndata: {CHANGED}\n\nid: 42\ndata:\n\n"
                ))
            }
            (Method::GET, _) => open_events(":\n\n"),
            (Method::DELETE, _) => status(200),
            _ => arrived.result("{}"),
        };
        async { response }.boxed()
    })
    .await;
    let mut client = Client::start(&server.url, TokenSource::None);
    initialize(&mut server, &mut client).await;
    assert_eq!(
        client.read_message().await,
        serde_json::from_str::<Value>(CHANGED).unwrap()
    );
    let first = server.arrival_by(&Method::GET).await;
    assert_eq!(first.header("accept"), "text/event-stream");
    assert_eq!(first.header("last-event-id"), "");
    let again = server.arrival_by(&Method::GET).await;
    assert_eq!(again.header("last-event-id"), "42");
    client.send_request(&legacy(1, "ping")).await;
    let ping = server.arrival().await;
    client.close_input();
    client.end().await.0.unwrap();
    let farewell = server.arrival_by(&Method::DELETE).await;
    for arrived in [first, again, ping, farewell] {
        assert_eq!(arrived.header("mcp-session-id"), "s1");
        assert_eq!(arrived.header("mcp-protocol-version"), "2025-11-25");
    }
}

#[tokio::test]
async fn the_oldest_version_names_none_in_its_headers_and_has_batches() {
    let mut server = start_session_server("2025-03-26", |arrived| {
        let response = match &arrived.body {
            Value::Array(batch) => super::server::json(&format!(
                r#"[{{"id":1,"result":{{}}}},{{"id":{},"result":{{}}}}]"#,
                batch[1]["id"]
            )),
            _ => status(405),
        };
        async { response }.boxed()
    })
    .await;
    let mut client = Client::start(&server.url, TokenSource::None);
    initialize(&mut server, &mut client).await;
    let batch = format!("[{},{}]", legacy(1, "ping"), legacy(2, "ping"));
    let answers = client.send_request(&batch).await;
    assert_eq!(answers.as_array().unwrap().len(), 2);
    let arrived = server.arrival_by(&Method::POST).await;
    assert_eq!(arrived.header("mcp-protocol-version"), "");
    assert_eq!(arrived.header("mcp-session-id"), "s1");
}

#[tokio::test]
async fn what_the_gateway_asks_in_the_middle_of_a_call_the_client_answers() {
    let answered = Arc::new(tokio::sync::Notify::new());
    let restarted = Arc::new(AtomicBool::new(false));
    let mut server = start_session_server("2025-11-25", move |arrived| {
        let answered = Arc::clone(&answered);
        let restarted = Arc::clone(&restarted);
        async move {
            match arrived.rpc_method() {
                "tools/call" => {
                    // Simulates a proxy that closes an idle connection: the response arrives on another stream.
                    events(
                        "id: a\nretry: 1\ndata: {\"jsonrpc\":\"2.0\",\"id\":\"e\",\"method\":\"elicitation/create\",\"params\":{}}\n\n",
                    )
                }
                "" if arrived.method == Method::GET && arrived.header("last-event-id") == "a" => {
                    if !restarted.swap(true, Ordering::Relaxed) {
                        return status(503);
                    }
                    answered.notified().await;
                    events("data: {\"jsonrpc\":\"2.0\",\"id\":5,\"result\":{}}\n\n")
                }
                "" if arrived.method == Method::POST => {
                    assert_eq!(arrived.body["id"], "e");
                    answered.notify_one();
                    status(202)
                }
                _ => status(405),
            }
        }
        .boxed()
    })
    .await;
    let mut client = Client::start(&server.url, TokenSource::None);
    initialize(&mut server, &mut client).await;
    let asked = client.send_request(&legacy(5, "tools/call")).await;
    assert_eq!(asked["method"], "elicitation/create");
    let result = client
        .send_request(r#"{"jsonrpc":"2.0","id":"e","result":{"action":"decline"}}"#)
        .await;
    assert_eq!(result, json!({"jsonrpc": "2.0", "id": 5, "result": {}}));
}

#[tokio::test]
async fn a_cancellation_is_passed_on_and_ends_nothing_by_itself() {
    let cancelled = Arc::new(tokio::sync::Notify::new());
    let server = {
        let cancelled = Arc::clone(&cancelled);
        Server::start(move |arrived| {
            let cancelled = Arc::clone(&cancelled);
            async move {
                if arrived.rpc_method() == "notifications/cancelled" {
                    cancelled.notify_one();
                    return status(202);
                }
                cancelled.notified().await;
                arrived.result(r#"{"isError":true}"#)
            }
            .boxed()
        })
        .await
    };
    let mut client = Client::start(&server.url, TokenSource::None);
    client.send_line(&legacy(3, "tools/call"));
    let answer = client
        .send_request(&notification(
            "notifications/cancelled",
            r#"{"requestId":3}"#,
        ))
        .await;
    assert_eq!(answer["result"]["isError"], true);
}

#[tokio::test]
async fn a_session_that_ended_is_an_error_that_says_so_until_the_client_begins_another() {
    let forgot = Arc::new(AtomicBool::new(true));
    let forgets = Arc::clone(&forgot);
    let mut server = start_session_server("2025-11-25", move |arrived| {
        let response = match arrived.method {
            Method::POST if !forgets.load(Ordering::Relaxed) => arrived.result("{}"),
            Method::POST => status(404),
            _ => status(405),
        };
        async { response }.boxed()
    })
    .await;
    let mut client = Client::start(&server.url, TokenSource::None);
    initialize(&mut server, &mut client).await;
    for id in [1, 2] {
        let fault = client.fault(&legacy(id, "tools/list")).await;
        assert_eq!(fault, "The session has ended; initialize again.");
    }
    forgot.store(false, Ordering::Relaxed);
    client.send_request(&legacy(3, "initialize")).await;
    let answer = client.send_request(&legacy(4, "tools/list")).await;
    assert_eq!(answer["result"], json!({}));
}
