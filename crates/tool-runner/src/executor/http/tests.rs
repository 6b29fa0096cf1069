//! One request to a recording server, whatever the arguments are.

use std::sync::Mutex;
use std::time::Duration;

use axum::Router;
use axum::extract::Request as Incoming;
use axum::response::IntoResponse;
use http::StatusCode;
use http::header::{HeaderMap, RETRY_AFTER};
use serde_json::json;

use super::*;
use crate::executor::testing::{TestTool, said};
use crate::resilience::Health;

/// What arrived.
#[derive(Debug, Clone)]
struct Seen {
    method: Method,
    /// Path and query as they were on the wire.
    target: String,
    headers: HeaderMap,
    body: String,
}

/// Answers every request alike and remembers it.
struct Recorder {
    port: u16,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Recorder {
    async fn answering(status: u16, content_type: &'static str, body: impl Into<String>) -> Self {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let body = body.into();
        let record = Arc::clone(&seen);
        let router = Router::new().fallback(async move |incoming: Incoming| {
            let (head, incoming) = incoming.into_parts();
            let bytes = axum::body::to_bytes(incoming, usize::MAX).await.unwrap();
            record.lock().unwrap().push(Seen {
                method: head.method,
                target: head.uri.to_string(),
                headers: head.headers,
                body: String::from_utf8(bytes.to_vec()).unwrap(),
            });
            let status = StatusCode::from_u16(status).unwrap();
            (status, [("content-type", content_type)], body).into_response()
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { port, seen }
    }

    async fn json(document: Value) -> Self {
        Self::answering(200, "application/json", document.to_string()).await
    }

    fn tool(&self, execute: &str, result: &str) -> TestTool {
        TestTool::new(&self.sources(), execute, result)
    }

    fn sources(&self) -> String {
        format!(
            "{{ api: {{ type: http, base_url: 'http://127.0.0.1:{}/base/', private: true, headers: {{ X-Api-Version: '2' }} }} }}",
            self.port
        )
    }

    fn last(&self) -> Seen {
        self.seen.lock().unwrap().last().unwrap().clone()
    }

    fn count(&self) -> usize {
        self.seen.lock().unwrap().len()
    }
}

#[tokio::test]
async fn a_request_is_made_of_path_query_and_headers() {
    let recorder = Recorder::json(json!([{"a": 1}, {"a": 2}])).await;
    let tool = recorder.tool(
        "{ type: http, source: api, path: '/v1/items/{id}.json', query: { q: '{query}', tag: '{tags}', size: 5, all: true, none: '{absent}', both: 'n={n} {absent}' }, headers: { X-Q: '{query}', X-None: '{absent}' } }",
        "{}",
    );
    let out = tool
        .run(json!({"id": "a b", "query": "x&y=z", "tags": ["a", "b", 3], "n": 7}))
        .await
        .unwrap();
    assert_eq!(out.rows, [json!({"a": 1}), json!({"a": 2})]);
    let seen = recorder.last();
    assert_eq!(seen.method, Method::GET);
    assert_eq!(
        seen.target,
        "/base/v1/items/a%20b.json?q=x%26y%3Dz&tag=a&tag=b&tag=3&size=5&all=true&both=n%3D7+"
    );
    assert_eq!(seen.headers["x-q"], "x&y=z");
    assert_eq!(seen.headers["x-api-version"], "2");
    assert!(!seen.headers.contains_key("x-none"));
    assert_eq!(seen.body, "");
}

#[tokio::test]
async fn a_body_is_json_a_form_or_a_text() {
    let recorder = Recorder::json(json!({})).await;
    let arguments = json!({"n": 7, "list": [1, null], "text": "a&b=c\n\"", "null": null});
    for (body, content_type, sent) in [
        (
            "json: { n: '{n}', list: '{list}', gone: '{absent}', text: 'is {text}', fixed: [1, '{absent}'] }",
            "application/json",
            r#"{"n":7,"list":[1,null],"text":"is a&b=c\n\"","fixed":[1]}"#,
        ),
        (
            "form: { n: '{n}', list: '{list}', text: '{text}', gone: '{null}' }",
            "application/x-www-form-urlencoded",
            "n=7&list=1&text=a%26b%3Dc%0A%22",
        ),
        (
            "text: '{n} {text}'",
            "text/plain; charset=utf-8",
            "7 a&b=c\n\"",
        ),
    ] {
        let execute = format!("{{ type: http, source: api, path: /x, {body} }}");
        recorder
            .tool(&execute, "{}")
            .run(arguments.clone())
            .await
            .unwrap();
        let seen = recorder.last();
        assert_eq!(seen.method, Method::POST);
        assert_eq!(seen.headers["content-type"], content_type);
        assert_eq!(seen.body, sent);
    }
}

/// Texts that try to be more than a value.
const HOSTILE: [&str; 40] = [
    "../",
    "..",
    ".",
    "../../etc/passwd",
    "a/../b",
    "..\\..\\x",
    "%2e%2e",
    "%2e%2e%2f",
    "%252e%252e%252f",
    ".%2e",
    "..;/",
    "/",
    "//evil.test/",
    "\\\\evil.test\\",
    "http://evil.test/",
    "https://evil.test:443/x?y#z",
    "@evil.test",
    "user:pw@evil.test",
    "?admin=true",
    "&admin=true",
    "&admin=true#",
    "#fragment",
    ";v=1",
    "a=b",
    "%00",
    "\0",
    "a\0b",
    "\r\nX-Admin: 1",
    "\r\n\r\nGET /admin HTTP/1.1\r\nHost: evil.test\r\n\r\n",
    "\n",
    "%0d%0aX-Admin: 1",
    "\u{2028}",
    "\u{85}",
    "\u{ff0e}\u{ff0e}\u{ff0f}",
    "日本語 ñ 🦀",
    "{query}",
    "{{id}}",
    "${HOME}",
    "\",\"admin\":true,\"x\":\"",
    "</x><y>",
];

#[tokio::test]
async fn no_argument_changes_the_shape_of_a_request() {
    let recorder = Recorder::json(json!([])).await;
    let in_all = recorder.tool(
        "{ type: http, source: api, method: PUT, path: '/v1/{id}/x-{id}/end', query: { q: '{id}', r: 'r{id}' }, json: { a: '{id}', b: ['{id}', 'b{id}'] } }",
        "{}",
    );
    let in_header = recorder.tool(
        "{ type: http, source: api, path: /h, headers: { X-Q: 'q{id}' }, form: { f: '{id}' } }",
        "{}",
    );
    let mut hostile: Vec<Value> = HOSTILE.into_iter().map(Value::from).collect();
    hostile.push(Value::from("x".repeat(3_000)));
    hostile.push(json!(-0.0));
    hostile.push(json!(1e308));
    hostile.push(json!(u64::MAX));
    hostile.push(json!(true));
    hostile.push(json!({"a": {"b": ["../", "\r\n"]}}));
    hostile.push(json!(["../", "?x", "\r\n"]));
    for value in &hostile {
        let text = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        let before = recorder.count();
        match in_all.run(json!({"id": value})).await {
            Ok(_) => {
                assert_eq!(recorder.count(), before + 1);
                check_all(&recorder.last(), recorder.port, value, &text);
            }
            Err(ExecutorError::BadArgument { text: said }) => {
                assert_eq!(recorder.count(), before, "{text:?} was sent");
                assert!(said.starts_with("`id` must"), "{said}");
            }
            Err(other) => panic!("{text:?}: {other}"),
        }
        let before = recorder.count();
        match in_header.run(json!({"id": value})).await {
            Ok(_) => check_header(&recorder.last(), recorder.port, value, &text),
            Err(ExecutorError::BadArgument { text: said }) => {
                assert_eq!(recorder.count(), before, "{text:?} was sent");
                assert!(text.contains(char::is_control), "{text:?}: {said}");
            }
            Err(other) => panic!("{text:?}: {other}"),
        }
    }
    // What is only unusual gets through.
    for text in ["日本語", "@evil.test", "%2e%2e", "?admin=true", "{query}"] {
        in_all.run(json!({"id": text})).await.unwrap();
    }
    for text in ["..", ".", "../", "a/../b", "..\\x", "\0", "\r\n", ""] {
        let refused = in_all.run(json!({"id": text})).await.unwrap_err();
        assert!(
            matches!(refused, ExecutorError::BadArgument { .. }),
            "{text:?}"
        );
    }
}

fn check_all(seen: &Seen, port: u16, value: &Value, text: &str) {
    assert_eq!(seen.method, Method::PUT);
    let (path, query) = seen.target.split_once('?').unwrap();
    let segments: Vec<_> = path.split('/').collect();
    let ["", "base", "v1", first, second, "end"] = segments[..] else {
        panic!("{path}");
    };
    let decode = |segment: &str| {
        let decoded = percent_encoding::percent_decode_str(segment);
        decoded.decode_utf8().unwrap().into_owned()
    };
    assert_eq!(decode(first), text);
    assert_eq!(decode(second), format!("x-{text}"));
    let pairs: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes())
        .into_owned()
        .collect();
    let last = ("r".to_owned(), format!("r{text}"));
    assert_eq!(pairs.last(), Some(&last));
    match value {
        Value::Array(items) => assert_eq!(pairs.len(), items.len() + 1),
        _ => assert_eq!(pairs[..1], [("q".to_owned(), text.to_owned())]),
    }
    check_headers(seen, port, &[]);
    let body: Value = serde_json::from_str(&seen.body).unwrap();
    assert_eq!(body, json!({"a": value, "b": [value, format!("b{text}")]}));
}

fn check_header(seen: &Seen, port: u16, value: &Value, text: &str) {
    assert_eq!(seen.target, "/base/h");
    check_headers(seen, port, &["x-q"]);
    assert_eq!(
        seen.headers["x-q"].as_bytes(),
        format!("q{text}").as_bytes()
    );
    let fields = form_urlencoded::parse(seen.body.as_bytes());
    let wanted = value.as_array().map_or(1, Vec::len);
    assert_eq!(fields.filter(|(name, _)| name == "f").count(), wanted);
}

fn check_headers(seen: &Seen, port: u16, further: &[&str]) {
    let mut names: Vec<_> = seen.headers.keys().map(http::HeaderName::as_str).collect();
    names.sort_unstable();
    let own = [
        "accept",
        "content-length",
        "content-type",
        "host",
        "user-agent",
    ];
    let mut wanted: Vec<_> = own.iter().chain(further).copied().collect();
    wanted.push("x-api-version");
    wanted.sort_unstable();
    assert_eq!(names, wanted);
    assert_eq!(seen.headers["host"], format!("127.0.0.1:{port}"));
    assert_eq!(seen.headers.len(), names.len(), "a header came twice");
}

#[tokio::test]
async fn a_url_that_no_server_takes_is_not_sent() {
    let recorder = Recorder::json(json!([])).await;
    let tool = recorder.tool(
        "{ type: http, source: api, path: '/{id}', query: { q: '{n}' } }",
        "{}",
    );
    for name in ["id", "n"] {
        let mut arguments = json!({"id": 1});
        arguments[name] = Value::from("canary".repeat(10_000));
        let refused = tool.run(arguments).await.unwrap_err();
        assert!(
            matches!(refused, ExecutorError::BadArgument { .. }),
            "{name}"
        );
        assert!(!refused.to_string().contains("canary"));
    }
    assert_eq!(recorder.count(), 0);
}

#[tokio::test]
async fn an_absent_argument_leaves_no_empty_segment() {
    let recorder = Recorder::json(json!([])).await;
    let tool = recorder.tool("{ type: http, source: api, path: '/v1/{id}/x' }", "{}");
    let refused = tool.run(json!({})).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "`id` must not be empty: it is part of a path"
    );
    assert_eq!(recorder.count(), 0);
}

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
        let recorder = Recorder::answering(200, content_type, body).await;
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
        let recorder = Recorder::answering(200, "application/json", body).await;
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
        let recorder = Recorder::answering(status, "text/plain", "canary").await;
        let error = recorder
            .tool("{ type: http, source: api }", "{}")
            .run(json!({}))
            .await
            .unwrap_err();
        assert_eq!(error.health(), health, "{status}");
        assert_eq!(
            said(error),
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
        let error = refused(StatusCode::SERVICE_UNAVAILABLE, &headers, String::new());
        assert_eq!(error.health(), health, "{value}");
    }
}

