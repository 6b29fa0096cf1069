//! The declarations of a schema, read from Cedar's JSON schema format, with common types resolved.
//!
//! Cedar's own `Schema` validates requests but does not expose the declared types, so this module reads them from the
//! JSON form.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde_json::Value;

/// The declarations outside any namespace.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Declarations {
    #[serde(default)]
    common_types: BTreeMap<String, Value>,
    #[serde(default)]
    entity_types: BTreeMap<String, EntityJson>,
}

#[derive(Debug, Deserialize)]
struct EntityJson {
    shape: Option<Value>,
}

/// A type, to the extent that Wardgate distinguishes types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Type {
    Text,
    Integer,
    Boolean,
    Decimal,
    Set(Box<Type>),
    Record(Record),
    Entity(String),
    Other,
}

/// The attributes of an entity or record, by name.
pub(crate) type Record = BTreeMap<String, Attribute>;

/// An attribute of an entity or record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attribute {
    pub(crate) r#type: Type,
    pub(crate) required: bool,
}

impl Declarations {
    /// Reads the declarations of a whole schema in Cedar's JSON format. Returns `None` if it cannot be read.
    pub(crate) fn from_schema(schema: &Value) -> Option<Self> {
        match schema.get("") {
            Some(outside) => Self::deserialize(outside).ok(),
            None => Some(Self::default()),
        }
    }

    /// Returns the attributes of the entity type `name`. The result is empty if there is no such type.
    pub(crate) fn attributes(&self, name: &str) -> Record {
        let entity = self.entity_types.get(name);
        self.record(entity.and_then(|entity| entity.shape.as_ref()))
    }

    fn record(&self, json: Option<&Value>) -> Record {
        let attributes = json.and_then(|json| self.expand(json).get("attributes")?.as_object());
        let attribute = |(name, json): (&String, &Value)| {
            let required = json
                .get("required")
                .and_then(Value::as_bool)
                .unwrap_or(true);
            (
                name.clone(),
                Attribute {
                    r#type: self.resolve(json),
                    required,
                },
            )
        };
        attributes.into_iter().flatten().map(attribute).collect()
    }

    /// Resolves names of common types. Cedar has already rejected cycles.
    fn expand<'a>(&'a self, json: &'a Value) -> &'a Value {
        let tag = json.get("type").and_then(Value::as_str).unwrap_or_default();
        let name = match tag {
            "EntityOrCommon" => json.get("name").and_then(Value::as_str).unwrap_or_default(),
            other => other,
        };
        match self.common_types.get(name) {
            Some(common) => self.expand(common),
            None => json,
        }
    }

    fn resolve(&self, json: &Value) -> Type {
        let json = self.expand(json);
        let text = |key| json.get(key).and_then(Value::as_str).unwrap_or_default();
        let name = text("name");
        match text("type") {
            "String" => Type::Text,
            "Long" => Type::Integer,
            "Bool" | "Boolean" => Type::Boolean,
            "Set" => match json.get("element").map(|element| self.resolve(element)) {
                Some(element) => Type::Set(Box::new(element)),
                None => Type::Other,
            },
            "Record" => Type::Record(self.record(Some(json))),
            "Extension" if name == "decimal" => Type::Decimal,
            "Entity" => Type::Entity(name.to_owned()),
            // An entity type with the name of a built-in type shadows it (Cedar RFC 24).
            "EntityOrCommon" if self.entity_types.contains_key(name) => {
                Type::Entity(name.to_owned())
            }
            "EntityOrCommon" => match name.strip_prefix("__cedar::").unwrap_or(name) {
                "String" => Type::Text,
                "Long" => Type::Integer,
                "Bool" | "Boolean" => Type::Boolean,
                "decimal" => Type::Decimal,
                _ => Type::Other,
            },
            _ => Type::Other,
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "String",
            Self::Integer => "Long",
            Self::Boolean => "Bool",
            Self::Decimal => "decimal",
            Self::Set(element) => return write!(f, "Set<{element}>"),
            Self::Record(_) => "a record",
            Self::Entity(name) => name,
            Self::Other => "another type",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_schema(schema: &str) -> Declarations {
        let (fragment, _) = cedar_policy::SchemaFragment::from_cedarschema_str(schema).unwrap();
        Declarations::from_schema(&fragment.to_json_value().unwrap()).unwrap()
    }

    #[test]
    fn common_types_are_followed_and_builtins_told_apart() {
        let schema = "type Name = String; type Names = Set<Name>; entity E { a: Name, b?: __cedar::Long, c: Names, \
                      d: Bool, e: E, f: Set<__cedar::Long>, g: Long, h: decimal, i?: { j?: Name } }; entity Long;";
        let attributes = parse_schema(schema).attributes("E");
        let shown: Vec<_> = attributes
            .iter()
            .map(|(name, attribute)| {
                format!("{name}: {}, {}", attribute.r#type, attribute.required)
            })
            .collect();
        assert_eq!(
            shown,
            [
                "a: String, true",
                "b: Long, false",
                "c: Set<String>, true",
                "d: Bool, true",
                "e: E, true",
                "f: Set<Long>, true",
                "g: Long, true",
                "h: decimal, true",
                "i: a record, false",
            ]
        );
        let Type::Record(inner) = &attributes["i"].r#type else {
            panic!("{:?}", attributes["i"])
        };
        assert_eq!(inner["j"].r#type, Type::Text);
        assert_eq!(attributes["g"].r#type, Type::Entity("Long".to_owned()));
    }
}
