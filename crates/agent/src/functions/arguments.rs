//! Parses the arguments of a call as written by a model.

use std::borrow::Cow;

use serde_json::value::RawValue;
use serde_json::{Map, Value};
use wardgate_arguments::{Arguments, InputSchema, InvalidArguments};

use wardgate_tool_call_parser::repair_json;

/// Parses `text` by the rules of the tool-runner, so that the model learns immediately what is invalid. Invalid JSON is repaired
/// where it has only one possible meaning; nothing is invented.
pub(crate) fn read_arguments(
    schema: &InputSchema,
    text: &str,
) -> Result<Map<String, Value>, InvalidArguments> {
    let json = match text.trim() {
        // Models write nothing when there are no arguments.
        "" => Cow::Borrowed("{}"),
        text if is_json(text) => Cow::Borrowed(text),
        text => repair_json(text).map_or(Cow::Borrowed(text), Cow::Owned),
    };
    // Some models encode the object as a JSON string.
    let inner = serde_json::from_str::<String>(&json).ok();
    let json = inner.as_deref().unwrap_or(&json);
    Arguments::parse(schema, json.as_bytes()).map(Arguments::into_values)
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<&RawValue>(text).is_ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse_arguments(text: &str) -> Result<Value, String> {
        let schema = InputSchema::compile_open(&json!({
            "type": "object",
            "properties": {
                "city": { "type": "string" },
                "days": { "type": "integer", "default": 3 },
                "wind": { "type": "boolean" },
            },
            "required": ["city"],
        }))
        .unwrap();
        read_arguments(&schema, text)
            .map(Value::from)
            .map_err(|invalid| invalid.to_string())
    }

    #[test]
    fn what_fits_is_coerced_with_defaults_filled_in() {
        assert_eq!(
            parse_arguments(r#" {"city": "Hue", "days": "5"} "#),
            Ok(json!({ "city": "Hue", "days": 5 }))
        );
        let text_in_text = json!(r#"{"city": "Hue"}"#).to_string();
        assert_eq!(
            parse_arguments(&text_in_text),
            Ok(json!({ "city": "Hue", "days": 3 }))
        );
    }

    #[test]
    fn what_has_one_meaning_is_mended() {
        for text in [
            r#"{"city": "Hue", "wind": true,}"#,
            "{'city': 'Hue', 'wind': True}",
            r#"{city: "Hue", "wind": true}"#,
        ] {
            let expected = json!({ "city": "Hue", "wind": true, "days": 3 });
            assert_eq!(parse_arguments(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn nothing_is_made_up() {
        for text in [
            r#"{"city": "Hue""#,
            r#"{"city": "Hu"#,
            r#"{"city": }"#,
            "Hue",
            "[]",
            "null",
        ] {
            assert_eq!(
                parse_arguments(text),
                Err("Invalid arguments: send a single JSON object".to_owned()),
                "{text}"
            );
        }
        for text in ["", "{}"] {
            assert_eq!(
                parse_arguments(text),
                Err("Invalid arguments: `city` is required".to_owned())
            );
        }
        let twice = parse_arguments(r#"{"city": "Hue", "city": "Da Nang"}"#).unwrap_err();
        assert!(twice.contains("occurs twice"), "{twice}");
    }
}
