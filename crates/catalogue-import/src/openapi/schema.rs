//! Conversion of OpenAPI schemas to JSON Schema 2020-12. References are inlined, and keywords that validators do not know
//! are left out.

use std::collections::BTreeSet;

use jsonschema::PatternOptions;
use serde_json::{Map, Value, json};

use super::OpenapiDocument;
use crate::text::Description;

/// Maximum depth of a schema.
const MAX_DEPTH: usize = 10;

/// Maximum number of schemas of one tool. References can expand a small document to a huge one.
const MAX_SCHEMAS: usize = 1_000;

/// Maximum length of the description of a property, in characters.
const MAX_DESCRIPTION: usize = 500;

/// Keywords that are copied unchanged.
const PLAIN: [&str; 18] = [
    "title",
    "default",
    "enum",
    "const",
    "multipleOf",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "maxLength",
    "minLength",
    "pattern",
    "format",
    "maxItems",
    "minItems",
    "uniqueItems",
    "maxProperties",
    "minProperties",
];

/// Keywords whose value is a schema.
const SCHEMA: [&str; 3] = ["items", "additionalProperties", "not"];

/// Keywords whose value is a list of schemas.
const SCHEMAS: [&str; 3] = ["prefixItems", "oneOf", "anyOf"];

/// Keywords that constrain values but are not carried over.
const UNCARRIED: [&str; 12] = [
    "if",
    "then",
    "else",
    "patternProperties",
    "dependentRequired",
    "dependentSchemas",
    "propertyNames",
    "contains",
    "unevaluatedProperties",
    "unevaluatedItems",
    "$dynamicRef",
    "$recursiveRef",
];

/// A converter of the schemas of one tool.
#[derive(Debug)]
pub(super) struct Schemas<'d> {
    api: OpenapiDocument<'d>,
    left: usize,
    /// The references that are being followed.
    trail: Vec<&'d str>,
    reviews: BTreeSet<String>,
}

impl<'d> Schemas<'d> {
    pub(super) fn new(api: OpenapiDocument<'d>) -> Self {
        Self {
            api,
            left: MAX_SCHEMAS,
            trail: Vec::new(),
            reviews: BTreeSet::new(),
        }
    }

