//! JSON ⇄ protobuf, by the JSON mapping of proto3.
//!
//! 64-bit numbers are texts, bytes are Base64, enum values go by name, fields by their lowerCamelCase name
//! (the names of the `.proto` file are read too). In answers, fields that hold their default are written
//! out, as long as they have no presence: a row has the same columns whatever its values, and a row rule
//! on a `false` finds it.

use std::collections::HashSet;
use std::fmt;
use std::io;

use prost_reflect::{
    DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, ReflectMessage, SerializeOptions,
    Value as ProtoValue,
};
use serde_json::{Map, Value, json};

/// Messages inside one another, an `Any` and its content included. prost has the same limit, but counts
/// anew inside each `Any`.
const MAX_DEPTH: usize = 100;
const MAX_SHOWN_NAME: usize = 64;
const MAX_SHOWN_NAMES: usize = 20;

/// A place in a JSON message that does not fit. Holds names and never a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place} {problem}")]
pub(crate) struct Misfit {
    place: Place,
    problem: String,
}

/// Where in a message: `items[2].count`, or the whole of it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place(String);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_str() {
            "" => f.write_str("the message"),
            path => write!(f, "`{path}`"),
        }
    }
}

/// Why a message has no JSON form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotJson {
    TooLarge,
    Invalid,
}

/// Reads a message; what does not fit is refused and named.
pub(crate) fn to_message(
    descriptor: &MessageDescriptor,
    value: &Value,
) -> Result<DynamicMessage, Misfit> {
    let ambiguous = || Misfit {
        place: Place(String::new()),
        problem: "gives a field twice, or two fields of which only one may be set".to_owned(),
    };
    // Else the last of two names would win, and it may not be the one that was decided on.
    if gives_a_field_twice(descriptor, value) {
        return Err(ambiguous());
    }
    // The parser's own errors quote values.
    DynamicMessage::deserialize(descriptor.clone(), value)
        .map_err(|_| misfit(descriptor, value, String::new()).unwrap_or_else(ambiguous))
}

