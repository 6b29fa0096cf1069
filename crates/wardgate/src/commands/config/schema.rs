//! The JSON Schema of a configuration, derived from the types that deserialize it.
//!
//! ```text
//!  T calls its Deserializer ─▶ Probe, which follows one path of members ─▶ the method that T calls at its end
//!                                                                          └─▶ one node of the schema
//! ```
//!
//! A type shows which value it expects by the method of `Deserializer` that it calls. [`Probe`] is a `Deserializer` that
//! follows one path of members at a time and notes the method called at its end, so the schema always matches what is
//! accepted. It finds names and types, but no defaults.

use std::cell::Cell;

use serde::de::value::{BorrowedStrDeserializer, Error};
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error as _, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};
use serde_json::{Map, Value, json};

/// Maximum depth of the schema, which is greater than the depth of any setting. It bounds recursive types.
const DEEPEST: usize = 12;

/// Returns the schema of the values that `T` deserializes from.
pub(super) fn derive_schema<T: DeserializeOwned>() -> Value {
    node(&requested_kind::<T>, &mut Vec::new())
}

/// Returns the schema of a section that several types read, each with its own members.
pub(super) fn merge_schemas(parts: impl IntoIterator<Item = Value>) -> Value {
    let mut properties = Map::new();
    for mut part in parts {
        if let Value::Object(own) = part["properties"].take() {
            properties.extend(own);
        }
    }
    object(properties)
}

pub(super) fn object(properties: Map<String, Value>) -> Value {
    let properties = Value::Object(properties);
    json!({ "type": "object", "additionalProperties": false, "properties": properties })
}

fn node(asked: &dyn Fn(&[Step]) -> ValueKind, path: &mut Vec<Step>) -> Value {
    if path.len() > DEEPEST {
        return Value::Bool(true);
    }
    let what = asked(path);
    let mut below = |step| {
        path.push(step);
        let node = node(asked, path);
        path.pop();
        node
    };
    match what {
        ValueKind::Anything => Value::Bool(true),
        ValueKind::Boolean => json!({ "type": "boolean" }),
        ValueKind::Natural => json!({ "type": "integer", "minimum": 0 }),
        ValueKind::Integer => json!({ "type": "integer" }),
        ValueKind::Number => json!({ "type": "number" }),
        ValueKind::Text => json!({ "type": "string" }),
        ValueKind::Nothing => Value::Null,
        ValueKind::OneOf(words) => {
            let (plain, with): (Vec<_>, Vec<_>) = words
                .iter()
                .map(|word| (*word, below(Step::Variant(word))))
                .partition(|(_, below)| below.is_null());
            let plain: Vec<&str> = plain.into_iter().map(|(word, _)| word).collect();
            let plain = (!plain.is_empty()).then(|| json!({ "enum": plain }));
            let with = with.into_iter().map(|(word, below)| {
                let mut one = object(Map::from_iter([(word.to_owned(), below)]));
                one["required"] = json!([word]);
                one
            });
            match &plain.into_iter().chain(with).collect::<Vec<_>>()[..] {
                [only] => only.clone(),
                several => json!({ "anyOf": several }),
            }
        }
        ValueKind::List => json!({ "type": "array", "items": below(Step::Item) }),
        ValueKind::Map => json!({ "type": "object", "additionalProperties": below(Step::Entry) }),
        ValueKind::Members(names) => {
            let members = names.iter();
            object(
                members
                    .map(|name| ((*name).to_owned(), below(Step::Member(name))))
                    .collect(),
            )
        }
    }
}

/// One step of a path into a value.
#[derive(Debug, Clone, Copy)]
enum Step {
    Member(&'static str),
    /// A variant of an enum: its name, or the content under its name.
    Variant(&'static str),
    Item,
    Entry,
}

/// The kind of value that a type deserializes from.
#[derive(Debug, Clone, Copy, Default)]
enum ValueKind {
    #[default]
    Anything,
    Boolean,
    Natural,
    Integer,
    Number,
    Text,
    OneOf(&'static [&'static str]),
    /// The content of a unit variant, which is written as its name alone.
    Nothing,
    List,
    Map,
    Members(&'static [&'static str]),
}

/// Returns the kind of value that `T` requests at the end of `path`.
fn requested_kind<T: DeserializeOwned>(path: &[Step]) -> ValueKind {
    let asked = Cell::new(ValueKind::default());
    // `Probe` never provides a value at the end of the path, so this always fails.
    let _ = T::deserialize(Probe {
        path,
        asked: &asked,
    });
    asked.get()
}

/// A deserializer that follows `path` and notes the kind of value requested at its end.
#[derive(Clone, Copy)]
struct Probe<'a> {
    path: &'a [Step],
    asked: &'a Cell<ValueKind>,
}

impl Probe<'_> {
    fn note<T>(self, what: ValueKind) -> Result<T, Error> {
        if self.path.is_empty() {
            self.asked.set(what);
        }
        Err(Error::custom("the schema requires nothing else"))
    }

    /// Returns the first step of the path, and a probe for the rest of the path.
    fn next(self) -> Option<(Step, Self)> {
        let (step, path) = self.path.split_first()?;
        Some((*step, Self { path, ..self }))
    }
}

macro_rules! noted {
    ($($method:ident => $what:expr,)*) => {
        $(fn $method<V: Visitor<'static>>(self, _: V) -> Result<V::Value, Error> {
            self.note($what)
        })*
    };
}

