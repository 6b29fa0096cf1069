//! Converts the input schemas of tools to schemas that every provider accepts.
//!
//! Providers reject a whole request because of one unsupported schema, so unsupported parts are rewritten or left out. Nothing is
//! lost by this, because arguments are validated against the tool's own schema.

mod reference;
mod root;

use serde_json::{Map, Value, json};

use reference::SchemaReferences;

/// Maximum nesting depth of the converted schema.
const MAX_DEPTH: usize = 40;

/// Maximum number of JSON values in the converted schema, because references can expand a small schema to a large one.
const MAX_VALUES: usize = 5_000;

/// A reason why a tool's input schema cannot be offered to a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum UnsupportedSchema {
    #[error("its input schema does not describe an object")]
    NotAnObject,
    #[error("its input schema contains a part that is not a schema")]
    NotASchema,
    #[error("its input schema refers to a location outside the schema")]
    Remote,
    #[error("its input schema is too large or too deeply nested")]
    TooLarge,
}

/// Converts `schema` for models: the root is an object, and every reference is replaced by its target.
pub(super) fn parameters(schema: &Value) -> Result<Value, UnsupportedSchema> {
    if !schema.is_object() {
        return Err(UnsupportedSchema::NotAnObject);
    }
    let mut cleaner = SchemaCleaner {
        references: SchemaReferences::new(schema),
        values: 0,
    };
    match cleaner.schema(schema, 0)? {
        Some(Value::Object(members)) => root::object(members).map(Value::Object),
        _ => Err(UnsupportedSchema::NotAnObject),
    }
}

struct SchemaCleaner<'s> {
    references: SchemaReferences<'s>,
    values: usize,
}

impl<'s> SchemaCleaner<'s> {
    /// Converts a schema, or returns `None` for a schema that no value satisfies.
    fn schema(
        &mut self,
        schema: &'s Value,
        depth: usize,
    ) -> Result<Option<Value>, UnsupportedSchema> {
        self.count(1)?;
        if depth > MAX_DEPTH {
            return Err(UnsupportedSchema::TooLarge);
        }
        let members = match schema {
            Value::Object(members) => members,
            Value::Bool(true) => return Ok(Some(json!({}))),
            Value::Bool(false) => return Ok(None),
            _ => return Err(UnsupportedSchema::NotASchema),
        };
        let mut cleaned = match members.get("$ref") {
            Some(Value::String(reference)) => self.resolve_reference(reference, depth)?,
            Some(_) => return Err(UnsupportedSchema::NotASchema),
            None => Map::new(),
        };
        for (keyword, value) in members {
            if let Some(value) = self.keyword(keyword, value, depth)? {
                // A keyword beside a reference takes precedence over the same keyword of the reference's target.
                cleaned.insert(keyword.clone(), value);
            }
        }
        tidy(&mut cleaned);
        Ok(Some(Value::Object(cleaned)))
    }

    /// Returns the target of a reference. A recursive reference is expanded once; inside, only its type and description are kept.
    fn resolve_reference(
        &mut self,
        reference: &str,
        depth: usize,
    ) -> Result<Map<String, Value>, UnsupportedSchema> {
        let target = self.references.follow(reference)?;
        if !self.references.enter(target) {
            let members = |name: &&str| target.get(*name).is_some_and(Value::is_string);
            let members = ["type", "description"].into_iter().filter(members);
            let members = members.map(|name| (name.to_owned(), target[name].clone()));
            return Ok(members.collect());
        }
        let cleaned = self.schema(target, depth + 1);
        self.references.leave();
        match cleaned? {
            Some(Value::Object(cleaned)) => Ok(cleaned),
            _ => Err(UnsupportedSchema::NotASchema),
        }
    }

