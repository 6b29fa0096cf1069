//! Objects read into structs.

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// The object that `text` is; none for any other value. For a struct, `serde_json` would take an array as well, item by
/// item, and what it holds could hide from whoever looks for members by name.
pub fn parse_object<'a, T: Deserialize<'a>>(text: &'a str) -> Option<T> {
    let is_object = text.trim_ascii_start().starts_with('{');
    is_object.then(|| serde_json::from_str(text).ok())?
}

/// Tells an explicit `null` from an absent member, with `#[serde(default, deserialize_with = "present")]`.
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
