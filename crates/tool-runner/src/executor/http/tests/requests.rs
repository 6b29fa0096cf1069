//! Tests of the requests that are sent for various arguments.

use super::*;

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

/// Arguments that try to change more of the request than their own value.
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
    // Texts that are merely unusual are accepted.
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

fn check_all(seen: &ReceivedRequest, port: u16, value: &Value, text: &str) {
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

fn check_header(seen: &ReceivedRequest, port: u16, value: &Value, text: &str) {
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

fn check_headers(seen: &ReceivedRequest, port: u16, further: &[&str]) {
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
