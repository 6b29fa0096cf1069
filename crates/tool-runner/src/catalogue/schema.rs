//! The JSON Schema of a tool's arguments, compiled once.

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

use super::fault::Faults;
use super::yaml::{KeyOrder, Node};

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
    /// The schema itself says what becomes of properties it does not name.
    open: bool,
}

impl InputSchema {
    pub(super) fn read(node: &Node, faults: &mut Faults) -> Option<Self> {
        let validator = compile(node, "input_schema", faults)?;
        let mut properties = Vec::new();
        if let Some(declared) = node.get("properties") {
            for (key, property) in faults.map(declared, "properties")? {
                properties.push(Property {
                    name: key.name.clone(),
                    types: types(property),
                    default: property.get("default").map(Node::to_value),
                });
                check_default(property, faults);
            }
        }
        Some(Self {
            validator,
            properties,
            open: [
                "additionalProperties",
                "patternProperties",
                "unevaluatedProperties",
            ]
            .iter()
            .any(|keyword| node.get(keyword).is_some()),
        })
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
pub(super) fn compile(node: &Node, what: &str, faults: &mut Faults) -> Option<Validator> {
    faults.map(node, what)?;
    if node.get("type").map(Node::to_value) != Some(Value::from("object")) {
        faults.add(
            node.at,
            format!("`{what}` does not describe an object"),
            "begin it with `type: object`",
        );
        return None;
    }
    jsonschema::options()
        .offline()
        .should_validate_formats(true)
        .should_ignore_unknown_formats(true)
        .with_pattern_options(PatternOptions::regex())
        .build(&node.to_value())
        .map_err(|error| {
            faults.add(
                node.follow(error.instance_path().as_str()).at,
                format!("`{what}` is not a valid JSON Schema: {error}"),
                "mend it after JSON Schema 2020-12; `$ref` may point inside the schema only",
            );
        })
        .ok()
}

fn types(property: &Node) -> Vec<JsonType> {
    match property.get("type").map(Node::to_value) {
        Some(Value::String(name)) => JsonType::parse(&name).into_iter().collect(),
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
    // A property that only makes sense inside the whole schema does not compile alone, and is not checked.
    let is_unfit = jsonschema::options()
        .offline()
        .with_pattern_options(PatternOptions::regex())
        .build(&property.to_value())
        .is_ok_and(|validator| !validator.is_valid(&default.to_value()));
    if is_unfit {
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
