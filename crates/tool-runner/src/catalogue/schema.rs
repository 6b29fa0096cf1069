//! The JSON Schema of a tool's arguments, compiled once.

use std::collections::BTreeMap;

use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::Value;

use super::fault::Faults;
use super::yaml::{KeyOrder, Node, Yaml};
use crate::arguments::as_seen;
use crate::pins::Escape;

/// A type of JSON Schema (2020-12, validation, section 6.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JsonType {
    Null,
    Boolean,
    Integer,
    Number,
    String,
    Array,
    Object,
}

impl JsonType {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "null" => Self::Null,
            "boolean" => Self::Boolean,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "string" => Self::String,
            "array" => Self::Array,
            "object" => Self::Object,
            _ => return None,
        })
    }
}

/// One argument.
#[derive(Debug)]
pub(crate) struct Property {
    pub(crate) name: String,
    /// Declared types; empty when any will do.
    pub(crate) types: Vec<JsonType>,
    pub(crate) default: Option<Value>,
}

impl Property {
    /// The one type, `null` aside, that its values are bound as.
    pub(crate) fn scalar(&self) -> Option<JsonType> {
        let mut types = self.types.iter().filter(|&&kind| kind != JsonType::Null);
        let only = types.next().filter(|_| types.next().is_none())?;
        (!matches!(only, JsonType::Array | JsonType::Object)).then_some(*only)
    }
}

/// What the arguments of a tool must look like.
#[derive(Debug)]
pub(crate) struct InputSchema {
    validator: Validator,
    properties: Vec<Property>,
    /// As clients see it: JSON text, its keys as the author ordered them, `type: object` said.
    text: String,
    /// The schema itself says what becomes of properties it does not name.
    open: bool,
}

impl InputSchema {
    pub(crate) fn read(node: &Node, faults: &mut Faults) -> Option<Self> {
        let validator = compile(node, "input_schema", faults)?;
        let mut properties = Vec::new();
        if let Some(declared) = node.get("properties") {
            for (key, property) in faults.map(declared, "properties")? {
                properties.push(Property {
                    name: key.name.clone(),
                    types: types(property.get("type").map(Node::to_value).as_ref()),
                    default: property.get("default").map(Node::to_value),
                });
                check_default(property, faults);
            }
        }
        Some(Self {
            validator,
            properties,
            text: definition(node),
            open: [
                "additionalProperties",
                "patternProperties",
                "unevaluatedProperties",
            ]
            .iter()
            .any(|keyword| node.get(keyword).is_some()),
        })
    }

    /// The schema of a tool that an MCP server defines. What the server accepts is its own to say, so arguments
    /// it does not name are open unless it closes them, and a default that does not fit is none.
    pub(super) fn of_upstream(text: &str) -> Result<Self, String> {
        let unusable = |problem: String| {
            format!(
                "its inputSchema cannot be checked against: {}",
                Escape::short(&problem)
            )
        };
        let schema: Value =
            serde_json::from_str(text).map_err(|error| unusable(error.to_string()))?;
        let validator = validator(schema.clone()).map_err(|error| unusable(error.to_string()))?;
        let declared = schema.get("properties").and_then(Value::as_object);
        let properties = declared
            .into_iter()
            .flatten()
            .map(|(name, property)| Property {
                name: name.clone(),
                types: types(property.get("type")),
                default: property
                    .get("default")
                    .filter(|it| fits(property, it))
                    .cloned(),
            });
        Ok(Self {
            validator,
            properties: properties.collect(),
            text: text.to_owned(),
            open: true,
        })
    }

