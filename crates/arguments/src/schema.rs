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

/// One argument.
#[derive(Debug, Clone, PartialEq)]
pub struct Property {
    /// As callers write it.
    pub name: String,
    /// Declared types; empty when any will do.
    pub types: Vec<JsonType>,
    /// Declared types of the elements, where it is a list; empty when any will do.
    pub items: Vec<JsonType>,
    /// What holds where the argument is left out.
    pub default: Option<Value>,
}

impl Property {
    /// The one type, `null` aside, that its values are bound as.
    pub fn scalar(&self) -> Option<JsonType> {
        only_type(&self.types).filter(|only| !matches!(only, JsonType::Array | JsonType::Object))
    }

    /// The one type, `null` aside, that the elements of its lists are bound as.
    pub fn list_of(&self) -> Option<JsonType> {
        only_type(&self.types).filter(|only| *only == JsonType::Array)?;
        only_type(&self.items).filter(|only| !matches!(only, JsonType::Array | JsonType::Object))
    }
}

/// The one type among `types`, `null` aside.
fn only_type(types: &[JsonType]) -> Option<JsonType> {
    let mut types = types.iter().filter(|&&kind| kind != JsonType::Null);
    types.next().filter(|_| types.next().is_none()).copied()
}

/// What the arguments of a tool must look like.
#[derive(Debug)]
pub struct InputSchema {
    compiled: CompiledSchema,
    properties: Vec<Property>,
    open: bool,
}

impl InputSchema {
    /// Of a tool that takes what its schema names. Other arguments are refused unless the schema itself says what
    /// becomes of them.
    pub fn closed(schema: &Value) -> Result<Self, UnusableSchema> {
        let says_more = [
            "additionalProperties",
            "patternProperties",
            "unevaluatedProperties",
        ]
        .iter()
        .any(|keyword| schema.get(keyword).is_some());
        Self::read(schema, says_more, |_, _| true)
    }

    /// Of a tool that somebody else defines. What it accepts is its own to say, so arguments that the schema does
    /// not name are taken unless it closes them, and a default that does not fit is none.
    pub fn open(schema: &Value) -> Result<Self, UnusableSchema> {
        Self::read(schema, true, default_fits)
    }

    fn read(
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

    /// In the order of the schema.
    pub fn properties(&self) -> &[Property] {
        &self.properties
    }

    /// The property of that name.
    pub fn property(&self, name: &str) -> Option<&Property> {
        self.properties
            .iter()
            .find(|property| property.name == name)
    }

    pub(crate) fn compiled(&self) -> &CompiledSchema {
        &self.compiled
    }

    /// True when arguments that `properties` does not name may be allowed by other keywords.
    pub(crate) fn is_open(&self) -> bool {
        self.open
    }
}

/// Whether a default fits its property. A property that only makes sense inside the whole schema does not
/// compile alone, and is not checked.
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
