//! Tests of what counts as a call.

use serde_json::json;

use super::super::{extract_calls, mentioned_tools};
use super::{Family, whole};

fn calls(text: &str) -> Vec<String> {
    let calls = whole(text).calls.into_iter();
    calls
        .map(|(name, arguments)| format!("{name} {arguments}"))
        .collect()
}

#[test]
fn a_tool_that_there_is_not_is_called_by_a_token_only() {
    let token = "<tool_call>{\"name\": \"nothing\", \"arguments\": {}}</tool_call>";
    assert_eq!(calls(token), ["nothing {}"]);
    for text in [
        "{\"name\": \"nothing\", \"arguments\": {}}",
        "```json\n{\"name\": \"nothing\", \"arguments\": {}}\n```",
        "[nothing(a=1)]",
        "nothing\n{}",
        "Action: nothing\nAction Input: {}",
        "Tool: nothing\nParameters: {}",
    ] {
        let outcome = whole(text);
        assert!(outcome.calls.is_empty(), "{text}");
        assert_eq!(outcome.text, text);
    }
}

#[test]
fn text_stays_byte_for_byte() {
    for text in [
        "",
        "\r\n\t \u{a0}\u{feff}ü😀",
        "a < b && c > d, {x: y}, [z], `q`, ```\ncode {\n```\n",
        "<tool_call>not json</tool_call>",
        "<tool_call>{\"name\": 7}</tool_call>",
        "<tool_call>{\"name\": \"bad name\", \"arguments\": {}}</tool_call>",
        "<tool_call>{\"name\": \"list_cities\", \"arguments\": [1]}</tool_call>",
        "TOOL:\nPARAMETERS: {}",
        "<think>\nand never an end <tool_call>{\"name\": \"list_cities\", \"arguments\": {}}",
        "\"\\ud800\"",
        "[Tool Result: list_cities]\n{\"name\": \"list_cities\", \"arguments\": {}}",
        "<tool_response>\nTOOL: f\nPARAMETERS: {}\n</tool_response>",
    ] {
        let outcome = whole(text);
        assert!(outcome.calls.is_empty(), "{text}");
        assert_eq!(outcome.text, text);
    }
}

#[test]
fn arguments_are_mended_where_they_have_one_meaning() {
    for (written, read) in [
        (r#"{"a": 1,}"#, json!({"a": 1})),
        (r#"{'a': 'x "y"'}"#, json!({"a": "x \"y\""})),
        (
            r#"{"a": True, "b": None, "c": [False,],}"#,
            json!({"a": true, "b": null, "c": [false]}),
        ),
        (r#"{a: 1, b_2: "x"}"#, json!({"a": 1, "b_2": "x"})),
        (
            "{\"a\": 1 // one\n, # two\n \"b\": /* three */ 2}",
            json!({"a": 1, "b": 2}),
        ),
        ("{\"a\": \"x\ny\"}", json!({"a": "x\ny"})),
        (r#"{"a": "\d+\."}"#, json!({"a": "\\d+\\."})),
        (r#"{"a": "\u00e9\ud83d\ude00"}"#, json!({"a": "é😀"})),
        ("{{\"a\": {{\"b\": 1}}}}", json!({"a": {"b": 1}})),
        (
            r#"{"a": -1.5e-3}"#,
            // The digits of the number are not changed.
            serde_json::from_str(r#"{"a": -1.5e-3}"#).unwrap(),
        ),
    ] {
        let outcome = whole(&format!("TOOL: f\nPARAMETERS: {written}"));
        assert_eq!(outcome.calls, [("f".to_owned(), read)], "{written}");
    }
}

#[test]
fn nothing_is_made_up() {
    for written in [
        r#"{"a": 1"#,
        r#"{"a": }"#,
        r#"{"a" 1}"#,
        r#"{"a": 1 "b": 2}"#,
        r#"{"a": undefined}"#,
        r#"{"a": NaN}"#,
        r#"{"a": 01}"#,
        r#"{"a": "\ud800"}"#,
        r#"{"a": [1, 2}"#,
        r#"{"a": "open}"#,
        r#"{, "a": 1}"#,
        "{{\"a\": 1}",
        "[1]",
        "\"text\"",
        "null",
    ] {
        let text = format!("TOOL: f\nPARAMETERS: {written}\n");
        let outcome = whole(&text);
        assert!(outcome.calls.is_empty(), "{written}");
        assert_eq!(outcome.text, text);
    }
    let deep = format!(
        "TOOL: f\nPARAMETERS: {{\"a\": {}{}}}",
        "[".repeat(999),
        "]".repeat(999)
    );
    assert!(calls(&deep).is_empty());
}

#[test]
fn a_line_whose_arguments_are_long_numbers_keeps_their_digits() {
    let line = r#"{"id": [1.50], "text": "TOOL: f\nPARAMETERS: {\"n\": 123456789012345678901234567890.10}"}"#;
    let mut output = String::new();
    extract_calls(&mut line.as_bytes(), &Family::UNKNOWN.into(), |line| {
        output.push_str(line);
        Ok(())
    })
    .unwrap();
    assert!(
        output.contains(r#""arguments":{"n":123456789012345678901234567890.10}"#),
        "{output}"
    );
}

#[test]
fn a_tool_said_to_be_used_is_mentioned() {
    let tools = ["get_weather", "get", "hospital.records-v2", "list"];
    for (text, found) in [
        ("I will use the get_weather tool.", vec!["get_weather"]),
        ("Use The `get_weather` Tool!", vec!["get_weather"]),
        ("I'll USE THE get TOOL to begin.", vec!["get"]),
        (
            "Let me use the hospital.records-v2 tool, then use the list tool.",
            vec!["hospital.records-v2", "list"],
        ),
        ("No problem: I use the list tool.", vec!["list"]),
        ("“Hm,” and then use the list tool", vec!["list"]),
        ("Use the list tool. Again, use the list tool.", vec!["list"]),
        ("It is not clear. I will use the list tool.", vec!["list"]),
    ] {
        assert_eq!(mentioned_tools(text, &tools), found, "{text}");
    }
}

#[test]
fn what_is_negated_quoted_asked_or_longer_is_not_mentioned() {
    let tools = ["get_weather", "get", "list"];
    for text in [
        "Do not use the get_weather tool.",
        "I don't think we should use the get_weather tool.",
        "You should never use the list tool",
        "Answer without asking to use the list tool.",
        "I won’t use the list tool.",
        "There is no need to use the list tool.",
        "They said \"use the list tool\" to me.",
        "They said “use the list tool” to me.",
        "The words 'use the list tool' mean a call.",
        "The words `use the list tool` mean a call.",
        "```\nuse the list tool\n```",
        "They said \"Stop. Then use the list tool.\"",
        "There is no reason to stop; I would rather wait than use the list tool.",
        "Should I use the list tool?",
        "Use the list tools.",
        "Use the get_weather_now tool.",
        "Use the listing tool.",
        "Reuse the list tool.",
        "Use a list tool.",
        "",
    ] {
        assert!(mentioned_tools(text, &tools).is_empty(), "{text}");
    }
}
