//! Tests of valid and invalid responses, and of content that must never be shown.

use futures::stream;

use super::*;

async fn memory(gateway: &GatewayEndpoint) -> Result<Value, GatewayError> {
    let params = json!({ "conversation_id": "c" });
    gateway
        .memory(&token("t"), "memory/get_context", params)
        .await
}

#[tokio::test]
async fn a_memory_method_gives_its_result_or_the_gateways_error() {
    let script = ScriptedGateway::new(|seen| {
        if seen.body["params"]["conversation_id"] == "c" {
            seen.result(&json!({ "messages": [], "uncovered": 0 }))
        } else {
            seen.error(200, -32602, "Unknown conversation", &json!({}))
        }
    });
    for gateway in script.doors().await {
        let result = memory(&gateway).await.unwrap();
        assert_eq!(result["messages"], json!([]));
        let params = json!({ "conversation_id": "other" });
        let refused = gateway.memory(&token("t"), "memory/clear", params).await;
        let Err(GatewayError::Refused(fault)) = refused else {
            panic!("{refused:?}")
        };
        assert_eq!(
            (fault.code, fault.message.as_str()),
            (-32602, "Unknown conversation")
        );
    }
    let seen = &script.requests()[0];
    assert_eq!(seen.header("mcp-method"), "memory/get_context");
    assert!(!seen.headers.contains_key("mcp-name"));
}

#[tokio::test]
async fn an_answer_may_come_as_events_behind_notifications() {
    let script = ScriptedGateway::new(|seen| {
        let note = json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": {} });
        let other = json!({ "jsonrpc": "2.0", "id": "other", "result": {} });
        let answer = json!({ "jsonrpc": "2.0", "id": seen.body["id"], "result": { "n": 1 } });
        event_stream(format!(
            ": hello\n\ndata: {note}\n\ndata: {other}\n\nevent: message\ndata: {answer}\n\n"
        ))
    });
    for gateway in script.doors().await {
        assert_eq!(memory(&gateway).await, Ok(json!({ "n": 1 })));
    }
}

#[tokio::test]
async fn events_end_with_the_answer_even_if_the_stream_does_not() {
    let script = ScriptedGateway::new(|seen| {
        let answer = json!({ "jsonrpc": "2.0", "id": seen.body["id"], "result": 5 });
        let first = stream::iter([Ok::<_, std::io::Error>(format!("data: {answer}\n\n"))]);
        event_stream(Body::from_stream(futures::StreamExt::chain(
            first,
            stream::pending(),
        )))
    });
    for gateway in script.doors().await {
        assert_eq!(memory(&gateway).await, Ok(json!(5)));
    }
}

#[tokio::test]
async fn what_cannot_be_used_is_an_error_that_says_how() {
    use GatewayError::{TooLarge, Unauthorized, Unreachable, Unreadable};
    type ScriptedAnswer = fn(&ReceivedRequest) -> Response;
    let cases: [(&str, ScriptedAnswer, GatewayError); 10] = [
        ("no JSON", |_| json_response("<html>"), Unreadable),
        (
            "nothing",
            |_| StatusCode::ACCEPTED.into_response(),
            Unreadable,
        ),
        (
            "neither",
            |seen| json_response(json!({ "id": seen.body["id"] }).to_string()),
            Unreadable,
        ),
        (
            "another's",
            |_| json_response(json!({ "id": -1, "result": {} }).to_string()),
            Unreadable,
        ),
        ("cut", |_| event_stream("data: {\"id\""), Unreachable),
        ("no answer", |_| event_stream("data: {}\n\n"), Unreachable),
        (
            "down",
            |_| (StatusCode::BAD_GATEWAY, "bad gateway").into_response(),
            Unreachable,
        ),
        (
            "token",
            |seen| seen.error(401, -32600, "expired", &json!({})),
            Unauthorized,
        ),
        ("large", |_| json_response(" ".repeat(17 << 20)), TooLarge),
        (
            "large event",
            |_| event_stream(format!("data: {}\n\n", " ".repeat(17 << 20))),
            TooLarge,
        ),
    ];
    for (what, answer, error) in cases {
        for gateway in ScriptedGateway::new(answer).doors().await {
            assert_eq!(memory(&gateway).await, Err(error.clone()), "{what}");
        }
    }
}

#[tokio::test]
async fn a_refusal_without_an_id_is_heard() {
    let script = ScriptedGateway::new(|_| {
        let error = json!({ "code": -32700, "message": "nested too deeply" });
        (
            StatusCode::BAD_REQUEST,
            json_response(json!({ "jsonrpc": "2.0", "error": error }).to_string()),
        )
            .into_response()
    });
    let refused = memory(&script.in_process()).await.unwrap_err();
    assert_eq!(refused.to_string(), "nested too deeply");
}

#[tokio::test]
async fn a_gateway_that_is_away_is_told_from_one_that_is_slow() {
    let nobody = GatewayEndpoint::over_http(&"http://127.0.0.1:1".parse().unwrap(), None).unwrap();
    assert_eq!(memory(&nobody).await, Err(GatewayError::Unreachable));
}

#[tokio::test(start_paused = true)]
async fn nothing_waits_for_ever() {
    let silent = ScriptedGateway::slow(|_| Box::pin(std::future::pending()));
    assert_eq!(memory(&silent.in_process()).await, Err(GatewayError::Late));
    let endless = ScriptedGateway::new(|_| {
        event_stream(Body::from_stream(
            stream::pending::<std::io::Result<String>>(),
        ))
    });
    assert_eq!(memory(&endless.in_process()).await, Err(GatewayError::Late));
    assert_eq!(
        call(&silent.in_process(), "get").await,
        Err(GatewayError::Late)
    );
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let script = ScriptedGateway::new(|_| {
        (StatusCode::TEMPORARY_REDIRECT, [("location", "/other")]).into_response()
    });
    for gateway in script.doors().await {
        assert_eq!(memory(&gateway).await, Err(GatewayError::Unreadable));
    }
    assert_eq!(script.requests().len(), 2);
}

#[test]
fn a_url_that_cannot_be_right_is_refused_with_the_fix() {
    for (url, fix) in [
        ("ftp://example.org", "http or https"),
        ("https://user:pw@example.org", "credentials"),
        ("https://example.org/?a=b", "remove the query"),
        ("https://example.org/mcp", "remove /mcp"),
        ("https://example.org/api/", "remove /api"),
    ] {
        let error = GatewayEndpoint::over_http(&url.parse().unwrap(), None).unwrap_err();
        assert!(error.to_string().contains(fix), "{url}: {error}");
    }
    for url in ["http://127.0.0.1:8080", "https://example.org/wardgate/"] {
        assert!(
            GatewayEndpoint::over_http(&url.parse().unwrap(), None).is_ok(),
            "{url}"
        );
    }
}

#[tokio::test]
async fn a_token_shows_nowhere() {
    let script = ScriptedGateway::new(|seen| seen.error(401, -32600, "expired", &json!({})));
    let secret = token("canary");
    for gateway in script.doors().await {
        let error = gateway.list_tools(&secret, None).await.unwrap_err();
        for shown in [
            format!("{gateway:?}"),
            format!("{error:?} {error}"),
            format!("{secret:?}"),
        ] {
            assert!(!shown.contains("canary"), "{shown}");
        }
    }
    let unfit = token("a\nb");
    let refused = script.in_process().list_tools(&unfit, None).await;
    assert_eq!(refused.unwrap_err(), GatewayError::Unauthorized);
}
