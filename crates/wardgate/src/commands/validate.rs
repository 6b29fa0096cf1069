//! `wardgate tools validate`: checks arguments against input schemas as the tool-runner does. Reads and writes JSON lines.

use std::io::{BufRead, Read, Write};

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use wardgate_arguments::{ArgumentFault, Arguments, InputSchema, UnusableSchema};
use wardgate_domain::escape_invisible_json;

use crate::Failure;

/// Maximum length of an input line, in bytes.
const MAX_LINE: usize = 16 * 1024 * 1024;

/// Maximum length of an error message, in characters. Messages about schemas may repeat the schema.
const MAX_ERROR: usize = 1_000;

/// One line of input: the arguments to check, and their schema.
#[derive(Deserialize)]
struct ValidationRequest<'l> {
    #[serde(borrow)]
    id: Option<&'l RawValue>,
    #[serde(borrow)]
    schema: Option<&'l RawValue>,
    #[serde(borrow)]
    arguments: Option<&'l RawValue>,
}

/// The reason why a line returns no arguments.
struct ValidationFault {
    error: String,
    /// JSON Pointer to the faulty value in the arguments.
    path: String,
}

impl ValidationFault {
    fn new(error: impl Into<String>) -> Self {
        Self {
            error: error.into(),
            path: String::new(),
        }
    }
}

/// Writes one line to `output` for each non-blank line of `input`.
pub(crate) fn run(mut input: impl BufRead, mut output: impl Write) -> Result<(), Failure> {
    let mut line = Vec::new();
    while read_line(&mut input, &mut line)? {
        if !line.trim_ascii().is_empty() {
            let answer = answer(&line).to_string();
            writeln!(output, "{}", escape_invisible_json(&answer))?;
        }
    }
    Ok(output.flush()?)
}

/// Reads one line into `line`, but at most one byte more than [`MAX_LINE`]. Returns `false` at the end of the input.
fn read_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> Result<bool, Failure> {
    line.clear();
    let most = MAX_LINE as u64 + 1;
    let read = input.by_ref().take(most).read_until(b'\n', line)?;
    if line.len() > MAX_LINE && line.last() != Some(&b'\n') {
        input.skip_until(b'\n')?;
    }
    Ok(read > 0)
}

fn answer(line: &[u8]) -> Value {
    let (id, checked) = if line.len() > MAX_LINE {
        let error = format!("the line is longer than {} MiB", MAX_LINE >> 20);
        (None, Err(ValidationFault::new(error)))
    } else {
        match serde_json::from_slice::<ValidationRequest<'_>>(line) {
            Ok(question) => (question.id.and_then(value), check(&question)),
            Err(_) => (
                None,
                Err(ValidationFault::new(
                    "the line is not JSON of the form {\"id\", \"schema\", \"arguments\"}",
                )),
            ),
        }
    };
    let mut answer = Map::new();
    if let Some(id) = id {
        answer.insert("id".to_owned(), id);
    }
    answer.insert("ok".to_owned(), json!(checked.is_ok()));
    match checked {
        Ok(arguments) => {
            answer.insert("arguments".to_owned(), Value::Object(arguments));
        }
        Err(ValidationFault { error, path }) => {
            let error: String = error.chars().take(MAX_ERROR).collect();
            answer.insert("error".to_owned(), json!(error));
            if !path.is_empty() {
                answer.insert("path".to_owned(), json!(path));
            }
        }
    }
    Value::Object(answer)
}

/// Parses a value. Returns `None` if it is nested too deeply.
fn value(raw: &RawValue) -> Option<Value> {
    serde_json::from_str(raw.get()).ok()
}

fn check(question: &ValidationRequest<'_>) -> Result<Map<String, Value>, ValidationFault> {
    let schema = question
        .schema
        .ok_or_else(|| ValidationFault::new("`schema` is missing"))?;
    let arguments = question
        .arguments
        .ok_or_else(|| ValidationFault::new("`arguments` is missing"))?;
    let schema =
        value(schema).ok_or_else(|| ValidationFault::new("`schema` is nested too deeply"))?;
    let schema = InputSchema::compile_closed(&schema).map_err(|unusable| {
        ValidationFault::new(match unusable {
            UnusableSchema::Invalid { path, problem } if !path.is_empty() => {
                format!("the schema cannot be used: at `{path}`: {problem}")
            }
            unusable => format!("the schema cannot be used: {unusable}"),
        })
    })?;
    // Models may write the arguments as a string that contains the JSON.
    let text = serde_json::from_str::<String>(arguments.get());
    let raw = text.as_deref().unwrap_or(arguments.get());
    Arguments::parse(&schema, raw.as_bytes())
        .map(Arguments::into_values)
        .map_err(|invalid| ValidationFault {
            error: invalid.to_string(),
            path: invalid
                .complaints()
                .first()
                .map_or_else(String::new, |ArgumentFault { path, .. }| path.clone()),
        })
}

