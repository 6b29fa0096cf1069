//! The place in a JSON message that does not match its type, without values.

use std::collections::HashSet;
use std::fmt;

use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MessageDescriptor};
use serde_json::{Map, Value, json};
use wardgate_json::{decimal, exact_double, exact_float, whole_number};

const MAX_SHOWN_NAME: usize = 64;
const MAX_SHOWN_NAMES: usize = 20;

/// A place in a JSON message that does not match its type. It contains names and never a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place} {problem}")]
pub struct JsonMismatch {
    place: FieldPath,
    problem: String,
}

/// The path of a field in a message, such as `items[2].count`, or an empty path for the whole message.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FieldPath(String);

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_str() {
            "" => f.write_str("the message"),
            path => write!(f, "`{path}`"),
        }
    }
}

impl JsonMismatch {
    /// Creates an error for a message whose members are valid one by one, but not together.
    pub(super) fn ambiguous() -> Self {
        Self {
            place: FieldPath(String::new()),
            problem: "contains a field twice, or two fields of which only one may be set"
                .to_owned(),
        }
    }

    /// Returns the error with its place below `outer`, which is a field, an item of a list or an entry of a map.
    fn prefix_place(self, outer: &str) -> Self {
        let FieldPath(inner) = self.place;
        let separator = match inner.chars().next() {
            None | Some('[' | '{') => "",
            Some(_) => ".",
        };
        Self {
            place: FieldPath(format!("{outer}{separator}{inner}")),
            problem: self.problem,
        }
    }
}

/// Returns the field that a JSON member of this name sets.
pub fn field(message: &MessageDescriptor, name: &str) -> Option<FieldDescriptor> {
    message
        .get_field_by_json_name(name)
        .or_else(|| message.get_field_by_name(name))
}

/// Returns the names of the fields of a message, for display.
pub fn field_names(message: &MessageDescriptor) -> String {
    join_names(message.fields().map(|field| field.json_name().to_owned()))
}

/// Returns whether the JSON form of the message type is not an object with a member for each field.
pub fn has_own_form(message: &MessageDescriptor) -> bool {
    message.full_name().starts_with("google.protobuf.")
}

/// Returns whether a field is set twice, by its JSON name and by its name in the `.proto` file.
pub(super) fn gives_a_field_twice(message: &MessageDescriptor, value: &Value) -> bool {
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

/// Returns the first place in a value that does not match by itself, or `None` if there is none.
pub(super) fn find(message: &MessageDescriptor, value: &Value) -> Option<JsonMismatch> {
    find_in(message, value, String::new())
}

fn find_in(message: &MessageDescriptor, value: &Value, path: String) -> Option<JsonMismatch> {
    let Value::Object(members) = value else {
        return leaf(message, value, path);
    };
    if has_own_form(message) {
        return leaf(message, value, path);
    }
    members.iter().find_map(|(name, member)| {
        let Some(field) = field(message, name) else {
            return Some(JsonMismatch {
                place: FieldPath(path.clone()),
                problem: unknown(message, name),
            });
        };
        let path = match path.as_str() {
            "" => name.clone(),
            parent => format!("{parent}.{name}"),
        };
        find_in_field(&field, name, member, path)
    })
}

fn leaf(message: &MessageDescriptor, value: &Value, path: String) -> Option<JsonMismatch> {
    let wrong = DynamicMessage::deserialize(message.clone(), value).is_err();
    wrong.then(|| JsonMismatch {
        place: FieldPath(path),
        problem: format!("is not {}", describe_kind(&Kind::Message(message.clone()))),
    })
}

fn find_in_field(
    field: &FieldDescriptor,
    name: &str,
    value: &Value,
    path: String,
) -> Option<JsonMismatch> {
    let fits = |value: Value| {
        let alone = Value::Object(Map::from_iter([(name.to_owned(), value)]));
        DynamicMessage::deserialize(field.parent_message().clone(), &alone).is_ok()
    };
    let wrong = |path: String, wanted: &str| {
        let problem = format!("is not {wanted}");
        Some(JsonMismatch {
            place: FieldPath(path),
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
                    Kind::Message(message) => find_in(message, item, path),
                    _ if fits(json!([item])) => None,
                    _ => wrong(path, &describe_kind(&kind)),
                }
            })
        }
        _ if field.is_list() => wrong(path, "a list"),
        Value::Object(entries) if field.is_map() => {
            // The path omits the keys of entries, because keys are values of the caller.
            let path = format!("{path}{{}}");
            let entry = kind
                .as_message()
                .map(MessageDescriptor::map_entry_value_field);
            entries
                .iter()
                .find_map(|(key, item)| match entry.as_ref()?.kind() {
                    Kind::Message(message) => find_in(&message, item, path.clone()),
                    _ if fits(json!({ key: item })) => None,
                    kind => wrong(
                        path.clone(),
                        &format!(
                            "an entry with {} and a key of its type",
                            describe_kind(&kind)
                        ),
                    ),
                })
        }
        _ if field.is_map() => wrong(path, "an object"),
        _ => match &kind {
            Kind::Message(message) => find_in(message, value, path),
            _ if fits(value.clone()) => None,
            _ => wrong(path, &describe_kind(&kind)),
        },
    }
}

/// Returns the first number that its field cannot represent exactly, or `None` if there is none. A float represents a
/// number exactly if the number is its shortest decimal form. `value` must match the message in every other respect.
pub(super) fn find_inexact_number(
    message: &MessageDescriptor,
    value: &Value,
) -> Option<JsonMismatch> {
    find_inexact_in(&Kind::Message(message.clone()), value)
}

