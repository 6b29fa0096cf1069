//! The arguments of one call: parsed once, coerced without loss, checked against the input schema.
//!
//! What is wrong is said by name and rule; a value never shows in a message.

use std::collections::HashSet;
use std::fmt;

use jsonschema::ValidationError;
use jsonschema::error::ValidationErrorKind;
use serde::Deserialize;
use serde::de::{self, DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value};

use crate::catalogue::{Derive, InputSchema, JsonType};

/// More complaints than this help nobody.
const MAX_COMPLAINTS: usize = 8;

/// Longest part of an unknown argument's name that is repeated.
const MAX_SHOWN_NAME: usize = 64;

/// Whole numbers up to here are exact in double precision (RFC 8259, section 6).
const MAX_EXACT: u64 = 1 << 53;

/// Arguments that fit the input schema, defaults filled in.
#[derive(Debug)]
pub(crate) struct Arguments(Map<String, Value>);

/// Why arguments do not fit: what to mend, one sentence a fault.
#[derive(Debug, thiserror::Error)]
#[error("Invalid arguments: {}", .0.join("; "))]
pub(crate) struct InvalidArguments(Vec<String>);

impl Arguments {
    /// Reads `raw`, one JSON object. `as_decided`: the policy has looked at these arguments, so a value that
    /// coercion would make into something else than it saw is refused.
    pub(crate) fn read(
        schema: &InputSchema,
        raw: &[u8],
        as_decided: bool,
    ) -> Result<Self, InvalidArguments> {
        let Ok(Members(members)) = serde_json::from_slice(raw) else {
            return Err(InvalidArguments(vec!["send one JSON object".to_owned()]));
        };
        let mut complaints = Vec::new();
        let mut arguments = Map::new();
        for (name, raw) in members {
            let property = schema.property(&name);
            if property.is_none() && !schema.is_open() {
                complaints.push(unknown(&name, schema));
                continue;
            }
            let types = property.map_or(&[][..], |property| &property.types);
            let value = read_value(raw.get(), types);
            match value {
                Ok(_) if arguments.contains_key(&name) => {
                    complaints.push(format!("`{}` is given twice", shown(&name)));
                }
                Ok(value) if as_decided && !is_as_decided(raw.get(), &value) => {
                    complaints.push(format!(
                        "`{}` {}, written as such: this call is decided on its arguments",
                        shown(&name),
                        wanted(types)
                    ));
                }
                Ok(value) => {
                    arguments.insert(name, value);
                }
                Err(complaint) => complaints.push(format!("`{}` {complaint}", shown(&name))),
            }
        }
        if !complaints.is_empty() {
            complaints.truncate(MAX_COMPLAINTS);
            return Err(InvalidArguments(complaints));
        }
        for property in schema.properties() {
            if let Some(default) = &property.default
                && !arguments.contains_key(&property.name)
            {
                arguments.insert(property.name.clone(), default.clone());
            }
        }
        let instance = Value::Object(arguments);
        let complaints: Vec<_> = if schema.validator().is_valid(&instance) {
            Vec::new()
        } else {
            let errors = schema.validator().iter_errors(&instance);
            errors
                .take(MAX_COMPLAINTS)
                .map(|error| complaint(&error))
                .collect()
        };
        match instance {
            Value::Object(arguments) if complaints.is_empty() => Ok(Self(arguments)),
            _ => Err(InvalidArguments(complaints)),
        }
    }

    /// By name.
    pub(crate) fn values(&self) -> &Map<String, Value> {
        &self.0
    }

    /// Adds the values derived from them.
    pub(crate) fn derive(&mut self, derive: &Derive) -> Result<(), InvalidArguments> {
        derive
            .extend(&mut self.0)
            .map_err(|unfit| InvalidArguments(vec![unfit.to_string()]))
    }
}

/// Whether the policy saw `value` when it saw `raw`: both as the text that policies compare.
fn is_as_decided(raw: &str, value: &Value) -> bool {
    serde_json::from_str(raw).is_ok_and(|seen: Value| as_seen(&seen) == as_seen(value))
}

/// An argument as policies see it: a text as it is, anything else as its JSON text.
pub(crate) fn as_seen(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Reads one value and brings it to one of `types` where nothing is lost; no type means any.
fn read_value(raw: &str, types: &[JsonType]) -> Result<Value, String> {
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
pub(crate) fn integral(value: &Value) -> Option<i64> {
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

fn wanted(types: &[JsonType]) -> String {
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

fn unknown(name: &str, schema: &InputSchema) -> String {
    let known: Vec<_> = schema
        .properties()
        .iter()
        .map(|property| format!("`{}`", property.name))
        .collect();
    let known = match known.as_slice() {
        [] => "this tool takes none".to_owned(),
        names => format!("known are {}", names.join(", ")),
    };
    format!("`{}` is not an argument of this tool, {known}", shown(name))
}

fn shown(name: &str) -> String {
    let name: String = name.chars().take(MAX_SHOWN_NAME).collect();
    name.escape_debug().to_string()
}

fn complaint(error: &ValidationError<'_>) -> String {
    if let ValidationErrorKind::Required { property } = error.kind() {
        let name = property.as_str().unwrap_or_default();
        return format!("`{name}` is required");
    }
    let path = error
        .instance_path()
        .as_str()
        .trim_start_matches('/')
        .to_owned();
    let message = error.masked().to_string();
    if path.is_empty() {
        message
    } else {
        format!("`{}`: {message}", shown(&path))
    }
}

/// The members of a JSON object, their values unread.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;

        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(MembersVisitor)
    }
}

/// A JSON value without NUL characters and without members given twice.
pub(crate) struct Strict(pub(crate) Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictSeed).map(Self)
    }
}

#[derive(Clone, Copy)]
struct StrictSeed;

impl<'de> DeserializeSeed<'de> for StrictSeed {
    type Value = Value;

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for StrictSeed {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: de::Error>(self, truth: bool) -> Result<Value, E> {
        Ok(Value::Bool(truth))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Value, E> {
        Ok(Value::from(number))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Value, E> {
        Ok(Value::from(number))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Value, E> {
        Ok(Value::from(number))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Value, E> {
        if text.contains('\0') {
            return Err(E::custom("NUL"));
        }
        Ok(Value::from(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element_seed(self)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut seen = HashSet::new();
        let mut members = Map::new();
        while let Some(name) = access.next_key::<String>()? {
            if name.contains('\0') || !seen.insert(name.clone()) {
                return Err(de::Error::custom("member"));
            }
            members.insert(name, access.next_value_seed(self)?);
        }
        Ok(Value::Object(members))
    }
}
