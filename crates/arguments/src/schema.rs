//! The JSON Schema (2020-12) of a tool's arguments, compiled once.

use serde_json::Value;

use crate::compiled::CompiledSchema;
use crate::unusable_schema::UnusableSchema;

/// A type of JSON Schema (2020-12, validation, section 6.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonType {
    /// `null`
    Null,
    /// `boolean`
    Boolean,
    /// `integer`
    Integer,
    /// `number`
    Number,
    /// `string`
    String,
    /// `array`
    Array,
    /// `object`
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

/// An argument that the schema defines.
#[derive(Debug, Clone, PartialEq)]
pub struct Property {
    /// The name of the argument.
    pub name: String,
    /// The declared types, or an empty list if any type is allowed.
    pub types: Vec<JsonType>,
    /// The declared types of the elements if the argument is a list, or an empty list if any type is allowed.
    pub items: Vec<JsonType>,
    /// The value that is used if the argument is missing.
    pub default: Option<Value>,
}

impl Property {
    /// Returns the only type besides `null` that is not an array or object, as which values are bound.
    pub fn scalar(&self) -> Option<JsonType> {
        only_type(&self.types).filter(|only| !matches!(only, JsonType::Array | JsonType::Object))
    }

    /// Returns the only type of the elements besides `null`, as which the elements of lists are bound.
    pub fn list_of(&self) -> Option<JsonType> {
        only_type(&self.types).filter(|only| *only == JsonType::Array)?;
        only_type(&self.items).filter(|only| !matches!(only, JsonType::Array | JsonType::Object))
    }
}

/// Returns the only type among `types` besides `null`.
fn only_type(types: &[JsonType]) -> Option<JsonType> {
    let mut types = types.iter().filter(|&&kind| kind != JsonType::Null);
    types.next().filter(|_| types.next().is_none()).copied()
}

/// A compiled schema of the arguments of a tool.
#[derive(Debug)]
pub struct InputSchema {
    compiled: CompiledSchema,
    properties: Vec<Property>,
    open: bool,
}

impl InputSchema {
    /// Compiles the schema of a tool of the catalogue. Arguments that `properties` does not name are rejected unless
    /// another keyword of the schema governs them.
    pub fn compile_closed(schema: &Value) -> Result<Self, UnusableSchema> {
        let says_more = [
            "additionalProperties",
            "patternProperties",
            "unevaluatedProperties",
        ]
        .iter()
        .any(|keyword| schema.get(keyword).is_some());
        Self::from_schema(schema, says_more, |_, _| true)
    }

    /// Compiles the schema of a tool that is defined elsewhere, with the semantics of JSON Schema: arguments that
    /// `properties` does not name are accepted unless the schema excludes them. A default that does not fit is ignored.
    pub fn compile_open(schema: &Value) -> Result<Self, UnusableSchema> {
        Self::from_schema(schema, true, default_fits)
    }

    fn from_schema(
        schema: &Value,
        open: bool,
        keep_default: impl Fn(&Value, &Value) -> bool,
    ) -> Result<Self, UnusableSchema> {
        let compiled = compile(schema)?;
        let declared = schema.get("properties").and_then(Value::as_object);
        let properties = declared
            .into_iter()
            .flatten()
            .map(|(name, property)| Property {
                name: name.clone(),
                types: types(property.get("type")),
                items: types(property.get("items").and_then(|items| items.get("type"))),
                default: property
                    .get("default")
                    .filter(|default| keep_default(property, default))
                    .cloned(),
            });
        Ok(Self {
            compiled,
            properties: properties.collect(),
            open,
        })
    }

    /// Returns the properties in the order of the schema.
    pub fn properties(&self) -> &[Property] {
        &self.properties
    }

    /// Returns the property with that name.
    pub fn property(&self, name: &str) -> Option<&Property> {
        self.properties
            .iter()
            .find(|property| property.name == name)
    }

    pub(crate) fn compiled_schema(&self) -> &CompiledSchema {
        &self.compiled
    }

    /// Returns whether arguments that `properties` does not name may be allowed by other keywords.
    pub(crate) fn is_open(&self) -> bool {
        self.open
    }
}

/// Returns whether a default fits its property. A property that compiles only as a part of the whole schema is not checked
/// and counts as fitting.
pub fn default_fits(property: &Value, default: &Value) -> bool {
    CompiledSchema::new(property.clone())
        .map_or(true, |compiled| compiled.check(default, 1).is_ok())
}

fn compile(schema: &Value) -> Result<CompiledSchema, UnusableSchema> {
    let Value::Object(members) = schema else {
        return Err(UnusableSchema::NotAnObject);
    };
    let mut members = members.clone();
    let root = members.entry("type").or_insert_with(|| "object".into());
    if !types(Some(root)).contains(&JsonType::Object) {
        return Err(UnusableSchema::NotAnObject);
    }
    CompiledSchema::new(Value::Object(members))
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
