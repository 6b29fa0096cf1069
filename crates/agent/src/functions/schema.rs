//! Schemas that every provider takes, of those that tools have.
//!
//! Providers refuse a whole request for one schema they do not like, so what they may not like is written otherwise or
//! left out. What is left out is not lost: arguments are validated against the tool's own schema.

mod reference;
mod root;

use serde_json::{Map, Value, json};

use reference::SchemaReferences;

/// Schemas inside schemas, in what is written.
const MAX_DEPTH: usize = 40;

/// JSON values in what is written; references can make much of little.
const MAX_VALUES: usize = 5_000;

/// A reason why a tool's input schema cannot be offered to a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum UnsupportedSchema {
    #[error("its input schema does not describe an object")]
    NotAnObject,
    #[error("its input schema has a part that is no schema")]
    NotASchema,
    #[error("its input schema refers to something outside itself")]
    Remote,
    #[error("its input schema is too large or too deeply nested")]
    TooLarge,
}

/// `schema` as models are told of it: an object at its root, every reference replaced by what it stands for.
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
    /// One schema; none for one that nothing fits.
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
            Some(Value::String(reference)) => self.referred(reference, depth)?,
            Some(_) => return Err(UnsupportedSchema::NotASchema),
            None => Map::new(),
        };
        for (keyword, value) in members {
            if let Some(value) = self.keyword(keyword, value, depth)? {
                // What stands beside a reference is nearer to the argument than what it refers to.
                cleaned.insert(keyword.clone(), value);
            }
        }
        tidy(&mut cleaned);
        Ok(Some(Value::Object(cleaned)))
    }

    /// What a reference stands for. One that leads into itself is followed once.
    fn referred(
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

    /// One keyword as it goes on; none: it does not.
    fn keyword(
        &mut self,
        keyword: &str,
        value: &'s Value,
        depth: usize,
    ) -> Result<Option<Value>, UnsupportedSchema> {
        Ok(match keyword {
            // About the schema, not about the arguments; or of no use once references are gone.
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
                    // Some write a branch that nothing fits as one that everything does not fit.
                    if *member != json!({ "not": {} }) {
                        cleaned.extend(self.schema(member, depth + 1)?);
                    }
                }
                (!cleaned.is_empty()).then(|| Value::Array(cleaned))
            }
            // In earlier drafts a list of them is a tuple.
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
                // Without a word about them, further properties may be anything too.
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

/// How many values there are in one.
fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(members) => members.values().map(count).sum(),
        _ => 0,
    }
}

/// What providers want of a schema anywhere.
fn tidy(schema: &mut Map<String, Value>) {
    for union in ["anyOf", "oneOf"] {
        // A choice of one is none.
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
    // Earlier drafts have a boolean here.
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

/// Of an object, only a property that it names can be required.
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

/// Whether a schema names that type, alone or among others.
fn is(schema: &Map<String, Value>, kind: &str) -> bool {
    match schema.get("type") {
        Some(Value::String(one)) => one == kind,
        Some(Value::Array(several)) => several.iter().any(|it| it == kind),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
