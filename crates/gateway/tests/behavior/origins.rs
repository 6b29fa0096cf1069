//! The `Host` and `Origin` of requests, and CORS.

use reqwest::Method;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::world::{MODERN, PING, Reply, World, read_response};

#[tokio::test]
async fn a_host_that_is_not_ours_is_refused_however_it_is_written() {
    let world = World::start().await;
    for (line, hosts, expected) in [
        ("/mcp", "Host: localhost\r\n", 200),
        ("/mcp", "Host: mcp.hospital.example\r\n", 200),
        ("http://localhost/mcp", "Host: localhost\r\n", 200),
        ("/mcp", "Host: evil.example\r\n", 403),
        ("/mcp", "Host: localhost\r\nHost: evil.example\r\n", 403),
        ("/mcp", "", 403),
        // The host of the request target takes precedence over the header (RFC 9112 §3.2.2).
        ("http://evil.example/mcp", "Host: localhost\r\n", 403),
    ] {
        let mut stream = TcpStream::connect(world.address).await.unwrap();
        let request = format!(
            "POST {line} HTTP/1.1\r\n{hosts}Authorization: Bearer {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{PING}",
            world.token,
            PING.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        assert_eq!(
            read_response(&mut stream).await.0,
            expected,
            "{line} {hosts}"
        );
    }
}

#[tokio::test]
async fn http_2_is_served_like_http_1() {
    let world = World::start().await;
    let http = reqwest::Client::builder()
        .no_proxy()
        .http2_prior_knowledge()
        .build()
        .unwrap();
    let post = |url: String| {
        http.post(url)
            .bearer_auth(&world.token)
            .header("content-type", "application/json")
            .body(PING)
    };
    let response = post(world.url("/mcp")).send().await.unwrap();
    assert_eq!(response.version(), reqwest::Version::HTTP_2);
    assert_eq!(response.status(), 200, "{:?}", response.text().await);
    // A foreign host name is refused over HTTP/2 too.
    let rebound = reqwest::Client::builder()
        .no_proxy()
        .http2_prior_knowledge()
        .resolve("evil.example", world.address)
        .build()
        .unwrap();
    let request = rebound.post(format!("http://evil.example:{}/mcp", world.address.port()));
    assert_eq!(
        Reply::to(request.bearer_auth(&world.token)).await.status,
        403
    );
}

/// Sends the preflight request of a browser for a page of `origin`.
async fn preflight(world: &World, origin: &str) -> Reply {
    let request = world
        .http
        .request(Method::OPTIONS, world.url("/mcp"))
        .header("origin", origin)
        .header("access-control-request-method", "POST")
        .header(
            "access-control-request-headers",
            "authorization, mcp-method, x-other, Mcp-Param-Region, mcp-param-a b",
        );
    Reply::to(request).await
}

#[tokio::test]
async fn pages_of_a_welcome_origin_may_call_and_read_the_answer() {
    let world = World::start_with(json!({ "allowed_origins": ["https://console.example"] })).await;
    for origin in ["https://console.example", "http://localhost:3000"] {
        let reply = preflight(&world, origin).await;
        assert_eq!((reply.status, &*reply.text), (204, ""));
        assert_eq!(reply.header("access-control-allow-origin"), origin);
        assert_eq!(
            reply.header("access-control-allow-methods"),
            "GET, POST, DELETE"
        );
        assert_eq!(reply.header("vary"), "origin");
        let headers = reply.header("access-control-allow-headers");
        for needed in [
            "authorization",
            "content-type",
            "accept",
            "mcp-protocol-version",
            "mcp-method",
            "mcp-name",
            "idempotency-key",
            "mcp-param-region",
        ] {
            assert!(headers.contains(needed), "{needed} in {headers}");
        }
        assert!(!headers.contains("x-other") && !headers.contains("param-a"));
        // The page can read the answers, including refusals and their challenge.
        let called = world
            .tools_call(MODERN, "reads", "{}")
            .header("origin", origin);
        let called = Reply::to(called).await;
        assert!(called.is_released());
        let refused = world.message_of("garbage", MODERN, "tools/list", "");
        let refused = Reply::to(refused.header("origin", origin)).await;
        assert_eq!(refused.status, 401);
        for reply in [called, refused] {
            assert_eq!(reply.header("access-control-allow-origin"), origin);
            assert_eq!(reply.header("vary"), "origin");
            let exposed = reply.header("access-control-expose-headers");
            assert_eq!(
                exposed,
                "www-authenticate, mcp-session-id, retry-after, ratelimit-policy, ratelimit"
            );
        }
    }
}

#[tokio::test]
async fn pages_of_a_foreign_origin_may_neither_call_nor_read() {
    let world = World::start_with(json!({ "allowed_origins": ["https://console.example"] })).await;
    for origin in [
        "https://evil.example",
        "https://console.example.evil",
        "null",
    ] {
        let asked = preflight(&world, origin).await;
        let called = world
            .tools_call(MODERN, "reads", "{}")
            .header("origin", origin);
        let called = Reply::to(called).await;
        for reply in [asked, called] {
            assert_eq!(reply.status, 403, "{origin}");
            assert_eq!(reply.header("access-control-allow-origin"), "");
        }
    }
    assert_eq!(world.policy.asked.count(), 0);
    // A request without an Origin header does not come from a browser's page.
    let plain = Reply::to(world.tools_call(MODERN, "reads", "{}")).await;
    assert_eq!(plain.header("access-control-allow-origin"), "");
}
