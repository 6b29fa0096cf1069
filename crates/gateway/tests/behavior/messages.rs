//! The JSON-RPC layer: versions, ids, batches, notifications, and invalid messages.

use std::fmt::Write;

use insta::assert_snapshot;

use crate::shapes::{fetch_shape, pretty};
use crate::world::{LEGACY, META, MODERN, OLDEST, Reply, World};

#[tokio::test]
async fn errors() {
    let world = World::start().await;
    let of = |version, method, params| world.message(version, method, params);
    let body = |version, body: &'static str| of(version, "ping", "").body(body);
    let call = |tool| world.tools_call(MODERN, tool, "{}");
    let post = |path| world.http.post(world.url(path));
    let cases = [
        ("malformed", body(LEGACY, "{")),
        ("duplicate key", body(LEGACY, r#"{"id":1,"id":2}"#)),
        ("no method", body(LEGACY, r#"{"jsonrpc":"2.0","id":1}"#)),
        (
            "id is null",
            body(LEGACY, r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#),
        ),
        ("batch", body(LEGACY, "[]")),
        ("empty batch", body(OLDEST, "[]")),
        ("no token", post("/mcp")),
        ("no path", post("/nowhere")),
        ("removed method", of(MODERN, "ping", "")),
        ("unknown method", of(LEGACY, "server/discover", "")),
        ("no tool name", of(LEGACY, "tools/call", "")),
        ("unknown tool", call("nonesuch")),
        (
            "arguments are a list",
            world.tools_call(OLDEST, "reads", "[]"),
        ),
        ("cursor", of(MODERN, "tools/list", r#""cursor":"x""#)),
        ("unknown version", of("2099-01-01", "ping", "")),
        (
            "header differs",
            of(MODERN, "tools/call", r#""name":"reads""#).header("mcp-name", "writes"),
        ),
        (
            "header is repeated",
            call("reads").header("mcp-name", "reads"),
        ),
        ("header of another era", of(LEGACY, "tools/list", META)),
        (
            "no meta",
            body(MODERN, r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#),
        ),
    ];
    let mut lines = String::new();
    for (what, request) in cases {
        let answer = fetch_shape(request).await;
        let _ = writeln!(lines, "{what}: {} {}", answer[0], answer[1]);
    }
    assert_snapshot!(lines, @r##"
    malformed: 400 {"error":{"code":-32700,"message":"the body is not valid JSON, at byte 1"},"jsonrpc":"2.0"}
    duplicate key: 400 {"error":{"code":-32700,"message":"an object has the same key twice, at byte 8"},"jsonrpc":"2.0"}
    no method: 400 {"error":{"code":-32600,"message":"`method` is missing"},"id":1,"jsonrpc":"2.0"}
    id is null: 400 {"error":{"code":-32600,"message":"`id` must be a string or an integer"},"jsonrpc":"2.0"}
    batch: 400 {"error":{"code":-32600,"message":"batches are supported only in protocol version 2025-03-26"},"jsonrpc":"2.0"}
    empty batch: 400 {"error":{"code":-32600,"message":"a batch must contain 1 to 50 messages"},"jsonrpc":"2.0"}
    no token: 401 {"error":{"code":-32600,"data":{"reason":"token_missing"},"message":"send a bearer token in the Authorization header"},"jsonrpc":"2.0"}
    no path: 404 {"error":{"code":-32600,"data":{"reason":"not_found"},"message":"No such path; MCP is served at /mcp."},"jsonrpc":"2.0"}
    removed method: 404 {"error":{"code":-32601,"message":"Method 'ping' not found on server 'wardgate'"},"id":7,"jsonrpc":"2.0"}
    unknown method: 200 {"error":{"code":-32601,"message":"Method 'server/discover' not found on server 'wardgate'"},"id":7,"jsonrpc":"2.0"}
    no tool name: 200 {"error":{"code":-32602,"message":"`params.name` must be a string"},"id":7,"jsonrpc":"2.0"}
    unknown tool: 200 {"error":{"code":-32602,"data":{"dev.wardgate/callId":"[call id]","dev.wardgate/receipt":{"leafHash":"[leaf hash]"},"reason":"unknown_tool"},"message":"Unknown tool: nonesuch"},"id":7,"jsonrpc":"2.0"}
    arguments are a list: 200 {"error":{"code":-32602,"message":"`params.arguments` must be an object"},"id":7,"jsonrpc":"2.0"}
    cursor: 200 {"error":{"code":-32602,"message":"`cursor` is unknown: the list has only one page"},"id":7,"jsonrpc":"2.0"}
    unknown version: 400 {"error":{"code":-32022,"data":{"requested":"2099-01-01","supported":["2025-11-25","2025-06-18","2025-03-26"]},"message":"Unsupported protocol version; use one of 2025-11-25, 2025-06-18, 2025-03-26"},"id":7,"jsonrpc":"2.0"}
    header differs: 400 {"error":{"code":-32020,"message":"the header Mcp-Name differs from the body"},"id":7,"jsonrpc":"2.0"}
    header is repeated: 400 {"error":{"code":-32020,"message":"send the header Mcp-Name exactly once"},"id":7,"jsonrpc":"2.0"}
    header of another era: 400 {"error":{"code":-32020,"message":"the header MCP-Protocol-Version differs from the body"},"id":7,"jsonrpc":"2.0"}
    no meta: 400 {"error":{"code":-32602,"message":"requests of 2026-07-28 require `_meta` with io.modelcontextprotocol/protocolVersion and io.modelcontextprotocol/clientCapabilities"},"id":1,"jsonrpc":"2.0"}
    "##);
}

#[tokio::test]
async fn a_batch_of_the_version_that_has_them() {
    let world = World::start().await;
    let batch = r#"[
        {"jsonrpc":"2.0","id":"one","method":"ping"},
        {"jsonrpc":"2.0","method":"notifications/initialized"},
        {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"reads"}}
    ]"#;
    let answer = fetch_shape(world.message(OLDEST, "ping", "").body(batch)).await;
    assert_snapshot!(pretty(&answer), @r##"
    [
      200,
      [
        {
          "id": "one",
          "jsonrpc": "2.0",
          "result": {}
        },
        {
          "id": 2,
          "jsonrpc": "2.0",
          "result": {
            "_meta": {
              "dev.wardgate/callId": "[call id]",
              "dev.wardgate/receipt": {
                "leafHash": "[leaf hash]"
              }
            },
            "content": [
              {
                "text": "the secret result",
                "type": "text"
              }
            ],
            "isError": false
          }
        }
      ]
    ]
    "##);
}

#[tokio::test]
async fn a_notification_wants_no_answer() {
    let world = World::start().await;
    for version in [MODERN, LEGACY, OLDEST] {
        for body in [
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        ] {
            let reply = Reply::to(world.message(version, "ping", "").body(body)).await;
            assert_eq!((reply.status, &*reply.text), (202, ""));
        }
    }
}

#[tokio::test]
async fn an_id_comes_back_as_it_was_written() {
    let world = World::start().await;
    for id in ["7", "-1", "9007199254740993", r#""a\u0041\/""#, r#""""#] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
        let reply = Reply::to(world.message(LEGACY, "ping", "").body(body)).await;
        assert_eq!(
            reply.text,
            format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)
        );
    }
}

#[tokio::test]
async fn a_message_that_names_no_version_is_of_the_last_that_had_no_header() {
    let world = World::start().await;
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"reads"}}"#;
    let bare = world
        .http
        .post(world.url("/mcp"))
        .bearer_auth(&world.token)
        .header("content-type", "application/json")
        .body(call);
    assert!(Reply::to(bare).await.is_released());
    assert_eq!(world.audit.outcome().await.call.protocol, OLDEST);
}
