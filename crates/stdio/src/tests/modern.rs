use futures::FutureExt;
use serde_json::json;

use super::client::{Client, modern, notification};
use super::server::{Server, events, json, open_events};
use crate::TokenSource;

#[tokio::test]
async fn a_request_is_one_post_with_its_headers_and_the_answer_one_line() {
    let mut server = Server::start(|arrived| {
        async move {
            if arrived.rpc_method() == "tools/list" {
                return arrived.result(
                    r#"{"tools":[{"name":"naïve","inputSchema":{"properties":{"ward":{"type":"string","x-mcp-header":"Ward"}}}}]}"#,
                );
            }
            // The JSON spans several lines, which a server may send.
            json(&format!("{{\n \"jsonrpc\": \"2.0\",\r\n \"id\": {},\n \"result\": {{\"n\": 1.10}}}}", arrived.body["id"]))
        }
        .boxed()
    })
    .await;
    let mut client = Client::start(&server.url, TokenSource::Variable("t".to_owned()));
    client.send_request(&modern(1, "tools/list", "")).await;
    let answer = client
        .send_request(&modern(
            2,
            "tools/call",
            r#""name":"naïve","arguments":{"ward":"W2"},"#,
        ))
        .await;
    assert_eq!(
        answer,
        serde_json::from_str::<serde_json::Value>(
            r#"{"jsonrpc":"2.0","id":2,"result":{"n":1.10}}"#
        )
        .unwrap()
    );
    server.arrival().await;
    let arrived = server.arrival().await;
    for (name, value) in [
        ("authorization", "Bearer t"),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "=?base64?bmHDr3Zl?="),
        ("mcp-param-ward", "W2"),
        ("mcp-session-id", ""),
    ] {
        assert_eq!(arrived.header(name), value, "{name}");
    }
}

#[tokio::test]
async fn messages_before_the_answer_come_at_once_and_no_request_waits_for_another() {
    let server = Server::start(|arrived| {
        async move {
            if arrived.rpc_method() == "subscriptions/listen" {
                return open_events(&format!(
                    ":\n\nevent: message\ndata: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/subscriptions/acknowledged\",\"params\":{{\"id\":{}}}}}\n\n",
                    arrived.body["id"]
                ));
            }
            let id = &arrived.body["id"];
            events(&format!(
                "data: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{{}}}}\n\ndata: {{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}\n\n"
            ))
        }
        .boxed()
    })
    .await;
    let mut client = Client::start(&server.url, TokenSource::None);
    for id in [1, 2] {
        let acknowledged = client
            .send_request(&modern(id, "subscriptions/listen", ""))
            .await;
        assert_eq!(acknowledged["params"]["id"], id);
    }
    let progress = client
        .send_request(&modern(3, "tools/call", r#""name":"x","#))
        .await;
    assert_eq!(progress["method"], "notifications/progress");
    assert_eq!(client.read_message().await["id"], 3);
}

#[tokio::test]
async fn a_cancelled_request_is_dropped_and_never_answered() {
    let (gone, mut was_dropped) = tokio::sync::mpsc::unbounded_channel();
    let server = Server::start(move |arrived| {
        let gone = gone.clone();
        async move {
            if arrived.rpc_method() == "ping" {
                return arrived.result("{}");
            }
            // The value is dropped together with the connection.
            let _gone = DropSignal(gone);
            futures::future::pending().await
        }
        .boxed()
    })
    .await;
    let mut client = Client::start(&server.url, TokenSource::None);
    client.send_line(&modern(7, "tools/call", r#""name":"x","#));
    client.send_request(&modern(8, "ping", "")).await;
    client.send_line(&notification(
        "notifications/cancelled",
        r#"{"requestId":7}"#,
    ));
    was_dropped.recv().await.unwrap();
    // The id can be used again.
    assert_eq!(
        client.send_request(&modern(7, "ping", "")).await["result"],
        json!({})
    );
    client.close_input();
    let (ended, rest) = client.end().await;
    ended.unwrap();
    assert!(rest.is_empty(), "{rest:?}");
}

/// A value that sends a signal when it is dropped.
struct DropSignal(tokio::sync::mpsc::UnboundedSender<()>);

impl Drop for DropSignal {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

#[tokio::test]
async fn a_stream_that_breaks_off_is_an_error_and_nothing_is_asked_twice() {
    let mut server = Server::start(|_| async { events("id: 1\ndata:\n\n") }.boxed()).await;
    let mut client = Client::start(&server.url, TokenSource::None);
    let fault = client
        .fault(&modern(1, "tools/call", r#""name":"x","#))
        .await;
    assert!(fault.contains("failed before the response"), "{fault}");
    assert_eq!(server.arrival().await.rpc_method(), "tools/call");
    client.close_input();
    client.end().await.0.unwrap();
    assert!(server.arrival().now_or_never().is_none());
}

#[tokio::test]
async fn an_id_is_free_when_its_answer_is_there_and_taken_until_then() {
    let server = Server::start(|arrived| {
        async move {
            match arrived.rpc_method() {
                "hold" => futures::future::pending().await,
                // The request is answered, but its stream does not end.
                "linger" => open_events("data: {\"id\":1,\"result\":{}}\n\n"),
                _ => arrived.result("{}"),
            }
        }
        .boxed()
    })
    .await;
    let mut client = Client::start(&server.url, TokenSource::None);
    for method in ["linger", "ping", "linger"] {
        let answer = client.send_request(&modern(1, method, "")).await;
        assert_eq!(answer["result"], json!({}), "{method}");
    }
    client.send_line(&modern(1, "hold", ""));
    let fault = client.fault(&modern(1, "ping", "")).await;
    assert!(fault.contains("used by"), "{fault}");
}