    pub(super) fn api(&self) -> OpenapiDocument<'d> {
        self.api
    }

    pub(super) fn into_reviews(self) -> BTreeSet<String> {
        self.reviews
    }

    /// Converts a schema to a self-contained JSON Schema.
    pub(super) fn convert(&mut self, schema: &'d Value) -> Value {
        let schema = self.schema(schema, 0);
        if validator(&schema).is_none() {
            self.review(
                "a schema that is not a valid JSON Schema is omitted: any value is allowed",
            );
            return json!({});
        }
        schema
    }

    fn review(&mut self, text: impl Into<String>) {
        self.reviews.insert(text.into());
    }

    fn schema(&mut self, schema: &'d Value, depth: usize) -> Value {
        let members = match schema {
            Value::Object(members) => members,
            Value::Bool(_) => return schema.clone(),
            _ => return json!({}),
        };
        if self.left == 0 || depth >= MAX_DEPTH {
            self.review(format!(
                "its schemas are more than {MAX_SCHEMAS}, or nested deeper than {MAX_DEPTH}: any value is allowed beyond"
            ));
            return json!({});
        }
        self.left -= 1;
        match members.get("$ref") {
            Some(reference) => self.convert_reference(reference, members, depth),
            None => Value::Object(self.members(members, depth)),
        }
    }

    fn convert_reference(
        &mut self,
        reference: &'d Value,
        beside: &'d Map<String, Value>,
        depth: usize,
    ) -> Value {
        let Some((reference, target)) = reference
            .as_str()
            .and_then(|reference| Some((reference, self.api.follow(reference)?)))
        else {
            self.review(
                "a `$ref` refers to another document or does not exist: any value is allowed there",
            );
            return json!({});
        };
        if self.trail.contains(&reference) {
            let name = reference.rsplit('/').next().unwrap_or_default();
            self.review(format!(
                "the schema `{name}` contains itself: any {} is allowed there",
                target["type"].as_str().unwrap_or("value")
            ));
            return match target["type"].as_str() {
                Some(kind @ ("object" | "array")) => json!({ "type": kind }),
                _ => json!({}),
            };
        }
        self.trail.push(reference);
        let mut schema = self.schema(target, depth);
        self.trail.pop();
        if let (Value::Object(schema), Some(text)) = (&mut schema, beside.get("description")) {
            self.describe(text, schema);
        }
        schema
    }

    fn members(&mut self, members: &'d Map<String, Value>, depth: usize) -> Map<String, Value> {
        let mut schema = Map::new();
        if let Some(types) = types(members) {
            schema.insert("type".to_owned(), types);
        }
        if let Some(text) = members.get("description") {
            self.describe(text, &mut schema);
        }
        for keyword in PLAIN {
            if let Some(value) = members.get(keyword) {
                self.plain(keyword, value, &mut schema);
            }
        }
        if members.get("nullable") == Some(&Value::Bool(true))
            && let Some(Value::Array(values)) = schema.get_mut("enum")
            && !values.contains(&Value::Null)
        {
            values.push(Value::Null);
        }
        self.convert_nested(members, &mut schema, depth);
        if let Some(Value::Array(parts)) = members.get("allOf") {
            let parts: Vec<_> = parts
                .iter()
                .map(|part| self.schema(part, depth + 1))
                .collect();
            merge(&mut schema, parts);
        }
        for keyword in UNCARRIED {
            if members.contains_key(keyword) {
                self.review(format!("`{keyword}` of a schema is not imported"));
            }
        }
        self.check_default(&mut schema);
        schema
    }

    /// Converts nested schemas.
    fn convert_nested(
        &mut self,
        members: &'d Map<String, Value>,
        schema: &mut Map<String, Value>,
        depth: usize,
    ) {
        if let Some(Value::Object(properties)) = members.get("properties") {
            let mut converted = Map::new();
            for (name, property) in properties {
                // A property that only the service sets is not an argument.
                if property["readOnly"] == true {
                    continue;
                }
                converted.insert(name.clone(), self.schema(property, depth + 1));
            }
            schema.insert("properties".to_owned(), converted.into());
        }
        if let Some(Value::Array(names)) = members.get("required") {
            let is_known = |name: &&Value| {
                let properties = schema.get("properties").and_then(Value::as_object);
                name.as_str()
                    .is_some_and(|name| properties.is_none_or(|it| it.contains_key(name)))
            };
            let names: Vec<_> = names.iter().filter(is_known).cloned().collect();
            if !names.is_empty() {
                schema.insert("required".to_owned(), names.into());
            }
        }
        for keyword in SCHEMA {
            if let Some(value) = members
                .get(keyword)
                .filter(|it| it.is_object() || it.is_boolean())
            {
                let value = self.schema(value, depth + 1);
                schema.insert(keyword.to_owned(), value);
            }
        }
        for keyword in SCHEMAS {
            if let Some(Value::Array(values)) = members.get(keyword)
                && !values.is_empty()
            {
                let values: Vec<_> = values.iter().map(|it| self.schema(it, depth + 1)).collect();
                schema.insert(keyword.to_owned(), values.into());
            }
        }
    }

    /// Copies a keyword if its value is valid in JSON Schema.
    fn plain(&mut self, keyword: &str, value: &Value, schema: &mut Map<String, Value>) {
        // In OpenAPI 3.0 these keywords are booleans that modify the inclusive bound.
        let bound = match keyword {
            "exclusiveMinimum" => "minimum",
            "exclusiveMaximum" => "maximum",
            _ => "",
        };
        match value {
            Value::Bool(is_exclusive) if !bound.is_empty() => {
                if *is_exclusive && let Some(value) = schema.shift_remove(bound) {
                    schema.insert(keyword.to_owned(), value);
                }
            }
            _ if validator(&json!({ keyword: value })).is_some() => {
                schema.insert(keyword.to_owned(), value.clone());
            }
            _ if keyword == "pattern" => {
                self.review("a `pattern` that needs more than linear time is not imported");
            }
            _ => self.review(format!(
                "a `{keyword}` that JSON Schema does not define is omitted"
            )),
        }
    }

    /// Removes a default that does not fit its schema.
    fn check_default(&mut self, schema: &mut Map<String, Value>) {
        let Some(default) = schema.shift_remove("default") else {
            return;
        };
        let fits =
            validator(&Value::Object(schema.clone())).is_some_and(|it| it.is_valid(&default));
        if fits {
            schema.insert("default".to_owned(), default);
        } else {
            self.review("a default that does not match its own schema is omitted");
        }
    }

    fn describe(&mut self, text: &Value, schema: &mut Map<String, Value>) {
        let description =
            Description::from_text(text.as_str().unwrap_or_default(), MAX_DESCRIPTION);
        if description.had_hidden {
            self.review("invisible characters were removed from a description");
        }
        if !description.text.is_empty() {
            schema.insert("description".to_owned(), description.text.into());
        }
    }
}

