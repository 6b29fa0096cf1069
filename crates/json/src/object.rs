//! Deserialization of JSON objects into structs.

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// Deserializes `text`, or returns `None` if it is not an object. `serde_json` would also read a struct from an array,
/// item by item, whose content would be hidden from code that looks up members by name.
pub fn parse_object<'a, T: Deserialize<'a>>(text: &'a str) -> Option<T> {
    let is_object = text.trim_ascii_start().starts_with('{');
    is_object.then(|| serde_json::from_str(text).ok())?
}

/// Distinguishes an explicit `null` from an absent member, with `#[serde(default, deserialize_with = "present")]`.
pub fn present<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    struct NamedObject {
        name: String,
    }

    #[test]
    fn an_array_is_never_read_as_an_object() {
        let named = NamedObject {
            name: "a".to_owned(),
        };
        assert_eq!(parse_object(r#" {"name":"a"}"#), Some(named));
        assert_eq!(parse_object::<NamedObject>(r#"["a"]"#), None);
        assert_eq!(parse_object::<NamedObject>(r#"{"name":1}"#), None);
    }
}
