//! Tests of the conversion of responses.

use std::time::Duration;

use http::header::RETRY_AFTER;

use super::*;
use crate::executor::testing::refusal_text;
use wardgate_resilience::Health;

#[tokio::test]
async fn a_text_is_one_row_and_an_empty_response_none() {
    for (content_type, body, wanted) in [
        (
            "text/html; charset=utf-8",
            "<p>ü</p>",
            vec![json!({"text": "<p>ü</p>"})],
        ),
        ("Text/Plain", "[1]", vec![json!({"text": "[1]"})]),
        ("text/json", "{\"a\":1}", vec![json!({"a": 1})]),
        ("application/problem+json", "[1]", vec![json!({"value": 1})]),
        ("application/json", "", vec![]),
        ("", "7", vec![json!({"value": 7})]),
    ] {
        let recorder = Recorder::start_with_response(200, content_type, body).await;
        let out = recorder
            .tool("{ type: http, source: api }", "{}")
            .run(json!({}))
            .await
            .unwrap();
        assert_eq!(out.rows, wanted, "{content_type}");
    }
}

#[tokio::test]
async fn what_is_no_json_is_a_bad_result_that_quotes_nothing() {
    let deep = "[".repeat(100_000);
    for body in [
        "canary",
        "{\"canary\":1,\"canary\":2}",
        "{\"a\":\"canary\\u0000\"}",
        "[1,2] canary",
        "{\"canary\"",
        deep.as_str(),
    ] {
        let recorder = Recorder::start_with_response(200, "application/json", body).await;
        let error = recorder
            .tool("{ type: http, source: api }", "{}")
            .run(json!({}))
            .await
            .unwrap_err();
        assert!(matches!(error, ExecutorError::BadResult(_)), "{error}");
        assert!(!error.to_string().contains("canary"), "{error}");
    }
}

#[tokio::test]
async fn an_answer_without_the_place_of_its_rows_is_an_error_that_names_it() {
    for (rows, body, found) in [
        ("/items", r#"{"items":[]}"#, Some(0)),
        ("/items", r#"{"items":[{"a":1}]}"#, Some(1)),
        ("/items", r#"{"data":[]}"#, None),
        ("/items", "[]", None),
        ("/a/0", r#"{"a":[]}"#, None),
        ("$.items[*]", r#"{"items":[]}"#, Some(0)),
        ("$.items[?@.open]", r#"{"items":[{"open":null}]}"#, Some(1)),
        ("$.items[?@.a > 1]", r#"{"items":[{"a":1}]}"#, Some(0)),
        ("$.items[?@.a > 1]", r#"{"data":[{"a":1}]}"#, None),
        ("$.items", r#"{"data":[]}"#, None),
        ("$..items", r#"{"data":[]}"#, Some(0)),
    ] {
        let recorder = Recorder::start_with_response(200, "application/json", body).await;
        let tool = recorder.tool(
            "{ type: http, source: api }",
            &format!("{{ rows: '{rows}' }}"),
        );
        match (tool.run(json!({})).await, found) {
            (Ok(out), Some(found)) => assert_eq!(out.rows.len(), found, "{rows} of {body}"),
            (Err(error), None) => assert_eq!(
                error.to_string(),
                format!(
                    "the answer contains nothing at `{rows}`, which `result.rows` specifies as the location of its rows"
                )
            ),
            (outcome, _) => panic!("{rows} of {body}: {outcome:?}"),
        }
    }
}

#[tokio::test]
async fn a_status_that_is_no_success_is_named_and_nothing_else() {
    for (status, health) in [
        (302, Health::Up),
        (400, Health::Up),
        (404, Health::Up),
        (500, Health::Up),
        (429, Health::Busy(Duration::ZERO)),
        (502, Health::Down),
        (503, Health::Down),
        (504, Health::Down),
    ] {
        let recorder = Recorder::start_with_response(status, "text/plain", "canary").await;
        let error = recorder
            .tool("{ type: http, source: api }", "{}")
            .run(json!({}))
            .await
            .unwrap_err();
        assert_eq!(error.health(), health, "{status}");
        assert_eq!(
            refusal_text(error),
            format!("the service answered with status {status}")
        );
    }
}

#[test]
fn a_service_may_say_how_long_to_leave_it_alone() {
    for (value, health) in [
        ("7", Health::Busy(Duration::from_secs(7))),
        ("0", Health::Busy(Duration::ZERO)),
        ("-1", Health::Down),
        ("Fri, 31 Dec 1999 23:59:59 GMT", Health::Down),
        ("99999999999999999999", Health::Down),
    ] {
        let headers = HeaderMap::from_iter([(RETRY_AFTER, value.parse().unwrap())]);
        let error = status_error(StatusCode::SERVICE_UNAVAILABLE, &headers, String::new());
        assert_eq!(error.health(), health, "{value}");
    }
}

#[tokio::test]
async fn a_services_own_words_are_reported_where_the_tool_says_they_stand() {
    let said = json!({"error": {"message": "no such item"}}).to_string();
    for status in [200, 404] {
        let recorder =
            Recorder::start_with_response(status, "application/json", said.clone()).await;
        let tool = recorder.tool("{ type: http, source: api }", "{ error: /error/message }");
        let error = tool.run(json!({})).await.unwrap_err();
        assert!(
            matches!(&error, ExecutorError::Reported(words) if words == "no such item"),
            "{status}: {error}"
        );
    }
}

#[tokio::test]
async fn a_service_that_is_away_is_unreachable() {
    let recorder = Recorder::json(json!([])).await;
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = closed.local_addr().unwrap().port();
    drop(closed);
    let away = Recorder { port, ..recorder };
    let tool = away.tool("{ type: http, source: api, path: '/{id}' }", "{}");
    let error = tool.run(json!({"id": "canary"})).await.unwrap_err();
    assert!(matches!(error, ExecutorError::Unreachable(_)), "{error}");
    assert!(!error.to_string().contains("canary"), "{error}");
}
