//! What goes through, byte for byte, and what never does.

use http::Method;
use tokio::net::TcpListener;
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_proto::toolrunner::v1::relay_response::Part;

use super::{META, World, body, call, connect, events, failure, head, json_answer, status, typed};
use crate::tests::harness::eventually;

/// Arguments that a typed client would not leave as they are.
const ODD: &str = r#"{ "z":1.10, "a":12345678901234567890123, "é\u00e9":[1.0E+2] }"#;

#[tokio::test]
async fn a_modern_call_and_its_answer_go_through_byte_for_byte() {
    let world = World::with(", auth: { type: bearer, token: own-secret }", |_| ()).await;
    let answer = r#"{ "id":7,"result":{"x-vendor":1.10,"resultType":"complete","isError":false,"content":[{"type":"hologram"}]},"jsonrpc":"2.0","more":null}"#;
    world.says(json_answer(200, answer));
    let mut request = call(&world.harness, ODD).await;
    request.message = format!(
        r#"{{"method":"tools/call","x-vendor":1.10,"jsonrpc":"2.0","params":{{"arguments":{ODD},{META},"name":"read","requestState":"s"}},"id":7}}"#
    )
    .into();
    request.headers = vec![pb::RelayHeader {
        name: "Mcp-Param-Region".to_owned(),
        value: "=?base64?WsO8cmljaA==?=".to_owned(),
    }];
    request.governed_id = "7".to_owned();
    let sent = request.message.clone();

    let parts = world.all(request).await;

    assert_eq!(head(&parts[0]).status, 200);
    assert_eq!(head(&parts[0]).content(), pb::RelayContent::Json);
    assert_eq!(body(&parts[1]).message, answer);
    let facts = body(&parts[1]).result.as_ref().unwrap();
    assert_eq!(facts.status(), pb::OutcomeStatus::Ok);
    assert_eq!(
        (facts.rows, facts.fields_redacted, facts.phi),
        (0, 0, false)
    );
    assert_eq!(parts.len(), 2);
    let saw = world.saw();
    assert_eq!(saw.body, sent);
    for (name, value) in [
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "read"),
        ("mcp-param-region", "=?base64?WsO8cmljaA==?="),
        ("authorization", "Bearer own-secret"),
    ] {
        assert_eq!(saw.header(name), Some(value), "{name}");
    }
    assert_eq!(saw.header("mcp-session-id"), None);
    assert_eq!(saw.header("last-event-id"), None);
}

#[tokio::test]
async fn no_other_header_of_a_clients_can_be_sent_along() {
    let world = World::start().await;
    for (name, value) in [
        ("Authorization", "Bearer theirs"),
        ("Cookie", "a=b"),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Param-A", "a\r\nAuthorization: b"),
        ("Mcp-Param-\n", "a"),
    ] {
        let mut request = call(&world.harness, "{}").await;
        request.headers = vec![pb::RelayHeader {
            name: name.to_owned(),
            value: value.to_owned(),
        }];
        let refused = world.relay(request).await.err().unwrap();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{name}");
    }
    assert!(world.seen().is_empty());
}

#[tokio::test]
async fn errors_keep_their_status_and_their_words() {
    let world = World::start().await;
    let error = r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32021,"message":"no","data":{"requiredCapabilities":{"sampling":{}}}}}"#;
    for (code, text) in [
        (400, error),
        (404, error),
        (500, error),
        (200, error),
        (
            400,
            r#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"no"}}"#,
        ),
    ] {
        world.says(json_answer(code, text));
        let parts = world.all(call(&world.harness, "{}").await).await;
        assert_eq!(head(&parts[0]).status, u32::from(code));
        assert_eq!(body(&parts[1]).message, text);
        let facts = body(&parts[1]).result.as_ref().unwrap();
        assert_eq!(facts.status(), pb::OutcomeStatus::ToolError, "{code}");
    }
    for code in [400, 404, 405, 429, 503] {
        world.says(status(code));
        let parts = world.all(call(&world.harness, "{}").await).await;
        assert_eq!(head(&parts[0]).status, u32::from(code));
        assert_eq!(head(&parts[0]).content(), pb::RelayContent::None);
        assert_eq!(parts.len(), 1, "a page for people is dropped");
    }
}