/// The message as JSON text of at most `limit` bytes, read as a value.
pub(crate) fn to_json(message: &DynamicMessage, limit: usize) -> Result<Value, NotJson> {
    if is_too_deep(message, MAX_DEPTH) {
        return Err(NotJson::Invalid);
    }
    // By way of a text: a few bytes of protobuf can stand for any amount of JSON, since names and defaults
    // are written out.
    let mut text = Capped {
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
    serde_json::from_slice(&text.bytes).map_err(|_| NotJson::Invalid)
}

/// The field that a JSON member of this name sets.
pub(crate) fn field(message: &MessageDescriptor, name: &str) -> Option<FieldDescriptor> {
    message
        .get_field_by_json_name(name)
        .or_else(|| message.get_field_by_name(name))
}

/// The names of a message's fields, for people.
pub(crate) fn field_names(message: &MessageDescriptor) -> String {
    listed(message.fields().map(|field| field.json_name().to_owned()))
}

/// True when the JSON form is not an object with a member for each field.
pub(crate) fn has_own_form(message: &MessageDescriptor) -> bool {
    message.full_name().starts_with("google.protobuf.")
}

/// By its JSON name and by the one of the `.proto` file.
fn gives_a_field_twice(message: &MessageDescriptor, value: &Value) -> bool {
    let Value::Object(members) = value else {
        return false;
    };
    if has_own_form(message) {
        return false;
    }
    let mut given = HashSet::new();
    members.iter().any(|(name, member)| {
        let Some(field) = field(message, name) else {
            return false;
        };
        let deeper = |message: &MessageDescriptor| match member {
            Value::Array(items) => items.iter().any(|item| gives_a_field_twice(message, item)),
            member => gives_a_field_twice(message, member),
        };
        let kind = field.kind();
        !given.insert(field.number())
            || match kind.as_message() {
                None => false,
                Some(entry) if field.is_map() => {
                    match (entry.map_entry_value_field().kind(), member) {
                        (Kind::Message(message), Value::Object(entries)) => entries
                            .values()
                            .any(|item| gives_a_field_twice(&message, item)),
                        _ => false,
                    }
                }
                Some(message) => deeper(message),
            }
    })
}

/// Finds the first place that does not fit.
fn misfit(message: &MessageDescriptor, value: &Value, path: String) -> Option<Misfit> {
    let Value::Object(members) = value else {
        return leaf(message, value, path);
    };
    if has_own_form(message) {
        return leaf(message, value, path);
    }
    members.iter().find_map(|(name, member)| {
        let Some(field) = field(message, name) else {
            return Some(Misfit {
                place: Place(path.clone()),
                problem: unknown(message, name),
            });
        };
        let path = match path.as_str() {
            "" => name.clone(),
            parent => format!("{parent}.{name}"),
        };
        field_misfit(&field, name, member, path)
    })
}

fn leaf(message: &MessageDescriptor, value: &Value, path: String) -> Option<Misfit> {
    let wrong = DynamicMessage::deserialize(message.clone(), value).is_err();
    wrong.then(|| Misfit {
        place: Place(path),
        problem: format!("is not {}", wanted(&Kind::Message(message.clone()))),
    })
}

fn field_misfit(
    field: &FieldDescriptor,
    name: &str,
    value: &Value,
    path: String,
) -> Option<Misfit> {
    let fits = |value: Value| {
        let alone = Value::Object(Map::from_iter([(name.to_owned(), value)]));
        DynamicMessage::deserialize(field.parent_message().clone(), &alone).is_ok()
    };
    let wrong = |path: String, wanted: &str| {
        let problem = format!("is not {wanted}");
        Some(Misfit {
            place: Place(path),
            problem,
        })
    };
    let kind = field.kind();
    match value {
        Value::Null => None,
        Value::Array(items) if field.is_list() => {
            items.iter().enumerate().find_map(|(number, item)| {
                let path = format!("{path}[{number}]");
                match &kind {
                    Kind::Message(message) => misfit(message, item, path),
                    _ if fits(json!([item])) => None,
                    _ => wrong(path, &wanted(&kind)),
                }
            })
        }
        _ if field.is_list() => wrong(path, "a list"),
        Value::Object(entries) if field.is_map() => {
            // Keys are values of the caller's, so entries go without a name.
            let path = format!("{path}{{}}");
            let entry = kind
                .as_message()
                .map(MessageDescriptor::map_entry_value_field);
            entries
                .iter()
                .find_map(|(key, item)| match entry.as_ref()?.kind() {
                    Kind::Message(message) => misfit(&message, item, path.clone()),
                    _ if fits(json!({ key: item })) => None,
                    kind => wrong(
                        path.clone(),
                        &format!("an entry with {} and a key of its type", wanted(&kind)),
                    ),
                })
        }
        _ if field.is_map() => wrong(path, "an object"),
        _ => match &kind {
            Kind::Message(message) => misfit(message, value, path),
            _ if fits(value.clone()) => None,
            _ => wrong(path, &wanted(&kind)),
        },
    }
}

fn unknown(message: &MessageDescriptor, name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let name = match name {
        name if name.len() <= MAX_SHOWN_NAME && name.chars().all(plain) => format!(" `{name}`"),
        _ => " of that name".to_owned(),
    };
    format!("has no field{name}; it has {}", field_names(message))
}

fn listed(names: impl ExactSizeIterator<Item = String>) -> String {
    let count = names.len();
    if count == 0 {
        return "none".to_owned();
    }
    let shown: Vec<_> = names
        .take(MAX_SHOWN_NAMES)
        .map(|name| format!("`{name}`"))
        .collect();
    let more = if count > shown.len() {
        " and others"
    } else {
        ""
    };
    format!("{}{more}", shown.join(", "))
}

/// What a field of this kind takes, for people.
fn wanted(kind: &Kind) -> String {
    let text = match kind {
        Kind::Double | Kind::Float => "a number",
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => "a 32-bit integer",
        Kind::Uint32 | Kind::Fixed32 => "a 32-bit integer from 0",
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => "a 64-bit integer",
        Kind::Uint64 | Kind::Fixed64 => "a 64-bit integer from 0",
        Kind::Bool => "a boolean",
        Kind::String => "a text",
        Kind::Bytes => "a text in Base64",
        Kind::Enum(values) => {
            return format!(
                "one of {}",
                listed(values.values().map(|value| value.name().to_owned()))
            );
        }
        Kind::Message(message) => match message.full_name() {
            "google.protobuf.Timestamp" => "a time like \"2026-01-31T12:00:00Z\"",
            "google.protobuf.Duration" => "a length of time like \"1.5s\"",
            "google.protobuf.FieldMask" => "a text of field paths with commas between them",
            "google.protobuf.Any" => "an object with an `@type` that the server describes",
            name => return format!("an object that is a {name}"),
        },
    };
    text.to_owned()
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

/// The message in an `Any`.
fn content(any: &DynamicMessage) -> Option<DynamicMessage> {
    let url = any.get_field_by_name("type_url")?;
    let (_, name) = url.as_str()?.rsplit_once('/')?;
    let descriptor = any.descriptor().parent_pool().get_message_by_name(name)?;
    let value = any.get_field_by_name("value")?;
    DynamicMessage::decode(descriptor, value.as_bytes()?.clone()).ok()
}

/// Takes no more than `limit` bytes.
struct Capped {
    bytes: Vec<u8>,
    limit: usize,
}

impl io::Write for &mut Capped {
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
