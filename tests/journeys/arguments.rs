//! Tests of `wardgate tools validate`, which validates the arguments of a tool without the tool.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::WARDGATE;

/// Returns the output of the binary for these lines.
fn validate_lines(lines: &str) -> Vec<Value> {
    let mut process = Command::new(WARDGATE)
        .args(["tools", "validate"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = process.stdin.take().unwrap();
    input.write_all(lines.as_bytes()).unwrap();
    drop(input);
    let ended = process.wait_with_output().unwrap();
    assert!(ended.status.success());
    let output = String::from_utf8(ended.stdout).unwrap();
    let lines = output.lines();
    lines.map(|it| serde_json::from_str(it).unwrap()).collect()
}

#[test]
fn arguments_are_validated_as_a_call_would() {
    let schema = json!({
        "type": "object",
        "properties": {
            "patient_id": { "type": "string", "pattern": "^[A-Z]{5}$" },
            "limit": { "type": "integer", "default": 100, "maximum": 500 },
        },
        "required": ["patient_id"],
    });
    let question = |arguments: Value| {
        json!({ "id": "q", "schema": schema, "arguments": arguments }).to_string()
    };
    let lines = [
        question(json!({ "patient_id": "NUGWI", "limit": "5" })),
        question(json!(r#"{"patient_id": "NUGWI"}"#)),
        question(json!({ "limit": 5 })),
        question(json!({ "patient_id": "NUGWI", "limit": 501 })),
        "{".to_owned(),
    ];
    let answers = validate_lines(&lines.join("\n"));
    assert_eq!(
        answers[..3],
        [
            json!({ "id": "q", "ok": true, "arguments": { "patient_id": "NUGWI", "limit": 5 } }),
            json!({ "id": "q", "ok": true, "arguments": { "patient_id": "NUGWI", "limit": 100 } }),
            json!({
                "id": "q",
                "ok": false,
                "error": "Invalid arguments: `patient_id` is required",
                "path": "/patient_id",
            }),
        ]
    );
    assert_eq!(
        (&answers[3]["ok"], &answers[3]["path"]),
        (&json!(false), &json!("/limit"))
    );
    assert_eq!(answers[4]["ok"], false);
    assert_eq!(answers.len(), 5);
}

#[test]
fn hostile_schemas_do_not_end_it() {
    let nested = r#"{"x":"#.repeat(100) + "1" + &"}".repeat(100);
    let deep = |open: &str, close: &str| open.repeat(5_000) + &close.repeat(5_000);
    let lines = [
        format!(r##"{{"schema": {{"properties": {{"x": {{"allOf": [{{"$ref": "#"}}, {{"$ref": "#"}}]}}}}}}, "arguments": {nested}}}"##),
        r##"{"schema": {"allOf": [{"$ref": "#"}]}, "arguments": {}}"##.to_owned(),
        r#"{"schema": {"$ref": "http://127.0.0.1:1/schema"}, "arguments": {}}"#.to_owned(),
        format!(r#"{{"schema": {}, "arguments": {{}}}}"#, deep(r#"{"not":"#, "}")),
        format!(r#"{{"schema": {{}}, "arguments": {}}}"#, deep("[", "]")),
        r#"{"schema": {"properties": {"x": {"pattern": "((a{999}){999}){999}"}}}, "arguments": {"x": "a"}}"#.to_owned(),
    ];
    let answers = validate_lines(&lines.join("\n"));
    assert_eq!(answers.len(), lines.len());
    for answer in answers {
        assert_eq!(answer["ok"], false, "{answer}");
        assert!(answer["error"].is_string(), "{answer}");
    }
}