/// Compiles a schema as the catalogue does. Returns `None` if it is not a valid schema.
fn validator(schema: &Value) -> Option<jsonschema::Validator> {
    jsonschema::options()
        .offline()
        .with_pattern_options(PatternOptions::regex())
        .build(schema)
        .ok()
}

/// Returns the JSON Schema types, including `null` for `nullable` of OpenAPI 3.0.
fn types(members: &Map<String, Value>) -> Option<Value> {
    const TYPES: [&str; 7] = [
        "null", "boolean", "integer", "number", "string", "array", "object",
    ];
    let is_type = |name: &&Value| name.as_str().is_some_and(|name| TYPES.contains(&name));
    let mut types: Vec<_> = match members.get("type") {
        Some(Value::Array(names)) => names.iter().filter(is_type).cloned().collect(),
        Some(name) if is_type(&name) => vec![name.clone()],
        _ => Vec::new(),
    };
    if types.is_empty() {
        return None;
    }
    if members.get("nullable") == Some(&Value::Bool(true)) && !types.contains(&json!("null")) {
        types.push(json!("null"));
    }
    Some(match types.as_slice() {
        [only] => only.clone(),
        _ => types.into(),
    })
}

/// Merges the parts of an `allOf` into one schema unless two of them have the same keyword with different values.
/// Properties and required names are combined. If merging is not possible, the `allOf` is kept.
fn merge(schema: &mut Map<String, Value>, parts: Vec<Value>) {
    let mut merged = schema.clone();
    for part in &parts {
        let Value::Object(members) = part else {
            schema.insert("allOf".to_owned(), parts.into());
            return;
        };
        for (keyword, value) in members {
            let is_merged = match (merged.get_mut(keyword), value) {
                (None, _) => {
                    merged.insert(keyword.clone(), value.clone());
                    true
                }
                (Some(Value::Object(known)), Value::Object(more)) if keyword == "properties" => {
                    more.iter().all(|(name, property)| {
                        let known = known
                            .entry(name.clone())
                            .or_insert_with(|| property.clone());
                        known == property
                    })
                }
                (Some(Value::Array(known)), Value::Array(more)) if keyword == "required" => {
                    for name in more {
                        if !known.contains(name) {
                            known.push(name.clone());
                        }
                    }
                    true
                }
                // The outer text describes this use of the schema and takes precedence.
                (Some(_), _) if matches!(keyword.as_str(), "description" | "title") => true,
                (Some(known), _) => known == value,
            };
            if !is_merged {
                schema.insert("allOf".to_owned(), parts.into());
                return;
            }
        }
    }
    *schema = merged;
}
