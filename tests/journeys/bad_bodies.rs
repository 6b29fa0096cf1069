//! Request bodies that are invalid, and the expected response to each on either path.

use serde_json::{Value, json};

use super::people::of_patient;

/// A body, and the response to it.
pub(super) struct Case {
    pub(super) body: Vec<u8>,
    /// The HTTP status and the JSON-RPC code.
    pub(super) answer: (u16, i64),
    /// A text in the message that says what to correct.
    pub(super) says: &'static str,
    /// The reason on record.
    pub(super) reason: &'static str,
}

fn cases<B: Into<Vec<u8>>>(
    answer: (u16, i64),
    reason: &'static str,
    says: &'static str,
    bodies: impl IntoIterator<Item = B>,
) -> Vec<Case> {
    let case = |body: B| Case {
        body: body.into(),
        answer,
        says,
        reason,
    };
    bodies.into_iter().map(case).collect()
}

/// Returns a request after `changed` modified it.
pub(super) fn request_with(changed: impl FnOnce(&mut Value)) -> String {
    let mut request = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "get_medical_records", "arguments": of_patient("NUGWI") },
    });
    changed(&mut request);
    request.to_string()
}

/// Returns a `ping` with more members.
fn ping(more: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping"{more}}}"#)
}

/// Returns invalid bodies of every kind.
pub(super) fn bad_bodies() -> Vec<Case> {
    let unknown = [request_with(|it| it["method"] = json!("tools/destroy"))];
    let says = "Method 'tools/destroy' not found on server 'wardgate'";
    [
        not_strict_json(),
        no_request(),
        no_params(),
        cases((200, -32601), "unknown_method", says, unknown),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Returns bodies that parsers refuse or read differently.
fn not_strict_json() -> Vec<Case> {
    const PARSE: (u16, i64) = (400, -32700);
    let malformed = [
        "",
        " ",
        "{",
        "nonsense",
        r#"{"jsonrpc":"2.0",}"#,
        "{'jsonrpc':'2.0'}",
        "{}{}",
        "NaN",
        "tru",
        "[1,]",
        "{\"a\":\u{1}\"b\"}",
        "// a comment\n{}",
        r#"{"id":01}"#,
        r#"{"id":+1}"#,
        r#"{"id":.5}"#,
        "\"a\tb\"",
        r#""\x""#,
        "\u{feff}{}",
    ];
    let not_utf8 = [
        &b"\xff\xfe{\0}\0"[..],
        b"{\"a\":\"\xc3\x28\"}",
        b"\"\xed\xa0\x80\"",
    ];
    let duplicate = [
        r#","method":"tools/list""#,
        r#","\u006dethod":"tools/list""#,
        r#","params":{"arguments":{"a":1,"a":1}}"#,
        r#","x":{"":1,"":2}"#,
    ];
    let nul = [r#","x":"\u0000""#, ",\"x\":\"\0\"", r#","\u0000":1"#];
    let half_pair = [r#","x":"\ud800""#, r#","x":"\udc00""#, r#","x":"\ud83dx""#];
    let nested = |depth| {
        ping(&format!(
            r#","params":{{"a":{}{}}}"#,
            "[".repeat(depth),
            "]".repeat(depth)
        ))
    };
    let deep = [
        nested(63),
        nested(1_000),
        "[".repeat(1_000_000),
        r#"{"a":"#.repeat(200_000),
    ];
    [
        cases(
            PARSE,
            "malformed_json",
            "not valid JSON, at byte",
            malformed,
        ),
        cases(PARSE, "not_utf8", "not UTF-8", not_utf8),
        cases(
            PARSE,
            "duplicate_key",
            "same key twice, at byte",
            duplicate.map(ping),
        ),
        cases(PARSE, "nul_character", "NUL", nul.map(ping)),
        cases(PARSE, "lone_surrogate", "surrogate", half_pair.map(ping)),
        cases(PARSE, "too_deep", "deeper than 64 levels", deep),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Returns bodies that are JSON but not a request.
fn no_request() -> Vec<Case> {
    let refused =
        |says, bodies: &[String]| cases((400, -32600), "invalid_request", says, bodies.to_vec());
    let with = |member: &str, value: Value| request_with(|it| it[member] = value);
    let jsonrpc = [
        "{}".to_owned(),
        with("jsonrpc", json!("1.0")),
        with("jsonrpc", json!(2.0)),
    ];
    let id = [json!(null), json!(1.5), json!([1]), json!({}), json!(true)].map(|id| with("id", id));
    let method = [
        with("method", json!(1)),
        with("method", json!(null)),
        r#"{"jsonrpc":"2.0","id":1}"#.to_owned(),
        // Names are case-sensitive, so this one is unknown.
        r#"{"jsonrpc":"2.0","id":1,"Method":"ping"}"#.to_owned(),
    ];
    [
        refused(
            "JSON object",
            &["null", "1", r#""ping""#].map(str::to_owned),
        ),
        refused("`jsonrpc`", &jsonrpc),
        refused("`id`", &id),
        refused("`method`", &method),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Returns requests with parameters that are invalid for their method.
fn no_params() -> Vec<Case> {
    let refused =
        |says, bodies: &[String]| cases((200, -32602), "invalid_params", says, bodies.to_vec());
    // An array would contain the parameters by position.
    let by_position = json!([{}, "get_medical_records", of_patient("NUGWI")]);
    let params = [json!([]), by_position, json!("x"), json!(null)]
        .map(|it| request_with(|call| call["params"] = it));
    let name = [json!(7), json!(null), json!(["x"])]
        .map(|it| request_with(|call| call["params"]["name"] = it));
    let arguments = [json!(null), json!([]), json!("{}")]
        .map(|it| request_with(|call| call["params"]["arguments"] = it));
    [
        refused("`params`", &params),
        refused(
            "`params.name`",
            &[request_with(|call| call["params"] = json!({}))],
        ),
        refused("`params.name`", &name),
        refused("`params.arguments`", &arguments),
    ]
    .into_iter()
    .flatten()
    .collect()
}