#[cfg(test)]
mod tests {
    use wardgate_domain::find_invisible;

    use super::*;

    fn answers(input: &[u8]) -> Vec<Value> {
        let mut output = Vec::new();
        run(input, &mut output).unwrap();
        String::from_utf8(output)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    fn answer_to(question: &Value) -> Value {
        answers(question.to_string().as_bytes()).remove(0)
    }

    fn forecast() -> Value {
        json!({
            "type": "object",
            "properties": { "city": { "type": "string" }, "days": { "type": "integer", "default": 3 } },
            "required": ["city"],
        })
    }

    #[test]
    fn arguments_come_back_coerced_with_defaults_filled_in() {
        for arguments in [json!({ "city": 7 }), json!(r#"{"city": "7"}"#)] {
            assert_eq!(
                answer_to(&json!({ "id": "a", "schema": forecast(), "arguments": arguments })),
                json!({ "id": "a", "ok": true, "arguments": { "city": "7", "days": 3 } })
            );
        }
    }

    #[test]
    fn what_does_not_fit_is_said_with_its_place() {
        assert_eq!(
            answer_to(&json!({ "id": 1, "schema": forecast(), "arguments": {} })),
            json!({ "id": 1, "ok": false, "error": "Invalid arguments: `city` is required", "path": "/city" })
        );
    }

    #[test]
    fn a_bad_line_is_answered_and_the_next_one_too() {
        let good = json!({ "id": 9, "schema": forecast(), "arguments": { "city": "Hue" } });
        for bad in [
            "not JSON",
            "[]",
            "{}",
            r#"{"id": 1}"#,
            r#"{"id": 1, "schema": {}}"#,
            r#"{"id": 1, "schema": 5, "arguments": {}}"#,
            r#"{"id": 1, "schema": {"type": "string"}, "arguments": {}}"#,
            r#"{"id": 1, "schema": {}, "arguments": [1]}"#,
            r#"{"id": 1, "schema": {}, "arguments": "{"}"#,
            r#"{"id": 1, "schema": {"$ref": "https://example.com/x"}, "arguments": {}}"#,
            "\u{feff}{}",
        ] {
            let answers = answers(format!("{bad}\n\n{good}").as_bytes());
            assert_eq!(answers.len(), 2, "{bad}");
            assert_eq!(answers[0]["ok"], false, "{bad}");
            assert!(answers[0]["error"].is_string(), "{bad}");
            assert_eq!(answers[1]["ok"], true, "{bad}");
        }
        let not_unicode = [b"\xff\xfe\n", good.to_string().as_bytes()].concat();
        assert_eq!(answers(&not_unicode)[1]["ok"], true);
    }

    #[test]
    fn invisible_characters_of_an_answer_are_escaped_and_its_value_stays_the_same() {
        let city = "\u{202e}euH\u{e0041}\u{9b}2J\u{7f}";
        for arguments in [json!({ "city": city }), json!({ "city": "Hue", city: 1 })] {
            let question = json!({ "id": city, "schema": forecast(), "arguments": arguments });
            let mut output = Vec::new();
            run(question.to_string().as_bytes(), &mut output).unwrap();
            let output = String::from_utf8(output).unwrap();
            assert_eq!(find_invisible(&output).count(), 0, "{output:?}");
            let expected = answer(question.to_string().as_bytes());
            assert_eq!(expected["id"], city);
            assert_eq!(serde_json::from_str::<Value>(&output).unwrap(), expected);
        }
    }

    #[test]
    fn a_line_that_is_too_long_is_skipped_whole() {
        let mut input = vec![b'['; MAX_LINE + 10];
        input.extend_from_slice(b"\n{}\n");
        let answers = answers(&input);
        assert_eq!(answers.len(), 2);
        let error = answers[0]["error"].as_str().unwrap();
        assert!(error.contains("longer than 16 MiB"), "{error}");
    }

    #[test]
    fn an_answer_about_a_large_schema_is_short() {
        let schema =
            json!({ "type": "object", "properties": { "a": { "type": "x".repeat(1_000_000) } } });
        let answer = answer_to(&json!({ "schema": schema, "arguments": {} }));
        assert!(answer.to_string().len() < 5_000);
    }
}
