//! What is not carried, and what its client is told to mend.

use std::time::{Duration, Instant};

use serde_json::json;
use wardgate_domain::{DenialReason, Status};
use wardgate_proto::common::v1::ErrorReason;

use super::{UP, call, count, post, request, text, world, world_with};
use crate::fakes::PolicyAnswer;
use crate::fakes::relay::RelayBehavior;
use crate::world::{LEGACY, META, MODERN, OLDEST, Reply};

#[tokio::test]
async fn a_message_that_is_not_what_it_must_be_is_refused_by_name() {
    let world = world().await;
    let before = count(&world);
    for (body, status, code, names) in [
        ("{", 400, -32700, ""),
        (
            r#"{"jsonrpc":"2.0","id":7,"id":8,"method":"ping"}"#,
            400,
            -32700,
            "",
        ),
        ("7", 400, -32600, "JSON object"),
        (
            r#"{"jsonrpc":"1.0","id":7,"method":"ping"}"#,
            400,
            -32600,
            "jsonrpc",
        ),
        (
            r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
            400,
            -32600,
            "`id`",
        ),
        (r#"{"jsonrpc":"2.0","id":7}"#, 400, -32600, "`method`"),
        (&text(LEGACY, "tools/call", ""), 200, -32602, "params.name"),
        (
            &text(LEGACY, "tools/call", r#""name":7"#),
            200,
            -32602,
            "params.name",
        ),
        (
            &text(LEGACY, "tools/call", r#""name":"read","arguments":[]"#),
            200,
            -32602,
            "params.arguments",
        ),
        (
            &text(LEGACY, "resources/read", ""),
            200,
            -32602,
            "params.uri",
        ),
        (&text(LEGACY, "prompts/get", ""), 200, -32602, "params.name"),
        (
            &text(
                LEGACY,
                "completion/complete",
                r#""ref":{"type":"ref/tool"}"#,
            ),
            200,
            -32602,
            "params.ref",
        ),
    ] {
        for version in [None, Some(LEGACY), Some(OLDEST)] {
            let mut request = post(&world, UP, body.to_owned());
            if let Some(version) = version {
                request = request.header("mcp-protocol-version", version);
            }
            let reply = Reply::to(request).await;
            assert_eq!(
                (reply.status, reply.code()),
                (status, code),
                "{body} {reply:?}"
            );
            assert!(reply.text.contains(names), "{body} {reply:?}");
        }
    }
    assert_eq!(count(&world), before);
    assert_eq!(world.audit.attempts.count(), 0);
}

#[tokio::test]
async fn headers_that_differ_from_the_body_are_refused() {
    let world = world().await;
    let before = count(&world);
    let body = text(MODERN, "tools/call", r#""name":"read""#);
    let version = ("mcp-protocol-version", MODERN);
    let method = ("mcp-method", "tools/call");
    let name = ("mcp-name", "read");
    let older = ("mcp-protocol-version", LEGACY);
    for headers in [
        &[][..],
        &[method, name],
        &[version, name],
        &[version, method],
        &[older, method, name],
        &[version, ("mcp-method", "tools/list"), name],
        &[version, method, ("mcp-name", "write")],
        &[version, method, name, ("mcp-name", "write")],
        &[version, method, ("mcp-name", "=?base64?cmVhZA=?=")],
    ] {
        let request = headers
            .iter()
            .fold(post(&world, UP, body.clone()), |it, (name, value)| {
                it.header(*name, *value)
            });
        let reply = Reply::to(request).await;
        assert_eq!(
            (reply.status, reply.code()),
            (400, -32020),
            "{headers:?} {reply:?}"
        );
        assert_eq!(reply.at("/id"), 7);
    }
    // A request of 2026-07-28 says all of itself.
    let bare = text(LEGACY, "tools/call", r#""name":"read""#);
    let reply = Reply::to(post(&world, UP, bare).header("mcp-protocol-version", MODERN)).await;
    assert_eq!((reply.status, reply.code()), (400, -32602));
    assert!(reply.text.contains("protocolVersion"), "{reply:?}");
    let half = body.replace(r#","io.modelcontextprotocol/clientCapabilities":{}"#, "");
    assert_ne!(half, body);
    assert!(body.contains(META));
    let request = [version, method, name]
        .into_iter()
        .fold(post(&world, UP, half), |it, (name, value)| {
            it.header(name, value)
        });
    let reply = Reply::to(request).await;
    assert_eq!((reply.status, reply.code()), (400, -32602));
    for unknown in ["2099-01-01", "x"] {
        let request = post(&world, UP, text(LEGACY, "ping", ""));
        let reply = Reply::to(request.header("mcp-protocol-version", unknown)).await;
        assert_eq!((reply.status, reply.code()), (400, -32022), "{unknown}");
    }
    assert_eq!(count(&world), before);
}

#[tokio::test]
async fn media_types_methods_and_sizes_are_those_of_the_gateway() {
    let world = world_with(json!({ "limits": { "body_bytes": 4096 } })).await;
    let before = count(&world);
    let send = |content: &'static str, accept: &'static str, size: usize| {
        let ping = text(LEGACY, "ping", "");
        let request = world.http.post(world.url(UP)).bearer_auth(&world.token);
        let request = request
            .header("content-type", content)
            .header("accept", accept);
        let padding = " ".repeat(size - ping.len());
        Reply::to(request.body(ping + &padding))
    };
    for (content, accept, size, status) in [
        ("text/plain", "*/*", 100, 415),
        ("application/json", "text/event-stream", 100, 406),
        ("application/json", "*/*", 4097, 413),
    ] {
        let reply = send(content, accept, size).await;
        assert_eq!((reply.status, reply.code()), (status, -32600));
    }
    for method in ["PUT", "PATCH", "GET"] {
        let request = world.http.request(method.parse().unwrap(), world.url(UP));
        let reply = Reply::to(request.bearer_auth(&world.token)).await;
        assert_eq!(
            (reply.status, reply.header("allow")),
            (405, "GET, POST, DELETE")
        );
    }
    assert_eq!(count(&world), before);
    assert_eq!(send("application/json", "*/*", 4096).await.status, 200);
}

#[tokio::test]
async fn what_the_tool_runner_does_not_carry_is_told_by_its_reason() {
    let world = world().await;
    for (number, (reason, status, code, recorded)) in [
        (
            ErrorReason::InvalidMessage,
            400,
            -32600,
            Status::InvalidArguments,
        ),
        (ErrorReason::Denied, 200, -32602, Status::Denied),
        (ErrorReason::UnknownTool, 200, -32602, Status::UnknownTool),
        (ErrorReason::Unavailable, 200, -32603, Status::Error),
        (ErrorReason::Internal, 200, -32603, Status::Error),
    ]
    .into_iter()
    .enumerate()
    {
        let fails = || RelayBehavior::Fail(reason);
        world.tool_runner.relays.next([fails(), fails()]);
        let called = Reply::to(call(&world, MODERN, "read")).await;
        let asked = Reply::to(request(&world, LEGACY, "ping", "")).await;
        assert_eq!((called.status, called.code()), (status, code), "{reason:?}");
        assert_eq!((called.at("/id"), asked.at("/id")), (json!(7), json!(7)));
        assert_ne!(asked.code(), 0, "{reason:?}");
        let words = match reason {
            // The words are the tool-runner's: they name what to mend.
            ErrorReason::InvalidMessage | ErrorReason::Denied => "as ordered",
            ErrorReason::UnknownTool => "Unknown tool: read",
            _ => "Try again later",
        };
        assert!(called.text.contains(words), "{called:?}");
        let outcome = world
            .audit
            .outcomes
            .reaches(number + 1)
            .await
            .pop()
            .unwrap();
        assert_eq!(outcome.status, recorded, "{reason:?}");
        assert_eq!(outcome.call.call_id.to_string(), called.failed_call());
        assert!(
            called
                .at("/error/data/dev.wardgate~1receipt/leafHash")
                .is_string()
        );
    }
}

#[tokio::test]
async fn a_request_that_wants_no_answer_is_refused_and_nothing_runs() {
    let world = world().await;
    let before = count(&world);
    for method in [
        "tools/call",
        "tools\\/call",
        "resources/read",
        "ping",
        "vendor/do",
    ] {
        let body = format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{{"name":"read"}}}}"#);
        for version in [LEGACY, MODERN] {
            let request = post(&world, UP, body.clone());
            let reply = Reply::to(request.header("mcp-protocol-version", version)).await;
            assert_eq!((reply.status, reply.code()), (400, -32600), "{method}");
            assert!(reply.text.contains("`id`"), "{reply:?}");
        }
    }
    assert_eq!(count(&world), before);
    assert_eq!(world.audit.attempts.count(), 0);
}

#[tokio::test]
async fn what_is_too_much_is_turned_away_and_cancellations_and_streams_of_changes_pass() {
    let one = json!({ "min": 1, "max": 1, "initial": 1, "queue": 0 });
    let world = world_with(json!({ "concurrency": one })).await;
    let _hangs = world.tool_runner.relays.live();
    let carried = count(&world);
    tokio::spawn(Reply::to(call(&world, LEGACY, "read")));
    world.tool_runner.relays.asked.reaches(carried + 1).await;
    let (before, intents) = (count(&world), world.audit.intents.count());

    let reply = Reply::to(call(&world, LEGACY, "write")).await;
    assert_eq!((reply.status, reply.code()), (503, -32603));
    assert_eq!(
        (reply.at("/id"), reply.at("/error/data/reason")),
        (json!(7), json!("overloaded"))
    );
    assert!(!reply.header("retry-after").is_empty());
    assert_eq!(
        (count(&world), world.audit.intents.count()),
        (before, intents)
    );

    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#;
    let cancel = post(&world, UP, cancel).header("mcp-protocol-version", LEGACY);
    assert_ne!(Reply::to(cancel).await.status, 503);
    assert_eq!(count(&world), before + 1);
}

#[tokio::test]
async fn an_answer_that_there_is_no_such_thing_leaves_at_a_step() {
    let world = world().await;
    let step = Duration::from_millis(50);
    let nonesuch = text(LEGACY, "tools/call", r#""name":"nonesuch""#);
    let read = text(LEGACY, "tools/call", r#""name":"read""#);
    let timed = async |path: &str, body: &str| {
        let request = post(&world, path, body).header("mcp-protocol-version", LEGACY);
        let started = Instant::now();
        let reply = Reply::to(request).await;
        assert!(started.elapsed() >= step, "{path}: {reply:?}");
        reply
    };
    assert_eq!(timed(UP, &nonesuch).await.code(), -32602);
    for path in ["/mcp/upstream/off", "/mcp/upstream/nonesuch"] {
        assert_eq!(timed(path, &read).await.status, 404);
    }
    world.policy.says(PolicyAnswer::Deny {
        reason: DenialReason::NotPermitted,
        visible: false,
    });
    let hidden = timed(UP, &read).await;
    assert_eq!(hidden.at("/error/data/reason"), "unknown_tool");
}

#[tokio::test]
async fn a_call_that_its_agent_refused_is_not_carried() {
    let world = world().await;
    let before = count(&world);
    for (version, meta) in [
        (LEGACY, r#""dev.wardgate/refusedByAgent":"in_data""#),
        (LEGACY, r#""dev.wardgate/refusedByAgent":"anything else""#),
    ] {
        let params = format!(r#""name":"read","_meta":{{{meta}}}"#);
        let body = text(version, "tools/call", &params);
        let request = post(&world, UP, body).header("mcp-protocol-version", version);
        let reply = Reply::to(request).await;
        assert_eq!(reply.code(), -32602, "{reply:?}");
        assert!(reply.text.contains("refusedByAgent"), "{reply:?}");
    }
    assert_eq!(count(&world), before);
}