impl Deserializer<'static> for Probe<'_> {
    type Error = Error;

    noted! {
        deserialize_any => ValueKind::Anything,
        deserialize_ignored_any => ValueKind::Anything,
        deserialize_unit => ValueKind::Anything,
        deserialize_bool => ValueKind::Boolean,
        deserialize_u8 => ValueKind::Natural,
        deserialize_u16 => ValueKind::Natural,
        deserialize_u32 => ValueKind::Natural,
        deserialize_u64 => ValueKind::Natural,
        deserialize_u128 => ValueKind::Natural,
        deserialize_i8 => ValueKind::Integer,
        deserialize_i16 => ValueKind::Integer,
        deserialize_i32 => ValueKind::Integer,
        deserialize_i64 => ValueKind::Integer,
        deserialize_i128 => ValueKind::Integer,
        deserialize_f32 => ValueKind::Number,
        deserialize_f64 => ValueKind::Number,
        deserialize_char => ValueKind::Text,
        deserialize_str => ValueKind::Text,
        deserialize_string => ValueKind::Text,
        deserialize_identifier => ValueKind::Text,
        deserialize_bytes => ValueKind::Text,
        deserialize_byte_buf => ValueKind::Text,
    }

    fn deserialize_option<V: Visitor<'static>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'static>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_unit_struct<V: Visitor<'static>>(
        self,
        _: &'static str,
        _: V,
    ) -> Result<V::Value, Error> {
        self.note(ValueKind::Anything)
    }

    fn deserialize_seq<V: Visitor<'static>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.next() {
            Some((Step::Item, below)) => visitor.visit_seq(SingleAccess(None, below)),
            _ => self.note(ValueKind::List),
        }
    }

    fn deserialize_tuple<V: Visitor<'static>>(
        self,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'static>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'static>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.next() {
            // The name of the entry is arbitrary.
            Some((Step::Entry, below)) => visitor.visit_map(SingleAccess(Some("name"), below)),
            _ => self.note(ValueKind::Map),
        }
    }

    fn deserialize_struct<V: Visitor<'static>>(
        self,
        _: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.next() {
            Some((Step::Member(name), below)) => visitor.visit_map(SingleAccess(Some(name), below)),
            _ => self.note(ValueKind::Members(names)),
        }
    }

    fn deserialize_enum<V: Visitor<'static>>(
        self,
        _: &'static str,
        words: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.next() {
            Some((Step::Variant(word), below)) => {
                visitor.visit_enum(SingleAccess(Some(word), below))
            }
            _ => self.note(ValueKind::OneOf(words)),
        }
    }
}

/// Access to a single member, entry or item. No other follows, because deserializing its content always fails.
struct SingleAccess<'a>(Option<&'static str>, Probe<'a>);

impl MapAccess<'static> for SingleAccess<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'static>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        let name = self.0.take();
        name.map(|name| seed.deserialize(BorrowedStrDeserializer::new(name)))
            .transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'static>>(&mut self, seed: V) -> Result<V::Value, Error> {
        seed.deserialize(self.1)
    }
}

impl SeqAccess<'static> for SingleAccess<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'static>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        seed.deserialize(self.1).map(Some)
    }
}

impl<'a> EnumAccess<'static> for SingleAccess<'a> {
    type Error = Error;
    type Variant = Probe<'a>;

    fn variant_seed<V: DeserializeSeed<'static>>(
        self,
        seed: V,
    ) -> Result<(V::Value, Probe<'a>), Error> {
        let word = BorrowedStrDeserializer::new(self.0.unwrap_or_default());
        Ok((seed.deserialize(word)?, self.1))
    }
}

impl VariantAccess<'static> for Probe<'_> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        self.note(ValueKind::Nothing)
    }

    fn newtype_variant_seed<T: DeserializeSeed<'static>>(self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'static>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn struct_variant<V: Visitor<'static>>(
        self,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_struct("", names, visitor)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    #[serde(rename_all = "lowercase")]
    #[expect(dead_code, reason = "only its shape counts")]
    enum Mode {
        Fast,
        Safe,
        Within { seconds: u64 },
    }

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only its shape counts")]
    struct Inner {
        rate: f64,
        mode: Option<Mode>,
    }

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only its shape counts")]
    struct Outer {
        file: PathBuf,
        #[serde(default)]
        count: u32,
        inner: Option<Inner>,
        many: Vec<Inner>,
        names: BTreeMap<String, bool>,
        free: serde_json::Value,
    }

    #[test]
    fn a_schema_has_every_member_that_its_type_reads() {
        let members = |members: Value| json!({ "type": "object", "additionalProperties": false, "properties": members });
        let within = members(json!({ "seconds": { "type": "integer", "minimum": 0 } }));
        let mut within = members(json!({ "within": within }));
        within["required"] = json!(["within"]);
        let inner = members(json!({
            "rate": { "type": "number" },
            "mode": { "anyOf": [{ "enum": ["fast", "safe"] }, within] },
        }));
        assert_eq!(
            derive_schema::<Outer>()["properties"],
            json!({
                "file": { "type": "string" },
                "count": { "type": "integer", "minimum": 0 },
                "inner": inner,
                "many": { "type": "array", "items": inner },
                "names": { "type": "object", "additionalProperties": { "type": "boolean" } },
                "free": true,
            })
        );
    }
}
