use futures::FutureExt;
use tokio::net::TcpListener;

use super::client::{Client, legacy, modern};
use super::server::{Server, events, json, open_events, status};
use crate::{Error, MAX_MESSAGE_BYTES, TokenSource};

#[tokio::test]
async fn a_gateway_that_is_not_there_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp?secret=x", listener.local_addr().unwrap());
    drop(listener);
    let mut client = Client::start(&url, TokenSource::None);
    let fault = client.fault(&modern(1, "server/discover", "")).await;
    assert!(
        fault.contains("http://127.0.0.1:") && fault.contains("cannot be reached"),
        "{fault}"
    );
    assert!(!fault.contains("secret"), "{fault}");
}

#[tokio::test]
async fn what_is_no_answer_is_an_error() {
    let server = Server::start(|arrived| {
        let response = match arrived.rpc_method() {
            "page" => axum::response::Html("<html>").into_response(),
            "accepted" => status(202),
            "bad-gateway" => status(502),
            "elsewhere" => status(307),
            "other" => json(r#"{"jsonrpc":"2.0","id":77,"result":{}}"#),
            "quiet" => events(""),
            "large" => events(&format!("data: {}", "x".repeat(MAX_MESSAGE_BYTES))),
            _ => json(&format!("{{\"x\":\"{}\"}}", "x".repeat(MAX_MESSAGE_BYTES))),
        };
        async { response }.boxed()
    })
    .await;
    let mut client = Client::start(&server.url, TokenSource::None);
    for (method, told) in [
        ("page", "not an MCP endpoint"),
        ("accepted", "not an MCP endpoint"),
        ("bad-gateway", "HTTP 502"),
        ("elsewhere", "HTTP 307"),
        ("quiet", "failed before the response"),
        ("large", "larger than 8 MiB"),
        ("vast", "larger than 8 MiB"),
    ] {
        let fault = client.fault(&modern(1, method, "")).await;
        assert!(fault.contains(told), "{method}: {fault}");
    }
    // A response with another id is forwarded, but the request is answered too.
    assert_eq!(client.send_request(&modern(1, "other", "")).await["id"], 77);
    assert_eq!(client.read_message().await["id"], 1);
}

use axum::response::IntoResponse;

#[tokio::test]
async fn a_line_that_is_no_message_is_told_and_the_next_is_taken() {
    let server = Server::start(|arrived| async move { arrived.result("{}") }.boxed()).await;
    let mut client = Client::start(&server.url, TokenSource::None);
    for bad in ["hello", r#"{"jsonrpc":"2.0"}"#, "[]", "[1]", r#"{"id":1"#] {
        let answer = client.send_request(bad).await;
        assert_eq!(answer["error"]["code"], -32700, "{bad}");
        assert!(answer.get("id").is_none());
    }
    assert_eq!(client.send_request(&legacy(1, "ping")).await["id"], 1);
}

#[tokio::test]
async fn at_the_end_of_input_calls_finish_and_streams_do_not_hold_up() {
    let held = std::sync::Arc::new(tokio::sync::Notify::new());
    let release = std::sync::Arc::clone(&held);
    let mut server = Server::start(move |arrived| {
        let held = std::sync::Arc::clone(&held);
        async move {
            if arrived.rpc_method() == "subscriptions/listen" {
                return open_events(":\n\n");
            }
            held.notified().await;
            arrived.result("{}")
        }
        .boxed()
    })
    .await;
    let mut client = Client::start(&server.url, TokenSource::None);
    client.send_line(&modern(1, "subscriptions/listen", ""));
    client.send_line(&modern(2, "tools/call", r#""name":"x","#));
    for _ in 0..2 {
        server.arrival().await;
    }
    client.close_input();
    release.notify_one();
    let (ended, rest) = client.end().await;
    ended.unwrap();
    let ids: Vec<_> = rest.iter().map(|line| &line["id"]).collect();
    assert_eq!(ids, [2]);
}

#[tokio::test]
async fn when_it_is_stopped_every_request_ends() {
    let mut server = Server::start(|_| futures::future::pending().boxed()).await;
    let mut client = Client::start(&server.url, TokenSource::None);
    client.send_line(&legacy(1, "tools/call"));
    server.arrival().await;
    client.stop.cancel();
    let (ended, rest) = client.end().await;
    ended.unwrap();
    assert_eq!(rest[0]["id"], 1);
    assert!(
        rest[0]["error"]["message"]
            .as_str()
            .unwrap()
            .contains("before the response")
    );
}

#[tokio::test]
async fn a_line_without_end_ends_the_bridge() {
    let server = Server::start(|arrived| async move { arrived.result("{}") }.boxed()).await;
    let mut client = Client::start(&server.url, TokenSource::None);
    // This response shows that the bridge is reading.
    client.send_request(&legacy(1, "ping")).await;
    let line = format!(r#"{{"id":1,"method":"{}"}}"#, "x".repeat(MAX_MESSAGE_BYTES));
    client.send_line(&line);
    assert!(matches!(client.end().await.0, Err(Error::LineTooLong)));
}

#[tokio::test]
async fn an_address_that_can_be_no_gateway_is_refused_at_once() {
    for (url, told) in [
        ("ftp://host/mcp", "http"),
        ("http://user:secret@host/mcp", "credentials"),
        ("http://host/mcp#x", "fragment"),
    ] {
        let mut client = Client::start(url, TokenSource::None);
        let refused = client.end().await.0.unwrap_err().to_string();
        assert!(
            refused.contains(told) && !refused.contains("secret"),
            "{refused}"
        );
    }
}
