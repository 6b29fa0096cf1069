//! The arguments of a call without values that may be about a person: their names, types and sizes.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Maximum number of arguments of a call that are outlined one by one.
const MOST: usize = 64;

/// Maximum length of an argument name in an outline, in characters.
const LONGEST_NAME: usize = 128;

/// The arguments that the input schema of a tool declares, each with whether the schema lists its possible values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ArgumentNames(BTreeMap<String, HasListedValues>);

/// Whether the schema lists the values that an argument may have, so that none of them can be about a person.
type HasListedValues = bool;

/// The part of the arguments of a call that the record holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ArgumentOutline {
    /// The arguments that the input schema declares, in the order of the call; at most 64.
    pub declared: Vec<OutlinedArgument>,
    /// The number of all other arguments. Their names are not defined by the tool, so the names may hold anything.
    pub undeclared: u64,
}

/// An argument without its value, unless the tool's schema lists the values that it may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutlinedArgument {
    /// The name of the argument.
    pub name: String,
    /// The JSON type of the argument, as [`json_type`] names it.
    pub kind: String,
    /// The number of characters of a string, elements of an array or members of an object; 0 for other types.
    pub size: u64,
    /// The value as JSON if the schema lists the possible values and the call fits the schema; otherwise empty.
    pub value: String,
}

impl ArgumentNames {
    /// Reads the argument names of an MCP tool definition, a JSON object with the member `inputSchema`. The result is
    /// empty if that member is missing.
    pub fn of_definition(definition: &str) -> Self {
        let definition: Value = serde_json::from_str(definition).unwrap_or_default();
        let properties = definition["inputSchema"]["properties"].as_object();
        let names = properties.into_iter().flatten().map(|(name, schema)| {
            let is_listed = ["enum", "const"].iter().any(|it| schema.get(it).is_some());
            (name.clone(), is_listed || schema["type"] == "boolean")
        });
        Self(names.collect())
    }

    /// Returns the outline of `arguments`, a JSON object. `fits_schema` states whether the arguments passed validation;
    /// if they did not, no value is outlined, because any value may be anywhere. The outline is empty if `arguments` is
    /// not an object.
    pub fn outline(&self, arguments: &[u8], fits_schema: bool) -> ArgumentOutline {
        let arguments: Map<String, Value> = serde_json::from_slice(arguments).unwrap_or_default();
        let mut outline = ArgumentOutline::default();
        for (name, value) in &arguments {
            match self.0.get(name) {
                Some(is_listed)
                    if outline.declared.len() < MOST && name.chars().count() <= LONGEST_NAME =>
                {
                    let argument = OutlinedArgument::new(name, value, *is_listed && fits_schema);
                    outline.declared.push(argument);
                }
                _ => outline.undeclared += 1,
            }
        }
        outline
    }
}

impl OutlinedArgument {
    fn new(name: &str, value: &Value, is_listed: bool) -> Self {
        let size = match value {
            Value::String(text) => text.chars().count(),
            Value::Array(elements) => elements.len(),
            Value::Object(members) => members.len(),
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        };
        Self {
            name: name.to_owned(),
            kind: json_type(value).to_owned(),
            size: size as u64,
            value: if is_listed {
                value.to_string()
            } else {
                String::new()
            },
        }
    }
}

/// Returns the name of the JSON type of `value`.
pub fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFINITION: &str = r#"{"inputSchema":{"type":"object","properties":{
        "patient_id":{"type":"string"},"limit":{"type":"integer"},"whole":{"type":"boolean"},
        "tone":{"type":"string","enum":["plain","clinical"]}}}}"#;

    #[test]
    fn an_outline_holds_no_value_but_those_that_the_schema_lists() {
        let names = ArgumentNames::of_definition(DEFINITION);
        let arguments =
            br#"{"patient_id":"NUGWI","limit":4711,"whole":true,"tone":"plain","NUGWI":"x"}"#;
        let outline = names.outline(arguments, true);
        let shown: Vec<_> = (outline.declared.iter())
            .map(|it| {
                (
                    it.name.as_str(),
                    it.kind.as_str(),
                    it.size,
                    it.value.as_str(),
                )
            })
            .collect();
        assert_eq!(
            shown,
            [
                ("patient_id", "string", 5, ""),
                ("limit", "number", 0, ""),
                ("whole", "boolean", 0, "true"),
                ("tone", "string", 5, "\"plain\""),
            ]
        );
        assert_eq!(outline.undeclared, 1);
    }

    #[test]
    fn of_arguments_that_do_not_fit_no_value_is_shown() {
        let names = ArgumentNames::of_definition(DEFINITION);
        let outline = names.outline(br#"{"tone":"NUGWI"}"#, false);
        assert_eq!(outline.declared[0].value, "");
        assert_eq!(names.outline(b"[1]", true), ArgumentOutline::default());
        let unnamed = ArgumentNames::default().outline(br#"{"tone":"x"}"#, true);
        assert_eq!((unnamed.declared.len(), unnamed.undeclared), (0, 1));
    }
}
