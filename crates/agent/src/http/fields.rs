//! The fields of a JSON body. Errors name the invalid field but never repeat its value.

use serde_json::{Map, Value};

use super::Problem;

/// A JSON object from a request body.
pub(super) struct JsonFields(Map<String, Value>);

impl JsonFields {
    pub(super) fn parse(body: &[u8]) -> Result<Self, Problem> {
        match serde_json::from_slice(body) {
            Ok(Value::Object(fields)) => Ok(Self(fields)),
            Ok(_) => Err(Problem::field(
                "body",
                "The body is JSON, but not an object.",
            )),
            Err(error) => Err(Problem::field(
                "body",
                format!(
                    "The body is not JSON: line {}, column {}.",
                    error.line(),
                    error.column()
                ),
            )),
        }
    }

    /// Returns an error if the body has a field that is not in `known`: a misspelt field would otherwise be ignored silently.
    pub(super) fn only(self, known: &[&str]) -> Result<Self, Problem> {
        if self.0.keys().all(|name| known.contains(&name.as_str())) {
            return Ok(self);
        }
        Err(Problem::field(
            "body",
            format!(
                "The body has an unknown field; supported are {}.",
                known.join(", ")
            ),
        ))
    }

    /// Removes and returns a field. A field with the value `null` counts as absent.
    pub(super) fn take_field(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name).filter(|value| !value.is_null())
    }

    pub(super) fn text(&mut self, name: &'static str) -> Result<Option<String>, Problem> {
        match self.take_field(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(Problem::field(name, format!("`{name}` is not a string."))),
        }
    }

    pub(super) fn flag(&mut self, name: &'static str) -> Result<bool, Problem> {
        match self.take_field(name) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(_) => Err(Problem::field(
                name,
                format!("`{name}` is neither true nor false."),
            )),
        }
    }
}
