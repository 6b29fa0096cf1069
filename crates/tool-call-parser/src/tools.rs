//! The tools that a model may call, and the types of their arguments.

use std::collections::HashMap;

use serde_json::Value;

use super::json::{self, Json};
use crate::Function;

/// What is known of the tools, by their names.
#[derive(Debug)]
pub(super) struct ToolSchemas(HashMap<String, Value>);

impl ToolSchemas {
    pub(super) fn of(functions: &[Function]) -> Self {
        let each = functions.iter();
        Self(
            each.map(|it| (it.name.clone(), it.parameters.clone()))
                .collect(),
        )
    }

    pub(super) fn knows(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// A value written as plain text, as the tool's schema types it: what may be a string stays one, everything else
    /// is read as JSON. Text that is no such value is left for the validation to complain about.
    pub(super) fn typed(&self, tool: &str, parameter: &str, text: &str) -> Json {
        let schema = self
            .0
            .get(tool)
            .and_then(|it| it.get("properties")?.get(parameter));
        let types = schema.map(types_of).unwrap_or_default();
        if types.contains(&"null") && matches!(text.trim(), "null" | "None") {
            return Json::Plain("null".to_owned());
        }
        if types.contains(&"string") {
            return Json::Text(text.to_owned());
        }
        match json::whole(text) {
            // A quoted text is one only where nothing says what it should be.
            Some(Json::Text(inner)) if types.is_empty() && text.trim().starts_with('"') => {
                Json::Text(inner)
            }
            Some(Json::Text(_)) | None => Json::Text(text.to_owned()),
            Some(value) => value,
        }
    }
}

/// The types that a schema names, in itself or in its alternatives.
fn types_of(schema: &Value) -> Vec<&str> {
    let mut types = match schema.get("type") {
        Some(Value::String(one)) => vec![one.as_str()],
        Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    for word in ["anyOf", "oneOf"] {
        if let Some(Value::Array(several)) = schema.get(word) {
            types.extend(several.iter().flat_map(types_of));
        }
    }
    if let (true, Some(Value::Array(values))) = (types.is_empty(), schema.get("enum"))
        && values.iter().any(Value::is_string)
    {
        types.push("string");
    }
    types
}
