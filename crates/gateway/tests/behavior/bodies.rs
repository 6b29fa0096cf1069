//! Bodies that arrive late, are too large, or never arrive.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::world::{LEGACY, OLDEST, PING, Reply, World, read_response};

/// Time well below the limits that apply unless a test sets others.
const IN_TIME: Duration = Duration::from_secs(20);

#[tokio::test]
async fn what_is_not_json_is_refused_before_it_is_read() {
    let world = World::start().await;
    let send = |content: &'static str, accept: &'static str| {
        let request = world
            .http
            .post(world.url("/mcp"))
            .bearer_auth(&world.token)
            .header("content-type", content)
            .header("accept", accept)
            .body(PING);
        async move { Reply::to(request).await.status }
    };
    assert_eq!(send("application/json", "*/*").await, 200);
    assert_eq!(
        send("Application/JSON; charset=utf-8", "application/*").await,
        200
    );
    assert_eq!(send("text/plain", "*/*").await, 415);
    assert_eq!(send("", "*/*").await, 415);
    assert_eq!(send("application/jsonp", "*/*").await, 415);
    assert_eq!(send("application/json", "text/event-stream").await, 406);
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_with_its_size() {
    let world = World::start_with(json!({ "limits": { "body_bytes": 4096 } })).await;
    let padded = |size: usize| format!("{PING}{}", " ".repeat(size - PING.len()));
    for version in [LEGACY, OLDEST] {
        let send = |size| Reply::to(world.message(version, "ping", "").body(padded(size)));
        assert_eq!(send(4096).await.status, 200);
        let reply = send(4097).await;
        assert_eq!((reply.status, reply.code()), (413, -32600));
        assert!(reply.text.contains("4096 bytes"), "{reply:?}");
        assert_eq!(send(3 << 20).await.status, 413);
    }
}

/// Returns the head of a request whose body a client sends later.
fn head(
    world: &World,
    method: &str,
    path: &str,
    token: &str,
    content_type: &str,
    length: usize,
) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\r\n",
        world.address
    )
}

#[tokio::test]
async fn a_body_that_does_not_come_is_not_waited_for_forever() {
    let world = World::start_with(json!({ "limits": { "body_seconds": 1 } })).await;
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    let head = head(
        &world,
        "POST",
        "/mcp",
        &world.token,
        "application/json",
        100,
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let started = Instant::now();
    let (status, _) = read_response(&mut stream).await;
    assert_eq!(status, 408);
    assert!(started.elapsed() < IN_TIME);
}

#[tokio::test]
async fn a_refused_request_gets_its_answer_though_its_body_comes_late_and_the_connection_stays() {
    let world = World::start().await;
    for (method, token, content_type, expected) in [
        ("POST", "garbage", "application/json", 401),
        ("PUT", &*world.token, "application/json", 405),
        ("POST", &*world.token, "text/plain", 415),
    ] {
        let mut stream = TcpStream::connect(world.address).await.unwrap();
        let refused = head(&world, method, "/mcp", token, content_type, PING.len());
        stream.write_all(refused.as_bytes()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        stream.write_all(PING.as_bytes()).await.unwrap();
        let (status, body) = read_response(&mut stream).await;
        assert_eq!(status, expected);
        assert!(body.contains(r#""reason":"#), "{body}");

        let good = head(
            &world,
            "POST",
            "/mcp",
            &world.token,
            "application/json",
            PING.len(),
        );
        stream.write_all(good.as_bytes()).await.unwrap();
        stream.write_all(PING.as_bytes()).await.unwrap();
        let (status, body) = read_response(&mut stream).await;
        assert_eq!(
            (status, &*body),
            (200, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#)
        );
    }
}

#[tokio::test]
async fn a_refused_client_that_asks_first_need_not_send_its_body() {
    let world = World::start().await;
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    let head = head(
        &world,
        "POST",
        "/mcp",
        "garbage",
        "application/json",
        1 << 20,
    )
    .replace("\r\n\r\n", "\r\nExpect: 100-continue\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    assert_eq!(read_response(&mut stream).await.0, 401);
}

#[tokio::test]
async fn a_refused_client_that_never_sends_its_body_gets_its_answer_in_a_second_or_so() {
    let world = World::start().await;
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    let head = head(&world, "POST", "/mcp", "garbage", "application/json", 100);
    let started = Instant::now();
    stream.write_all(head.as_bytes()).await.unwrap();
    assert_eq!(read_response(&mut stream).await.0, 401);
    assert!(started.elapsed() < IN_TIME);
}

#[tokio::test]
async fn a_connection_that_does_not_ask_is_closed() {
    let world = World::start_with(json!({ "limits": { "header_seconds": 1 } })).await;
    for sent in ["", "POST /mcp HTTP/1.1\r\nHost"] {
        let mut stream = TcpStream::connect(world.address).await.unwrap();
        stream.write_all(sent.as_bytes()).await.unwrap();
        let started = Instant::now();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.unwrap();
        assert!(started.elapsed() < IN_TIME, "{sent:?}");
    }
}

#[tokio::test]
async fn a_connection_beyond_the_limit_takes_the_place_of_an_idle_one() {
    let world = World::start_with(json!({ "limits": { "connections": 1 } })).await;
    let mut first = TcpStream::connect(world.address).await.unwrap();
    first
        .write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await
        .unwrap();
    assert_eq!(read_response(&mut first).await.0, 200);
    let second = Reply::to(world.http.get(world.url("/health"))).await;
    assert_eq!(second.status, 200);
    let mut rest = Vec::new();
    first.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, b"");
}