    /// The schema for clients, with the calls of `examples` in it (2020-12, validation, section 9.5).
    pub(super) fn definition(&self, examples: Option<&Node>) -> String {
        let calls: Vec<_> = match examples.map(|node| &node.value) {
            Some(Yaml::List(items)) => items.iter().filter_map(|it| it.get("arguments")).collect(),
            _ => Vec::new(),
        };
        if calls.is_empty() {
            return self.text.clone();
        }
        let calls: Vec<_> = calls
            .iter()
            .map(|it| it.to_json(KeyOrder::Author))
            .collect();
        // It is an object, and not an empty one.
        let open = &self.text[..self.text.len() - 1];
        format!(r#"{open},"examples":[{}]}}"#, calls.join(","))
    }

    /// The defaults by name, as policies see them.
    pub(super) fn argument_defaults(&self) -> BTreeMap<String, String> {
        let default = |property: &Property| {
            let default = property.default.as_ref()?;
            Some((property.name.clone(), as_seen(default)))
        };
        self.properties.iter().filter_map(default).collect()
    }

    pub(crate) fn validator(&self) -> &Validator {
        &self.validator
    }

    pub(crate) fn properties(&self) -> &[Property] {
        &self.properties
    }

    pub(crate) fn property(&self, name: &str) -> Option<&Property> {
        self.properties
            .iter()
            .find(|property| property.name == name)
    }

    /// True when arguments that `properties` does not name may be allowed by other keywords.
    pub(crate) fn is_open(&self) -> bool {
        self.open
    }
}

/// Checks that `node` is a schema of an object, and compiles it. Nothing is fetched, and patterns run in
/// linear time.
pub(crate) fn compile(node: &Node, what: &str, faults: &mut Faults) -> Option<Validator> {
    faults.map(node, what)?;
    let kind = node.get("type").map(Node::to_value);
    if kind.is_some_and(|kind| kind != "object") {
        faults.add(
            node.at,
            format!("`{what}` does not describe an object"),
            "write `type: object`",
        );
        return None;
    }
    validator(node.to_value())
        .map_err(|error| {
            faults.add(
                node.follow(error.instance_path().as_str()).at,
                format!("`{what}` is not a valid JSON Schema: {error}"),
                "mend it after JSON Schema 2020-12; `$ref` may point inside the schema only",
            );
        })
        .ok()
}

/// Of a schema of an object.
fn validator(schema: Value) -> Result<Validator, ValidationError<'static>> {
    jsonschema::options()
        .offline()
        .should_validate_formats(true)
        .should_ignore_unknown_formats(true)
        .with_pattern_options(PatternOptions::regex())
        .build(&object(schema))
}

/// A schema whose root says that it describes an object.
fn object(mut schema: Value) -> Value {
    if let Value::Object(members) = &mut schema {
        members.entry("type").or_insert_with(|| "object".into());
    }
    schema
}

fn definition(node: &Node) -> String {
    let text = node.to_json(KeyOrder::Author);
    if node.get("type").is_some() {
        return text;
    }
    match text.as_str() {
        "{}" => r#"{"type":"object"}"#.to_owned(),
        members => format!(r#"{{"type":"object",{}"#, &members[1..]),
    }
}

fn types(declared: Option<&Value>) -> Vec<JsonType> {
    match declared {
        Some(Value::String(name)) => JsonType::parse(name).into_iter().collect(),
        Some(Value::Array(names)) => names
            .iter()
            .filter_map(|name| JsonType::parse(name.as_str()?))
            .collect(),
        _ => Vec::new(),
    }
}

fn check_default(property: &Node, faults: &mut Faults) {
    let Some(default) = property.get("default") else {
        return;
    };
    if !fits(&property.to_value(), &default.to_value()) {
        faults.add(
            default.at,
            format!(
                "the default {} does not fit its own schema",
                default.to_json(KeyOrder::Author)
            ),
            "change the default or the schema",
        );
    }
}

/// Whether a default fits its property. A property that only makes sense inside the whole schema does not
/// compile alone, and is not checked.
fn fits(property: &Value, default: &Value) -> bool {
    jsonschema::options()
        .offline()
        .with_pattern_options(PatternOptions::regex())
        .build(property)
        .map_or(true, |validator| validator.is_valid(default))
}