#[tokio::test]
async fn a_services_own_words_are_reported_where_the_tool_says_they_stand() {
    let said = json!({"error": {"message": "no such item"}}).to_string();
    for status in [200, 404] {
        let recorder = Recorder::answering(status, "application/json", said.clone()).await;
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

#[test]
fn faults_of_a_request_name_what_to_mend() {
    for (execute, problem) in [
        ("{ type: http }", "has no `source`"),
        (
            "{ type: http, source: other }",
            "there is no source `other`",
        ),
        (
            "{ type: http, source: db }",
            "the source is not an HTTP service",
        ),
        (
            "{ type: http, source: api, path: v1 }",
            "does not begin with `/`",
        ),
        (
            "{ type: http, source: api, path: '/v1?x={id}' }",
            "holds one of `?`",
        ),
        (
            "{ type: http, source: api, path: '/v1//x' }",
            "an empty, `.` or `..` segment",
        ),
        (
            "{ type: http, source: api, path: '/v1/%2e%2E/x' }",
            "an empty, `.` or `..` segment",
        ),
        (
            "{ type: http, source: api, path: '/{nope}' }",
            "`{nope}` is no property",
        ),
        (
            "{ type: http, source: api, method: get }",
            "`get` is no method",
        ),
        (
            "{ type: http, source: api, method: GET, text: x }",
            "a GET request has no body",
        ),
        (
            "{ type: http, source: api, text: x, json: {} }",
            "more than one of",
        ),
        (
            "{ type: http, source: api, headers: { Host: x } }",
            "`Host` is no header that a tool can set",
        ),
        (
            "{ type: http, source: api, headers: { Authorization: x } }",
            "is no header that a tool can set",
        ),
        (
            "{ type: http, source: api, headers: { X-Q: \"x\\n\" } }",
            "the value of header `X-Q` holds a line break",
        ),
        (
            "{ type: http, source: api, headers: { 'a b': x } }",
            "is no header that a tool can set",
        ),
        (
            "{ type: http, source: api, querry: {} }",
            "unknown key `querry`",
        ),
    ] {
        let sources = "{ api: { type: http, base_url: 'https://api.example.com' }, db: { type: sqlite, url: 'sqlite:x.db' } }";
        let faults = TestTool::faults(sources, execute);
        assert!(faults.contains(problem), "{execute}: {faults}");
    }
}

#[test]
fn faults_of_a_source_name_what_to_mend_and_no_secret() {
    for (source, problem) in [
        ("{ type: http }", "has no `base_url`"),
        ("{ type: http, base_url: nothing }", "`base_url` is no URL"),
        ("{ type: http, base_url: 'ftp://x/' }", "is no http(s) URL"),
        (
            "{ type: http, base_url: 'https://u:canary@x/' }",
            "holds user info",
        ),
        (
            "{ type: http, base_url: 'https://x/?key=canary' }",
            "holds a query",
        ),
        (
            "{ type: http, base_url: 'http://0x7f.1:8080/' }",
            "add `private: [\"127.0.0.1/32\"]`",
        ),
        (
            "{ type: http, base_url: 'http://[::1]/' }",
            "add `private: [\"::1/128\"]`",
        ),
        (
            "{ type: http, base_url: 'https://x/', hosts: ['https://y/'] }",
            "`hosts` is no host",
        ),
        (
            "{ type: http, base_url: 'https://x/', private: ['10.0.0.0/33'] }",
            "`private` is no network",
        ),
        (
            "{ type: http, base_url: 'https://x/', headers: { Host: y } }",
            "`Host` is no header",
        ),
        (
            "{ type: http, base_url: 'https://x/', headers: { X: \"canary\\r\\nY: 1\" } }",
            "characters a header cannot hold",
        ),
        (
            "{ type: http, base_url: 'https://x/', auth: { type: magic } }",
            "`magic` is no type of `auth`",
        ),
        (
            "{ type: http, base_url: 'https://x/', auth: { type: bearer } }",
            "has no `token`",
        ),
        (
            "{ type: http, base_url: 'https://x/', auth: { type: bearer, token: canary, user: x } }",
            "unknown key `user`",
        ),
        (
            "{ type: http, base_url: 'https://x/', headers: { Authorization: x }, auth: { type: bearer, token: canary } }",
            "keep one of them",
        ),
        (
            "{ type: http, base_url: 'https://x/', auth: { type: client_credentials, token_url: x, client_id: a, client_secret: canary } }",
            "`token_url` is no URL",
        ),
        (
            "{ type: http, base_url: 'https://x/', timeout: 0 }",
            "`timeout` is not a length of time",
        ),
    ] {
        let sources = format!("{{ api: {source} }}");
        let faults = TestTool::faults(&sources, "{ type: http, source: api }");
        assert!(faults.contains(problem), "{source}: {faults}");
        assert!(!faults.contains("canary"), "{faults}");
    }
}

#[tokio::test]
async fn only_a_source_that_exchanges_the_callers_token_asks_for_it() {
    let oauth = "token_url: 'https://x/token', client_id: a, client_secret: b";
    for (auth, needs) in [
        ("{ type: none }".to_owned(), false),
        (format!("{{ type: client_credentials, {oauth} }}"), false),
        (
            format!("{{ type: token_exchange, {oauth}, audience: c, scope: 'd e' }}"),
            true,
        ),
    ] {
        let sources = format!("{{ api: {{ type: http, base_url: 'https://x/', auth: {auth} }} }}");
        for execute in [
            "{ type: http, source: api }",
            "{ type: jsonrpc, source: api, method: m }",
        ] {
            let tool = TestTool::new(&sources, execute, "{}");
            assert_eq!(tool.needs_caller_token(), needs, "{auth} {execute}");
        }
    }
}