#[tokio::test]
async fn what_concerns_this_platform_alone_is_not_passed_on() {
    let world = World::start().await;
    for (answer, kind) in [
        (json_answer(401, "{}"), "upstream_unauthorized"),
        (status(401), "upstream_unauthorized"),
        (status(403), "upstream_unauthorized"),
        (status(307), "http_status"),
        (status(200), "bad_result"),
        (status(202), "bad_result"),
        (json_answer(200, "[]"), "bad_result"),
        (
            json_answer(200, r#"{"jsonrpc":"2.0","id":8,"result":{}}"#),
            "bad_result",
        ),
        (json_answer(200, r#"{"jsonrpc":"2.0","id":7"#), "bad_result"),
        (
            json_answer(200, r#"{"jsonrpc":"2.0","id":7,"result":{},"Result":{}}"#),
            "bad_result",
        ),
        (
            typed(200, "application/json", vec![b' '; (1 << 20) + 1].into()),
            "result_too_large",
        ),
    ] {
        world.says(answer);
        let parts = world.all(call(&world.harness, "{}").await).await;
        let (_, facts) = failure(&parts);
        assert_eq!(facts.error_kind, kind);
        assert_eq!(facts.status(), pb::OutcomeStatus::ToolError);
        assert_eq!(parts.len(), 1);
    }
}

#[tokio::test]
async fn a_legacy_session_is_the_servers_own_from_its_beginning_to_its_end() {
    let world = World::start().await;
    let initialize = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;
    let mut opens = connect(&world.harness, initialize).await;
    (opens.session, opens.protocol_version) = (String::new(), String::new());
    let mut answer = json_answer(200, r#"{"jsonrpc":"2.0","id":0,"result":{}}"#);
    let id = "0123-visible~ascii".parse().unwrap();
    answer.headers_mut().insert("mcp-session-id", id);
    world.says(answer);
    let parts = world.all(opens).await;
    assert_eq!(head(&parts[0]).session, "0123-visible~ascii");
    let facts = body(&parts[1]).result.as_ref().unwrap();
    assert_eq!(facts.status(), pb::OutcomeStatus::Ok);

    let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let mut notice = connect(&world.harness, initialized).await;
    notice.protocol_version = "2025-03-26".to_owned();
    world.says(status(202));
    let parts = world.all(notice).await;
    assert_eq!((head(&parts[0]).status, parts.len()), (202, 1));

    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    world.says(json_answer(200, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#));
    world.all(connect(&world.harness, ping).await).await;

    let mut leaves = connect(&world.harness, "").await;
    leaves.method = pb::RelayMethod::Delete.into();
    world.says(status(200));
    assert_eq!(head(&world.all(leaves).await[0]).status, 200);
    world.says(status(404));
    let late = world.all(connect(&world.harness, ping).await).await;
    assert_eq!(head(&late[0]).status, 404);

    let seen = world.seen();
    let of = |at: usize, name| seen[at].header(name);
    assert_eq!(of(0, "mcp-session-id"), None);
    assert_eq!(of(0, "mcp-protocol-version"), None);
    assert_eq!(of(0, "mcp-method"), None, "2026-07-28 alone repeats");
    assert_eq!(of(1, "mcp-session-id"), Some("s-1"));
    assert_eq!(
        of(1, "mcp-protocol-version"),
        None,
        "2025-03-26 does not know it"
    );
    assert_eq!(of(2, "mcp-protocol-version"), Some("2025-11-25"));
    assert_eq!(seen[3].method, Method::DELETE);
    assert_eq!(of(3, "mcp-session-id"), Some("s-1"));
    assert!(seen[3].body.is_empty());
}

#[tokio::test]
async fn a_session_id_that_is_not_legal_is_refused() {
    let world = World::start().await;
    for id in ["with space", &"x".repeat(1025)] {
        let mut answer = json_answer(200, r#"{"jsonrpc":"2.0","id":7,"result":{}}"#);
        let headers = answer.headers_mut();
        headers.insert("mcp-session-id", id.parse().unwrap());
        world.says(answer);
        let parts = world.all(call(&world.harness, "{}").await).await;
        assert_eq!(failure(&parts).1.error_kind, "bad_result");
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_fails_well_formed() {
    let world = World::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nobody = format!("http://{}/mcp", listener.local_addr().unwrap());
    drop(listener);
    // What the server offers is known from before it moved away.
    let yaml = std::fs::read_to_string(&world.harness.file).unwrap();
    let moved = yaml.replace(&world.url, &nobody);
    std::fs::write(&world.harness.file, moved).unwrap();
    eventually("it is gone", async || {
        let parts = world.all(call(&world.harness, "{}").await).await;
        let Some(Part::Failure(failure)) = parts.first() else {
            return false;
        };
        let facts = failure.facts.as_ref().unwrap();
        assert_eq!(facts.error_kind, "source_unavailable", "{}", failure.text);
        true
    })
    .await;
}

#[tokio::test]
async fn a_server_that_only_fails_is_left_alone() {
    let world = World::with(", breaker: { failures: 2, probe_after: 1h }", |_| ()).await;
    for _ in 0..2 {
        world.says(status(503));
        let parts = world.all(call(&world.harness, "{}").await).await;
        assert_eq!(head(&parts[0]).status, 503);
    }
    for request in [
        call(&world.harness, "{}").await,
        connect(
            &world.harness,
            r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
        )
        .await,
    ] {
        let parts = world.all(request).await;
        let (_, facts) = failure(&parts);
        assert_eq!(facts.error_kind, "source_unavailable");
        assert!(facts.retry_after.is_some());
    }
    assert_eq!(world.seen().len(), 2);
}

#[tokio::test]
async fn when_to_come_back_is_told_in_the_servers_own_words_if_it_says_that_and_nothing_else() {
    let world = World::start().await;
    let date = "Sun, 06 Nov 1994 08:49:37 GMT";
    for (code, said, told) in [
        (429, "17", "17"),
        (503, date, date),
        (503, "secret", ""),
        (429, "-1", ""),
        (429, "", ""),
    ] {
        for with_body in [true, false] {
            let error = r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32000,"message":"busy"}}"#;
            let mut answer = if with_body {
                json_answer(code, error)
            } else {
                status(code)
            };
            answer
                .headers_mut()
                .insert("retry-after", said.parse().unwrap());
            world.says(answer);
            let parts = world.all(call(&world.harness, "{}").await).await;
            let head = head(&parts[0]);
            assert_eq!((head.status, &*head.retry_after), (u32::from(code), told));
            assert_eq!(parts.len(), if with_body { 2 } else { 1 });
        }
    }
}

#[tokio::test]
async fn a_long_answer_comes_in_pieces_and_is_the_same() {
    let world = World::start().await;
    let text = "x".repeat(1_000_000);
    let answer = format!(
        r#"{{"jsonrpc":"2.0","id":7,"result":{{"content":[{{"type":"text","text":"{text}"}}]}}}}"#
    );
    for streamed in [false, true] {
        world.says(if streamed {
            events(&format!("data: {answer}\n\n"))
        } else {
            json_answer(200, &answer)
        });
        let parts = world.all(call(&world.harness, "{}").await).await;
        let (first, more, facts) = match &parts[1] {
            Part::Body(body) => (&body.message, body.more, &body.result),
            Part::Event(event) => (&event.message, event.more, &event.result),
            other => panic!("no message: {other:?}"),
        };
        assert!(facts.is_some());
        let mut whole = first.to_vec();
        for part in &parts[2..] {
            let Part::Piece(piece) = part else {
                panic!("no piece: {part:?}");
            };
            assert!(piece.len() <= 64 * 1024);
            whole.extend_from_slice(piece);
        }
        assert_eq!(whole.len(), first.len() + usize::try_from(more).unwrap());
        assert!(whole == answer.as_bytes());
    }
}