    /// Converts the value of a keyword, or returns `None` if the keyword is left out.
    fn keyword(
        &mut self,
        keyword: &str,
        value: &'s Value,
        depth: usize,
    ) -> Result<Option<Value>, UnsupportedSchema> {
        Ok(match keyword {
            // These keywords describe the schema and not the arguments, or are useless without references.
            "$ref" | "$schema" | "$id" | "$comment" | "$defs" | "definitions" | "$anchor"
            | "$dynamicAnchor" | "$recursiveAnchor" | "$vocabulary" => None,
            "$dynamicRef" | "$recursiveRef" => return Err(UnsupportedSchema::Remote),
            _ if keyword.starts_with("x-") => None,
            "properties" | "patternProperties" | "dependentSchemas" => {
                let members = value.as_object().ok_or(UnsupportedSchema::NotASchema)?;
                let mut cleaned = Map::new();
                for (name, member) in members {
                    if let Some(member) = self.schema(member, depth + 1)? {
                        cleaned.insert(name.clone(), member);
                    }
                }
                Some(Value::Object(cleaned))
            }
            "allOf" | "anyOf" | "oneOf" | "prefixItems" => {
                let mut cleaned = Vec::new();
                for member in value.as_array().ok_or(UnsupportedSchema::NotASchema)? {
                    // Some schemas express a branch that no value satisfies as `{"not": {}}`.
                    if *member != json!({ "not": {} }) {
                        cleaned.extend(self.schema(member, depth + 1)?);
                    }
                }
                (!cleaned.is_empty()).then(|| Value::Array(cleaned))
            }
            // In earlier drafts, an array of schemas describes a tuple.
            "items" if value.is_array() => {
                let tuple = self.keyword("prefixItems", value, depth)?;
                tuple.map(|schemas| {
                    let mut any = Map::from_iter([("anyOf".to_owned(), schemas)]);
                    tidy(&mut any);
                    Value::Object(any)
                })
            }
            "additionalProperties" if value.is_boolean() => Some(value.clone()),
            "items"
            | "additionalProperties"
            | "unevaluatedProperties"
            | "unevaluatedItems"
            | "additionalItems"
            | "contains"
            | "propertyNames"
            | "not"
            | "if"
            | "then"
            | "else" => {
                let cleaned = self.schema(value, depth + 1)?;
                // `additionalProperties: {}` is the default and can be left out.
                cleaned.filter(|it| keyword != "additionalProperties" || *it != json!({}))
            }
            _ => {
                self.count(count(value))?;
                Some(value.clone())
            }
        })
    }

    fn count(&mut self, values: usize) -> Result<(), UnsupportedSchema> {
        self.values += values;
        if self.values > MAX_VALUES {
            return Err(UnsupportedSchema::TooLarge);
        }
        Ok(())
    }
}

/// Returns the number of JSON values in `value`, including itself.
fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(members) => members.values().map(count).sum(),
        _ => 0,
    }
}

/// Applies the requirements of providers that hold for schemas at any depth.
fn tidy(schema: &mut Map<String, Value>) {
    for union in ["anyOf", "oneOf"] {
        // A union of a single branch is replaced by the branch.
        if let Some(Value::Array(branches)) = schema.get(union)
            && let [Value::Object(only)] = branches.as_slice()
        {
            let only = only.clone();
            schema.shift_remove(union);
            for (keyword, value) in only {
                schema.entry(keyword).or_insert(value);
            }
        }
    }
    if schema
        .get("enum")
        .is_some_and(|values| values.as_array().is_none_or(Vec::is_empty))
    {
        schema.shift_remove("enum");
    }
    if schema
        .get("description")
        .is_some_and(|text| !text.is_string())
    {
        schema.shift_remove("description");
    }
    if is(schema, "array") {
        schema.entry("items").or_insert_with(|| json!({}));
    }
    // In earlier drafts, `required` can be a boolean.
    if schema
        .get("required")
        .is_some_and(|names| !names.is_array())
    {
        schema.shift_remove("required");
    }
    if is(schema, "object") {
        schema.entry("properties").or_insert_with(|| json!({}));
        require_what_is_there(schema);
    }
}

/// Removes names from `required` that are not among the `properties`.
fn require_what_is_there(schema: &mut Map<String, Value>) {
    let (Some(Value::Array(required)), Some(Value::Object(properties))) =
        (schema.get("required"), schema.get("properties"))
    else {
        return;
    };
    let is_there = |name: &&Value| {
        name.as_str()
            .is_some_and(|name| properties.contains_key(name))
    };
    let names: Vec<Value> = required.iter().filter(is_there).cloned().collect();
    if names.is_empty() {
        schema.shift_remove("required");
    } else {
        schema.insert("required".to_owned(), Value::Array(names));
    }
}

/// Returns whether a schema has the type `kind`, alone or among others.
fn is(schema: &Map<String, Value>, kind: &str) -> bool {
    match schema.get("type") {
        Some(Value::String(one)) => one == kind,
        Some(Value::Array(several)) => several.iter().any(|it| it == kind),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
