//! Tests of invalid input: each kind gets the right status and code, a message that says what to correct and reveals
//! nothing internal, and a record.

use std::collections::BTreeMap;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use wardgate_testkit::{System, TestApp};

use super::bad_bodies::{bad_bodies, request_with};
use super::people::{doctor, of_patient};
use super::refusals::{assert_says_nothing_internal, refusal, wait_for_refusals};
use crate::WARDGATE;

/// Both paths that accept messages.
pub(super) const DOORS: [&str; 2] = ["/mcp", "/message"];

#[tokio::test]
async fn every_bad_body_is_refused_by_its_code_in_plain_words_and_is_on_record() {
    let mut app = TestApp::start(WARDGATE);
    let token = doctor(&app);
    let mut expected = BTreeMap::new();
    for door in DOORS {
        for case in bad_bodies() {
            let shown = String::from_utf8_lossy(&case.body)
                .chars()
                .take(100)
                .collect::<String>();
            let reply = app.client().post(door, Some(&token), &[], case.body).await;
            let (code, message) = reply.error();
            assert_eq!((reply.status, code), case.answer, "{door} {shown:?}");
            assert!(message.contains(case.says), "{door} {shown:?}: {message}");
            assert_says_nothing_internal(&reply);
            *expected.entry(case.reason.to_owned()).or_default() += 1;
        }
    }
    wait_for_refusals(&app, &expected).await;
    assert!(app.process.is_running());
    let reply = app
        .client()
        .call(&token, "get_medical_records", of_patient("NUGWI"))
        .await;
    assert_eq!(reply.rows().len(), 2);
}

