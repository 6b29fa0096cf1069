//! One value, brought to one of its declared types where nothing is lost.

use serde_json::value::RawValue;
use serde_json::{Number, Value};

use crate::schema::JsonType;
use crate::strict::Strict;

/// Whole numbers up to here are exact in double precision (RFC 8259, section 6).
const MAX_EXACT: u64 = 1 << 53;

/// Reads one value and brings it to one of `types` where nothing is lost; no type means any.
pub(crate) fn read_value(raw: &str, types: &[JsonType]) -> Result<Value, String> {
    let value = match raw.as_bytes().first() {
        Some(b'-' | b'0'..=b'9') => return number(raw, types),
        _ => serde_json::from_str::<Strict>(raw)
            .map(|Strict(value)| value)
            .map_err(|_| {
                "holds a NUL character, half a surrogate pair or a member given twice".to_owned()
            })?,
    };
    let has = |kind| types.contains(&kind);
    match &value {
        Value::String(text) if !types.is_empty() && !has(JsonType::String) => {
            from_text(text, types)
        }
        Value::Bool(_) if !types.is_empty() && !has(JsonType::Boolean) => Err(wanted(types)),
        Value::Null if !types.is_empty() && !has(JsonType::Null) => Err(wanted(types)),
        _ => Ok(value),
    }
}

/// A JSON number. It is read from its digits, so that none is lost on the way.
fn number(raw: &str, types: &[JsonType]) -> Result<Value, String> {
    let has = |kind| types.contains(&kind);
    let is_whole = !raw.contains(['.', 'e', 'E']);
    let as_written = || {
        if is_whole {
            whole(raw)
        } else {
            fractional(raw)
        }
    };
    let value = match (has(JsonType::Integer), has(JsonType::Number)) {
        (true, true) => as_written(),
        (true, false) if is_whole => whole(raw),
        (true, false) => fractional(raw).and_then(|value| rounded(&value)),
        (false, true) => as_written().filter(|value| value.as_i64().is_none_or(is_exact)),
        (false, false) if has(JsonType::String) => Some(Value::from(raw)),
        (false, false) if types.is_empty() => as_written(),
        (false, false) => None,
    };
    value.ok_or_else(|| wanted(types))
}

/// A whole number of at most 64 bits.
fn whole(digits: &str) -> Option<Value> {
    digits.parse::<i64>().ok().map(Value::from)
}

fn fractional(digits: &str) -> Option<Value> {
    let number: f64 = digits.parse().ok()?;
    Number::from_f64(number).map(Value::Number)
}

/// A whole number, also where a default is written as 10.0.
pub fn integral(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| rounded(value)?.as_i64())
}

/// 10.0 is 10; 10.5 is no whole number, and neither is one that may have been rounded.
fn rounded(value: &Value) -> Option<Value> {
    let number = value.as_f64().filter(|number| number.fract() == 0.0)?;
    let number = format!("{number:.0}").parse::<i64>().ok()?;
    (is_exact(number) && number.unsigned_abs() < MAX_EXACT).then(|| Value::from(number))
}

fn is_exact(number: i64) -> bool {
    number.unsigned_abs() <= MAX_EXACT
}

/// A text where the schema wants something else.
fn from_text(text: &str, types: &[JsonType]) -> Result<Value, String> {
    let coerced = types.iter().find_map(|kind| match kind {
        JsonType::Integer if is_json_number(text) && !text.contains(['.', 'e', 'E']) => whole(text),
        JsonType::Number if is_json_number(text) => number(text, &[JsonType::Number]).ok(),
        JsonType::Boolean => match text {
            "true" => Some(Value::Bool(true)),
            "false" => Some(Value::Bool(false)),
            _ => None,
        },
        _ => None,
    });
    coerced.ok_or_else(|| wanted(types))
}

fn is_json_number(text: &str) -> bool {
    text.starts_with(|c: char| c == '-' || c.is_ascii_digit())
        && serde_json::from_str::<&RawValue>(text).is_ok_and(|raw| raw.get() == text)
}

pub(crate) fn wanted(types: &[JsonType]) -> String {
    let names: Vec<_> = types
        .iter()
        .map(|kind| match kind {
            JsonType::Null => "null",
            JsonType::Boolean => "true or false",
            JsonType::Integer => "a whole number of at most 64 bits",
            JsonType::Number => "a number",
            JsonType::String => "a text",
            JsonType::Array => "a list",
            JsonType::Object => "an object",
        })
        .collect();
    format!("must be {}", names.join(" or "))
}
