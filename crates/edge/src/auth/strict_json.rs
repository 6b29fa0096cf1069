//! JSON that reads one way only: a key given twice or a NUL character makes it no JSON at all.
//!
//! RFC 7519 §4 leaves the choice between refusing a duplicate claim and keeping the last; another reader of
//! the same token may keep the first, so it is refused.

use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Reads one JSON object.
pub(super) fn object(bytes: &[u8]) -> Result<Map<String, Value>, serde_json::Error> {
    match serde_json::from_slice(bytes)? {
        Strict(Value::Object(object)) => Ok(object),
        Strict(_) => Err(serde_json::Error::custom("not a JSON object")),
    }
}

struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Self)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON without duplicate keys and NUL characters")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        without_nul(value)?;
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(Strict(item)) = items.next_element()? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if key == NUMBER {
                return entries.next_value_seed(DigitsSeed).map(Value::Number);
            }
            without_nul(&key)?;
            let Strict(value) = entries.next_value()?;
            if object.insert(key, value).is_some() {
                return Err(A::Error::custom("a key is given twice"));
            }
        }
        Ok(Value::Object(object))
    }
}

/// The only member of what `serde_json` hands on in place of a number that no 64 bits hold (its feature
/// `arbitrary_precision`).
const NUMBER: &str = "$serde_json::private::Number";

/// Reads the digits of such a number. The parser hands them on as a text of its own; a document that has a member of
/// this name has a text that is borrowed or copied, and is refused.
struct DigitsSeed;

impl<'de> DeserializeSeed<'de> for DigitsSeed {
    type Value = Number;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Number, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Visitor<'_> for DigitsSeed {
    type Value = Number;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the digits of a number")
    }

    fn visit_string<E: Error>(self, digits: String) -> Result<Number, E> {
        digits.parse().map_err(E::custom)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Number, E> {
        Err(E::custom("a key is reserved"))
    }
}

fn without_nul<E: Error>(text: &str) -> Result<(), E> {
    if text.contains('\0') {
        return Err(E::custom("a text holds a NUL character"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_reads_as_serde_json_reads_it() {
        let text =
            br#" {"a": [1, -2, 2.5, true, null, "\u00e4"], "b": {"c": 18446744073709551616}} "#;
        assert_eq!(
            Value::Object(object(text).unwrap()),
            serde_json::from_slice::<Value>(text).unwrap()
        );
    }

    #[test]
    fn what_two_readers_could_read_differently_is_refused() {
        for text in [
            r#"{"a": 1, "a": 2}"#,
            r#"{"a": 1, "\u0061": 2}"#,
            r#"{"a": {"b": 1, "b": 1}}"#,
            r#"{"a": {"$serde_json::private::Number": "1"}}"#,
            r#"[{"a": 1}]"#,
            r#""text""#,
            r#"{"a": "x\u0000y"}"#,
            r#"{"a\u0000": 1}"#,
            r#"{"a": "\ud800"}"#,
            r#"{"a": 1} {}"#,
            r#"{"a": 1,}"#,
            r#"{"a": 01}"#,
            r#"{"a": NaN}"#,
            "\u{feff}{}",
            "",
        ] {
            assert!(object(text.as_bytes()).is_err(), "{text:?}");
        }
        assert!(object(b"{\"a\": \"\xff\"}").is_err(), "not UTF-8");
        assert!(
            object(format!("{{\"a\": {}}}", "[".repeat(100_000)).as_bytes()).is_err(),
            "deep"
        );
    }
}
