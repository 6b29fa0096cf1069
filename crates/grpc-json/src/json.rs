//! Conversion between JSON and protobuf, by the JSON mapping of proto3.
//!
//! 64-bit integers are strings, bytes are Base64, enum values are identified by name and fields by their lowerCamelCase
//! name (the names of the `.proto` file are accepted too). Responses contain the fields that hold their default value,
//! unless the fields have presence, so that a row has the same columns whatever its values are, and a row rule on a
//! `false` finds it. A number that its field cannot represent exactly is refused instead of rounded.

use std::io;

use prost_reflect::{
    DynamicMessage, MessageDescriptor, ReflectMessage, SerializeOptions, Value as ProtoValue,
};
use serde_json::{Number, Value};
use wardgate_json::{parse_strict, whole_number};

use super::json_mismatch::{self, JsonMismatch};

/// Maximum depth of nested messages, including the content of an `Any`. prost has the same limit, but starts counting
/// again inside each `Any`.
const MAX_DEPTH: usize = 100;

/// The reason why a message has no JSON form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotJson {
    TooLarge,
    Invalid,
}

/// Converts JSON to a message. The error names the place that does not match.
pub(crate) fn to_message(
    descriptor: &MessageDescriptor,
    value: &Value,
) -> Result<DynamicMessage, JsonMismatch> {
    // Otherwise the last of two members would win, which may not be the one that the decision was made on.
    if json_mismatch::gives_a_field_twice(descriptor, value) {
        return Err(JsonMismatch::ambiguous());
    }
    let converted = &with_proto_numbers(value.clone());
    // The error is built here because those of the parser quote values.
    let message = DynamicMessage::deserialize(descriptor.clone(), converted).map_err(|_| {
        json_mismatch::find(descriptor, converted).unwrap_or_else(JsonMismatch::ambiguous)
    })?;
    // The parser rounds a number that its field cannot represent.
    match json_mismatch::find_inexact_number(descriptor, value) {
        Some(mismatch) => Err(mismatch),
        None => Ok(message),
    }
}

/// Returns `value` with its numbers in the forms of protobuf: integers of at most 64 bits, even if they are written as
/// 10.0, and doubles, because protobuf has no decimals. A double may be rounded.
fn with_proto_numbers(value: Value) -> Value {
    match value {
        Value::Number(number) if number.is_u64() || number.is_i64() => Value::Number(number),
        Value::Number(number) => {
            let whole = whole_number(number.as_str());
            let whole = whole.filter(|whole| whole.is_u64() || whole.is_i64());
            let converted = whole.or_else(|| Number::from_f64(number.as_f64()?));
            Value::Number(converted.unwrap_or(number))
        }
        Value::Array(items) => items.into_iter().map(with_proto_numbers).collect(),
        Value::Object(members) => members
            .into_iter()
            .map(|(name, member)| (name, with_proto_numbers(member)))
            .collect(),
        other => other,
    }
}

/// Converts a message to JSON whose text has at most `limit` bytes.
pub(crate) fn to_json(message: &DynamicMessage, limit: usize) -> Result<Value, NotJson> {
    if is_too_deep(message, MAX_DEPTH) {
        return Err(NotJson::Invalid);
    }
    // The message is written as text first, because a few bytes of protobuf can become any amount of JSON, since names
    // and defaults are written out.
    let mut text = CappedBuffer {
        bytes: Vec::new(),
        limit,
    };
    let options = SerializeOptions::new().skip_default_fields(false);
    message
        .serialize_with_options(&mut serde_json::Serializer::new(&mut text), &options)
        .map_err(|error| {
            if error.is_io() {
                NotJson::TooLarge
            } else {
                NotJson::Invalid
            }
        })?;
    parse_strict(&text.bytes).map_err(|_| NotJson::Invalid)
}

fn is_too_deep(message: &DynamicMessage, left: usize) -> bool {
    let Some(left) = left.checked_sub(1) else {
        return true;
    };
    if message.descriptor().full_name() == "google.protobuf.Any" {
        return content(message).is_some_and(|content| is_too_deep(&content, left));
    }
    let value_is = |value: &ProtoValue| match value {
        ProtoValue::Message(message) => is_too_deep(message, left),
        _ => false,
    };
    message.fields().any(|(_, value)| match value {
        ProtoValue::List(values) => values.iter().any(value_is),
        ProtoValue::Map(entries) => entries.values().any(value_is),
        value => value_is(value),
    })
}

/// Decodes the message in an `Any`.
fn content(any: &DynamicMessage) -> Option<DynamicMessage> {
    let url = any.get_field_by_name("type_url")?;
    let (_, name) = url.as_str()?.rsplit_once('/')?;
    let descriptor = any.descriptor().parent_pool().get_message_by_name(name)?;
    let value = any.get_field_by_name("value")?;
    DynamicMessage::decode(descriptor, value.as_bytes()?.clone()).ok()
}

/// A buffer that accepts at most `limit` bytes.
struct CappedBuffer {
    bytes: Vec<u8>,
    limit: usize,
}

impl io::Write for &mut CappedBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.limit {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
