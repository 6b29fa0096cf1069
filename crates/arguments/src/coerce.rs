//! Lossless coercion of one value to its declared types.

use serde_json::Value;
use serde_json::value::RawValue;
use wardgate_json::{MAX_DIGITS, decimal, parse_strict, whole_number};

use crate::schema::JsonType;

/// Reads one value and coerces it to one of `types` if nothing is lost. If `types` is empty, any type is accepted.
pub(crate) fn read_value(raw: &str, types: &[JsonType]) -> Result<Value, String> {
    let value = match raw.as_bytes().first() {
        Some(b'-' | b'0'..=b'9') => return number(raw, types),
        _ => parse_strict(raw.as_bytes()).map_err(|_| {
            "contains a NUL character, an unpaired surrogate or a duplicate member".to_owned()
        })?,
    };
    let has = |kind| types.contains(&kind);
    match &value {
        Value::String(text) if !types.is_empty() && !has(JsonType::String) => {
            from_text(text, types)
        }
        Value::Bool(_) if !types.is_empty() && !has(JsonType::Boolean) => Err(type_message(types)),
        Value::Null if !types.is_empty() && !has(JsonType::Null) => Err(type_message(types)),
        _ => Ok(value),
    }
}

/// Reads a JSON number. All of its digits are kept.
fn number(raw: &str, types: &[JsonType]) -> Result<Value, String> {
    let has = |kind| types.contains(&kind);
    let takes_any_number = types.is_empty() || has(JsonType::Number);
    if !takes_any_number && !has(JsonType::Integer) {
        let as_text = has(JsonType::String).then(|| Value::from(raw));
        return as_text.ok_or_else(|| type_message(types));
    }
    if decimal(raw).is_none() {
        return Err(format!(
            "has more than {MAX_DIGITS} digits when written without an exponent"
        ));
    }
    let read = if takes_any_number && raw.contains(['.', 'e', 'E']) {
        raw.parse().ok()
    } else {
        whole_number(raw)
    };
    read.map(Value::Number).ok_or_else(|| type_message(types))
}

/// Coerces a string for a schema that requires another type.
fn from_text(text: &str, types: &[JsonType]) -> Result<Value, String> {
    let coerced = types.iter().find_map(|kind| match kind {
        JsonType::Integer if is_json_number(text) && !text.contains(['.', 'e', 'E']) => {
            number(text, &[JsonType::Integer]).ok()
        }
        JsonType::Number if is_json_number(text) => number(text, &[JsonType::Number]).ok(),
        JsonType::Boolean => match text {
            "true" => Some(Value::Bool(true)),
            "false" => Some(Value::Bool(false)),
            _ => None,
        },
        _ => None,
    });
    coerced.ok_or_else(|| type_message(types))
}

fn is_json_number(text: &str) -> bool {
    text.starts_with(|c: char| c == '-' || c.is_ascii_digit())
        && serde_json::from_str::<&RawValue>(text).is_ok_and(|raw| raw.get() == text)
}

pub(crate) fn type_message(types: &[JsonType]) -> String {
    let names: Vec<_> = types
        .iter()
        .map(|kind| match kind {
            JsonType::Null => "null",
            JsonType::Boolean => "true or false",
            JsonType::Integer => "a whole number",
            JsonType::Number => "a number",
            JsonType::String => "a string",
            JsonType::Array => "a list",
            JsonType::Object => "an object",
        })
        .collect();
    format!("must be {}", names.join(" or "))
}
