//! The tools that a model may call, and the types of their arguments.

use std::collections::HashMap;

use serde_json::Value;

use super::json::{self, Json};
use crate::Function;

/// The schemas of the tools' arguments, by tool name.
#[derive(Debug)]
pub(super) struct ToolSchemas(HashMap<String, Value>);

impl ToolSchemas {
    pub(super) fn from_functions(functions: &[Function]) -> Self {
        let each = functions.iter();
        Self(
            each.map(|it| (it.name.clone(), it.parameters.clone()))
                .collect(),
        )
    }

    pub(super) fn knows(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Converts a value written as plain text according to the tool's schema: a value that may be a string stays text, anything
    /// else is parsed as JSON. Text that does not fit is left unchanged, so that the validation reports it.
    pub(super) fn parse_typed_value(&self, tool: &str, parameter: &str, text: &str) -> Json {
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
            // A quoted text is parsed as a JSON string only if the schema names no type.
            Some(Json::Text(inner)) if types.is_empty() && text.trim().starts_with('"') => {
                Json::Text(inner)
            }
            Some(Json::Text(_)) | None => Json::Text(text.to_owned()),
            Some(value) => value,
        }
    }
}

/// Returns the types of a schema, including those of its alternatives.
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
