//! The arguments of one call: parsed once, coerced without loss, and checked against the input schema.
//!
//! Messages name arguments and rules, and never contain values.

use jsonschema::ValidationError;
use jsonschema::error::ValidationErrorKind;
use serde_json::{Map, Value};
use wardgate_json::Members;

use crate::coerce::{read_value, type_message};
use crate::compiled::SchemaViolation;
use crate::schema::InputSchema;

/// Maximum number of faults that are reported.
const MAX_COMPLAINTS: usize = 8;

/// Maximum number of characters of an unknown argument's name in a message.
const MAX_SHOWN_NAME: usize = 64;

/// Arguments that fit the input schema, with defaults filled in.
#[derive(Debug, Clone, PartialEq)]
pub struct Arguments(Map<String, Value>);

/// The faults of arguments that do not fit. Displayed as one clause for each fault, which says how to correct it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Invalid arguments: {}", sentences(.0))]
pub struct InvalidArguments(Vec<ArgumentFault>);

/// One fault of the arguments of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgumentFault {
    /// JSON Pointer (RFC 6901) to the faulty or missing value in the arguments, or an empty string for the arguments as a
    /// whole.
    pub path: String,
    /// The correction to make, by the name of the argument and the rule.
    pub message: String,
}

impl ArgumentFault {
    fn new(name: &str, message: String) -> Self {
        Self {
            path: format!("/{}", name.replace('~', "~0").replace('/', "~1")),
            message,
        }
    }
}

impl InvalidArguments {
    /// Creates a fault of the arguments as a whole.
    pub fn because(message: impl Into<String>) -> Self {
        Self(vec![ArgumentFault {
            path: String::new(),
            message: message.into(),
        }])
    }

    /// Returns the reported faults in their order. There is at least one.
    pub fn complaints(&self) -> &[ArgumentFault] {
        &self.0
    }
}

fn sentences(complaints: &[ArgumentFault]) -> String {
    let messages: Vec<_> = complaints.iter().map(|it| it.message.as_str()).collect();
    messages.join("; ")
}

impl Arguments {
    /// Reads `raw`, which must be one JSON object.
    pub fn parse(schema: &InputSchema, raw: &[u8]) -> Result<Self, InvalidArguments> {
        parse_arguments(schema, raw, false)
    }

    /// Reads arguments like [`Self::parse`], for a call on whose arguments a policy decided. Rejects a value that coercion
    /// would change from what the policy saw.
    pub fn parse_as_decided(schema: &InputSchema, raw: &[u8]) -> Result<Self, InvalidArguments> {
        parse_arguments(schema, raw, true)
    }

    /// Returns the values by name.
    pub fn values(&self) -> &Map<String, Value> {
        &self.0
    }

    /// Converts the arguments into a map of the values by name.
    pub fn into_values(self) -> Map<String, Value> {
        self.0
    }
}

fn parse_arguments(
    schema: &InputSchema,
    raw: &[u8],
    as_decided: bool,
) -> Result<Arguments, InvalidArguments> {
    let Ok(Members(members)) = serde_json::from_slice(raw) else {
        return Err(InvalidArguments::because("send a single JSON object"));
    };
    let mut complaints = Vec::new();
    let mut arguments = Map::new();
    for (name, raw) in members {
        let mut complain = |problem: String| {
            let message = format!("`{}` {problem}", display_name(&name));
            complaints.push(ArgumentFault::new(&name, message));
        };
        let property = schema.property(&name);
        if property.is_none() && !schema.is_open() {
            complain(unknown(schema));
            continue;
        }
        let types = property.map_or(&[][..], |property| &property.types);
        match read_value(raw.get(), types) {
            Ok(_) if arguments.contains_key(&name) => complain("occurs twice".to_owned()),
            Ok(value) if as_decided && !is_as_decided(raw.get(), &value) => complain(format!(
                "{}, in its own JSON type: this call is authorized by its arguments",
                type_message(types)
            )),
            Ok(value) => {
                arguments.insert(name, value);
            }
            Err(problem) => complain(problem),
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
    let arguments = Value::Object(arguments);
    match schema.compiled_schema().check(&arguments, MAX_COMPLAINTS) {
        Err(SchemaViolation::Rules(errors)) => {
            return Err(InvalidArguments(errors.iter().map(complaint).collect()));
        }
        Err(SchemaViolation::TooMuch) => {
            return Err(InvalidArguments::because(
                "they are too large or too deeply nested to be checked against the schema",
            ));
        }
        Ok(()) => {}
    }
    match arguments {
        Value::Object(arguments) => Ok(Arguments(arguments)),
        _ => Err(InvalidArguments::because("send a single JSON object")),
    }
}

/// Returns whether `value` is what the policy saw as `raw`, compared in the text form that policies use.
fn is_as_decided(raw: &str, value: &Value) -> bool {
    serde_json::from_str(raw).is_ok_and(|seen: Value| as_seen(&seen) == as_seen(value))
}

/// Returns an argument in the form that policies see: a string unchanged, and any other value as JSON text.
pub fn as_seen(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn unknown(schema: &InputSchema) -> String {
    let known: Vec<_> = schema
        .properties()
        .iter()
        .map(|property| format!("`{}`", property.name))
        .collect();
    let known = match known.as_slice() {
        [] => "which has none".to_owned(),
        names => format!("whose arguments are {}", names.join(", ")),
    };
    format!("is not an argument of the tool, {known}")
}

fn display_name(name: &str) -> String {
    let name: String = name.chars().take(MAX_SHOWN_NAME).collect();
    name.escape_debug().to_string()
}

fn complaint(error: &ValidationError<'_>) -> ArgumentFault {
    let path = error.instance_path().as_str().to_owned();
    if let ValidationErrorKind::Required { property } = error.kind() {
        let name = property.as_str().unwrap_or_default();
        let missing = ArgumentFault::new(name, format!("`{name}` is required"));
        return ArgumentFault {
            path: path + &missing.path,
            ..missing
        };
    }
    let message = error.masked().to_string();
    let at = display_name(path.trim_start_matches('/'));
    ArgumentFault {
        message: if at.is_empty() {
            message
        } else {
            format!("`{at}`: {message}")
        },
        path,
    }
}

#[cfg(test)]
mod tests;
