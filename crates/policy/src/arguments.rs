//! The arguments of a call as policies see them: texts by name.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;

use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde_json::Value;
use wardgate_domain::InvalidMessage;

/// Reads one JSON object: a string as it is, anything else as its compact JSON text. A name that comes
/// twice is refused, so that the policy cannot have seen another value than the tool uses.
pub(crate) fn parse_arguments(json: &[u8]) -> Result<BTreeMap<String, String>, InvalidMessage> {
    let invalid = |error: serde_json::Error| {
        InvalidMessage::field(
            "arguments_json",
            format!("is not one JSON object: {}", category(&error)),
        )
    };
    let mut from = serde_json::Deserializer::from_slice(json);
    let arguments = from.deserialize_map(ArgumentsVisitor).map_err(invalid)?;
    from.end().map_err(invalid)?;
    Ok(arguments)
}

/// What kind of error it is, and where; never the text, which may hold an argument.
fn category(error: &serde_json::Error) -> String {
    format!(
        "{:?} error at line {} column {}",
        error.classify(),
        error.line(),
        error.column()
    )
}

struct ArgumentsVisitor;

impl<'de> Visitor<'de> for ArgumentsVisitor {
    type Value = BTreeMap<String, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut arguments = BTreeMap::new();
        while let Some((name, value)) = map.next_entry::<String, Value>()? {
            let Entry::Vacant(free) = arguments.entry(name) else {
                return Err(A::Error::custom("a name comes twice"));
            };
            free.insert(match value {
                Value::String(text) => text,
                other => other.to_string(),
            });
        }
        Ok(arguments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_stay_and_the_rest_is_json_text() {
        let read = parse_arguments(
            br#" {"s": "a\u0041", "n": 10, "f": 1.5, "b": true, "z": null, "l": [1, {"k": "v"}]} "#,
        );
        let shown: Vec<_> = read
            .unwrap()
            .into_iter()
            .map(|(name, text)| format!("{name}={text}"))
            .collect();
        assert_eq!(
            shown,
            [
                "b=true",
                "f=1.5",
                r#"l=[1,{"k":"v"}]"#,
                "n=10",
                "s=aA",
                "z=null"
            ]
        );
    }

    #[test]
    fn what_is_not_one_object_is_refused_without_repeating_it() {
        let deep = format!("{{\"a\":{}1{}}}", "[".repeat(10_000), "]".repeat(10_000));
        let bad = [
            "",
            "[]",
            "\"secret\"",
            "{\"secret\":1,}",
            "{} {}",
            "{\"secret\":1,\"secret\":2}",
            "{\"a\":secret}",
            &deep,
        ];
        for json in bad {
            let error = parse_arguments(json.as_bytes()).unwrap_err().to_string();
            assert!(
                error.starts_with("field `arguments_json`") && !error.contains("secret"),
                "{error}"
            );
        }
    }
}