/// Returns the first such number in the value of a field, in an item of a list or in the entries of a map.
fn find_inexact_in(kind: &Kind, value: &Value) -> Option<JsonMismatch> {
    match value {
        Value::Null | Value::Bool(_) => None,
        Value::Number(number) => {
            // The numbers of a `google.protobuf.Value` are doubles.
            let kind = scalar_kind(kind).unwrap_or(Kind::Double);
            check_number(&kind, number.as_str())
        }
        Value::String(text) => {
            let kind = scalar_kind(kind)?;
            // A text without digits is the name of a float that is not finite.
            let is_number = matches!(kind, Kind::Double | Kind::Float)
                && text.contains(|c: char| c.is_ascii_digit());
            is_number.then(|| check_number(&kind, text)).flatten()
        }
        Value::Array(items) => items.iter().enumerate().find_map(|(number, item)| {
            let mismatch = find_inexact_in(kind, item)?;
            Some(mismatch.prefix_place(&format!("[{number}]")))
        }),
        Value::Object(members) => {
            let message = kind.as_message()?;
            let content = any_content(message, members);
            let message = content.as_ref().unwrap_or(message);
            members.iter().find_map(|(name, member)| {
                let (place, kind) = member_kind(message, name)?;
                Some(find_inexact_in(&kind, member)?.prefix_place(place))
            })
        }
    }
}

/// Returns the kind of a field that is not a message, also if it is wrapped in a message such as
/// `google.protobuf.DoubleValue`.
fn scalar_kind(kind: &Kind) -> Option<Kind> {
    match kind {
        Kind::Message(message) => Some(message.get_field_by_name("value")?.kind()),
        kind => Some(kind.clone()),
    }
}

/// Returns the place and the kind of a member of the JSON form of a message. The place omits the keys of entries,
/// because keys are values of the caller.
fn member_kind<'a>(message: &MessageDescriptor, name: &'a str) -> Option<(&'a str, Kind)> {
    if message.is_map_entry() {
        return Some(("{}", message.map_entry_value_field().kind()));
    }
    match message.full_name() {
        // Their members are values of the same form at any depth, as is the `value` of an `Any` in an `Any`.
        "google.protobuf.Struct"
        | "google.protobuf.Value"
        | "google.protobuf.ListValue"
        | "google.protobuf.Any" => Some(("{}", Kind::Message(message.clone()))),
        _ => {
            let extension = || Some(message.get_extension_by_json_name(name)?.kind());
            let kind = field(message, name).map(|field| field.kind());
            Some((name, kind.or_else(extension)?))
        }
    }
}

/// Returns the type of the message in the JSON form of an `Any`, or `None` for other messages.
fn any_content(
    message: &MessageDescriptor,
    members: &Map<String, Value>,
) -> Option<MessageDescriptor> {
    if message.full_name() != "google.protobuf.Any" {
        return None;
    }
    let (_, name) = members.get("@type")?.as_str()?.rsplit_once('/')?;
    message.parent_pool().get_message_by_name(name)
}

/// Returns the error for a number that a field of this kind cannot represent exactly.
fn check_number(kind: &Kind, number: &str) -> Option<JsonMismatch> {
    let problem = match kind {
        Kind::Double if decimal(number).is_none_or(|number| exact_double(&number).is_none()) => {
            "is not a number that a double represents exactly".to_owned()
        }
        Kind::Float if decimal(number).is_none_or(|number| exact_float(&number).is_none()) => {
            "is not a number that a float represents exactly".to_owned()
        }
        Kind::Double | Kind::Float => return None,
        kind => {
            let whole = whole_number(number);
            if whole.is_some_and(|whole| whole.is_u64() || whole.is_i64()) {
                return None;
            }
            format!("is not {}", describe_kind(kind))
        }
    };
    Some(JsonMismatch {
        place: FieldPath(String::new()),
        problem,
    })
}

fn unknown(message: &MessageDescriptor, name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let name = match name {
        name if name.len() <= MAX_SHOWN_NAME && name.chars().all(plain) => format!(" `{name}`"),
        _ => " of this name".to_owned(),
    };
    format!("has no field{name}; it has {}", field_names(message))
}

fn join_names(names: impl ExactSizeIterator<Item = String>) -> String {
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

/// Returns what a field of this kind accepts, for display.
fn describe_kind(kind: &Kind) -> String {
    let text = match kind {
        Kind::Double | Kind::Float => "a number",
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => "a 32-bit integer",
        Kind::Uint32 | Kind::Fixed32 => "a 32-bit integer from 0",
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => "a 64-bit integer",
        Kind::Uint64 | Kind::Fixed64 => "a 64-bit integer from 0",
        Kind::Bool => "a boolean",
        Kind::String => "a string",
        Kind::Bytes => "a string in Base64",
        Kind::Enum(values) => {
            return format!(
                "one of {}",
                join_names(values.values().map(|value| value.name().to_owned()))
            );
        }
        Kind::Message(message) => match message.full_name() {
            "google.protobuf.Timestamp" => "a time like \"2026-01-31T12:00:00Z\"",
            "google.protobuf.Duration" => "a duration like \"1.5s\"",
            "google.protobuf.FieldMask" => "a string of field paths separated by commas",
            "google.protobuf.Any" => "an object with an `@type` that the server describes",
            name => return format!("an object that is a {name}"),
        },
    };
    text.to_owned()
}