#[tokio::test]
async fn what_is_refused_inside_a_batch_is_on_record_too() {
    let app = TestApp::start(WARDGATE);
    let batch = json!([
        { "jsonrpc": "2.0", "id": 1, "method": "ping" },
        { "jsonrpc": "2.0", "id": 2, "method": "no/such" },
        { "jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {} },
        { "id": 4, "method": "ping" },
    ]);
    let reply = app
        .client()
        .post("/mcp", Some(&doctor(&app)), &[], batch.to_string())
        .await;
    assert_eq!(reply.json().as_array().unwrap().len(), 4);
    let expected = [
        ("unknown_method", 1),
        ("invalid_params", 1),
        ("invalid_request", 1),
    ];
    wait_for_refusals(
        &app,
        &expected
            .map(|(reason, count)| (reason.to_owned(), count))
            .into(),
    )
    .await;
}

#[tokio::test]
async fn arguments_that_do_not_fit_are_an_error_result_that_names_them() {
    let app = TestApp::start(WARDGATE);
    let token = doctor(&app);
    let cases = [
        (json!({}), "patient_id"),
        (json!({ "patient_id": null }), "`patient_id`"),
        (json!({ "patient_id": 7 }), "`patient_id`"),
        (json!({ "patient_id": true }), "`patient_id`"),
        (json!({ "patient_id": ["NUGWI"] }), "`patient_id`"),
        (json!({ "patient_id": "nugwi" }), "`patient_id`"),
        (json!({ "patient_id": "NUGWI " }), "`patient_id`"),
        (json!({ "patient_id": "NUGWI' OR '1'='1" }), "`patient_id`"),
        (json!({ "patient_id": "NUGWI", "limit": "many" }), "`limit`"),
        (json!({ "patient_id": "NUGWI", "limit": -1 }), "`limit`"),
        (json!({ "patient_id": "NUGWI", "limit": 1e300 }), "`limit`"),
        (
            json!({ "patient_id": "NUGWI", "patientId": "NUGWI" }),
            "`patientId`",
        ),
        (
            json!({ "patient_id": "NUGWI", "Patient_id": "NUGWI" }),
            "`Patient_id`",
        ),
    ];
    for (arguments, names) in &cases {
        let reply = app
            .client()
            .call(&token, "get_medical_records", arguments.clone())
            .await;
        let error = reply.tool_error();
        assert!(
            error.starts_with("Invalid arguments: ") && error.contains(names),
            "{arguments}: {error}"
        );
        assert!(!error.contains("1'='1"), "a value is not repeated: {error}");
        assert_says_nothing_internal(&reply);
    }
    let recorded = app.records_with(&["--status", "invalid_arguments"]);
    assert_eq!(recorded.len(), cases.len());
}

#[tokio::test]
async fn a_tool_name_nobody_configured_is_an_unknown_tool_whatever_it_looks_like() {
    let app = TestApp::start(WARDGATE);
    let token = doctor(&app);
    let long = "x".repeat(10_000);
    let names = [
        "",
        " ",
        "get_medical_records ",
        "GET_MEDICAL_RECORDS",
        "../etc/passwd",
        "a\nb",
        "naïve",
        &long,
    ];
    for name in names {
        let body = request_with(|it| it["params"]["name"] = json!(name));
        let reply = app.client().post("/message", Some(&token), &[], body).await;
        let shown: String = name.chars().take(128).collect();
        assert_eq!(reply.error(), (-32602, format!("Unknown tool: {shown}")));
    }
    let recorded = app.records();
    assert!(
        recorded
            .iter()
            .all(|record| record["status"] == "unknown_tool")
    );
    assert_eq!(recorded.len(), names.len());
    assert_eq!(
        app.query(&[]).success().lines().count(),
        names.len() + 1,
        "a table line is one line"
    );
}

#[tokio::test]
async fn what_is_too_large_or_not_json_is_refused_before_it_is_read() {
    let app = TestApp::start(WARDGATE);
    let token = format!("Bearer {}", doctor(&app));
    let good = request_with(|_| {});
    let of_size = |size: usize| good.clone() + &" ".repeat(size - good.len());
    let mut expected = BTreeMap::new();
    for door in DOORS {
        let post = |headers: Vec<(&'static str, &'static str)>, body: String| {
            let (client, token) = (app.client().clone(), token.clone());
            async move {
                let headers = [&[("authorization", token.as_str())], headers.as_slice()].concat();
                client.send("POST", door, &headers, body).await
            }
        };
        let json = ("content-type", "application/json");
        for (headers, body) in [
            (vec![json], of_size(1 << 20)),
            (
                vec![("content-type", "application/json; charset=utf-8")],
                good.clone(),
            ),
            (
                vec![("content-type", "Application/JSON"), ("accept", "*/*")],
                good.clone(),
            ),
            (
                vec![json, ("accept", "text/html, application/json;q=0.5")],
                good.clone(),
            ),
        ] {
            assert_eq!(post(headers.clone(), body).await.status, 200, "{headers:?}");
        }
        for (status, reason, headers, body, says) in [
            (
                413,
                "too_large",
                vec![json],
                of_size((1 << 20) + 1),
                "1048576 bytes",
            ),
            (
                415,
                "unsupported_media_type",
                vec![],
                good.clone(),
                "Content-Type",
            ),
            (
                415,
                "unsupported_media_type",
                vec![("content-type", "text/plain")],
                good.clone(),
                "Content-Type",
            ),
            (
                415,
                "unsupported_media_type",
                vec![("content-type", "application/jsonx")],
                good.clone(),
                "Content-Type",
            ),
            (
                406,
                "not_acceptable",
                vec![json, ("accept", "text/html")],
                good.clone(),
                "Accept",
            ),
            (
                406,
                "not_acceptable",
                vec![json, ("accept", "text/event-stream")],
                good.clone(),
                "Accept",
            ),
        ] {
            let reply = post(headers.clone(), body).await;
            assert_eq!(reply.status, status, "{headers:?}");
            let (kind, message) = refusal(&reply);
            assert_eq!(kind, reason);
            assert!(message.contains(says), "{message}");
            *expected.entry(reason.to_owned()).or_default() += 1;
        }
    }
    wait_for_refusals(&app, &expected).await;
}

#[tokio::test]
async fn a_foreign_host_or_origin_is_refused() {
    let app = TestApp::start(WARDGATE);
    let token = doctor(&app);
    for good in [
        ("host", "localhost"),
        ("host", "127.0.0.1:1"),
        ("host", "[::1]"),
        ("origin", "http://localhost:3000"),
        ("origin", "http://127.0.0.1"),
    ] {
        let reply = app
            .client()
            .post("/message", Some(&token), &[good], request_with(|_| {}))
            .await;
        assert_eq!(reply.status, 200, "{good:?}");
    }
    let bad = [
        ("host", "evil.example"),
        ("host", "localhost.evil.example"),
        ("host", "127.0.0.1.nip.io"),
        ("origin", "http://evil.example"),
        ("origin", "http://localhost.evil.example"),
        ("origin", "null"),
    ];
    for door in DOORS {
        for header in bad {
            let reply = app
                .client()
                .post(door, Some(&token), &[header], request_with(|_| {}))
                .await;
            assert_eq!(reply.status, 403, "{header:?}");
            let (kind, message) = refusal(&reply);
            assert_eq!(kind, "origin_refused");
            assert!(message.contains("add it to gateway.allowed_"), "{message}");
        }
    }
    wait_for_refusals(
        &app,
        &[("origin_refused".to_owned(), 2 * bad.len() as u64)].into(),
    )
    .await;
}

#[tokio::test]
async fn whoever_sends_too_slowly_is_not_waited_for() {
    let limits = [
        ("WARDGATE_GATEWAY__LIMITS__BODY_SECONDS", "1"),
        ("WARDGATE_GATEWAY__LIMITS__HEADER_SECONDS", "1"),
    ];
    let app = TestApp::start_with(WARDGATE, &limits);
    let address = app
        .client()
        .base()
        .strip_prefix("http://")
        .unwrap()
        .to_owned();
    let exchange = |sent: String| {
        let address = address.clone();
        async move {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(sent.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.map(|_| answer)
        }
    };
    let header = format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/json\r\nContent-Length: 1000\r\n",
        doctor(&app)
    );
    let late = exchange(format!("{header}\r\n{{")).await.unwrap();
    assert!(late.starts_with("HTTP/1.1 408 "), "{late}");
    assert!(late.contains("within 1 seconds"), "{late}");
    // For a header that never ends there is no response, and the connection is closed.
    let never = exchange(header).await.unwrap_or_default();
    assert!(
        never.is_empty() || never.starts_with("HTTP/1.1 408 "),
        "{never}"
    );
    wait_for_refusals(&app, &[("body_timeout".to_owned(), 1)].into()).await;
}

#[tokio::test]
async fn a_path_nobody_serves_is_not_found() {
    let app = TestApp::start(WARDGATE);
    for path in [
        "/",
        "/mcp/",
        "/mcp/a/b",
        "/message/",
        "/metrics/x",
        "/%00",
        "/../keys/issuer.pem",
    ] {
        let reply = app
            .client()
            .post(path, Some(&doctor(&app)), &[], request_with(|_| {}))
            .await;
        assert_eq!(
            (reply.status, refusal(&reply).0.as_str()),
            (404, "not_found"),
            "{path}"
        );
    }
}
