//! Arguments that a client of 2026-07-28 or later repeats as headers, because the tool's schema marks them with
//! `x-mcp-header` (SEP-2243).

use bigdecimal::BigDecimal;
use http::{HeaderName, HeaderValue};
use serde_json::value::RawValue;
use serde_json::{Number, Value};
use wardgate_json::decimal_of;

use crate::header::{PARAM_PREFIX, encode_value};

/// The largest absolute value of an integer that may be repeated in a header.
const MAX_INTEGER: u64 = (1 << 53) - 1;

/// The keyword that marks an argument in a schema.
const MARK: &str = "x-mcp-header";

/// An argument that is mirrored as a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirroredHeader {
    /// The name of the header.
    pub name: HeaderName,
    /// Path to the argument: the names of the members of nested objects.
    path: Vec<String>,
}

impl MirroredHeader {
    /// Returns the mirrored headers of a tool's input schema. Fails if a mark is invalid, for example not on a string, integer or
    /// boolean; such a tool must not be used over HTTP.
    pub fn of_schema(schema: &Value) -> Result<Vec<Self>, &'static str> {
        let mut found = Vec::new();
        collect(schema, Some(&mut Vec::new()), &mut found)?;
        for (index, header) in found.iter().enumerate() {
            if found[..index].iter().any(|other| other.name == header.name) {
                return Err("two of its arguments have the same `x-mcp-header`");
            }
        }
        Ok(found)
    }

    /// Returns the mirrored headers of the tool with this definition, or none if a mark is invalid.
    pub fn of_tool(definition: &str) -> Vec<Self> {
        // The search saves parsing, because almost no tool has a mark.
        if !definition.contains(MARK) {
            return Vec::new();
        }
        let definition: Value = serde_json::from_str(definition).unwrap_or_default();
        Self::of_schema(&definition["inputSchema"]).unwrap_or_default()
    }

    /// Returns the value of this argument among the arguments of a call.
    pub fn argument<'a>(&self, arguments: &'a Value) -> Option<&'a Value> {
        let mut path = self.path.iter();
        path.try_fold(arguments, |value, member| value.get(member))
    }

    /// Returns the name and value of the header for a call with `arguments`, or `None` if the argument is absent,
    /// null or not representable.
    fn fill(&self, arguments: &Value) -> Option<(HeaderName, HeaderValue)> {
        let text = match self.argument(arguments)? {
            Value::String(text) => encode_value(text),
            Value::Bool(flag) => encode_value(if *flag { "true" } else { "false" }),
            Value::Number(number) => encode_value(&whole(number)?),
            Value::Null | Value::Array(_) | Value::Object(_) => return None,
        };
        Some((self.name.clone(), text))
    }
}

/// Returns the mirrored headers of a call with `arguments`.
pub fn of_arguments(
    headers: &[MirroredHeader],
    arguments: &RawValue,
) -> Vec<(HeaderName, HeaderValue)> {
    if headers.is_empty() {
        return Vec::new();
    }
    let arguments: Value = serde_json::from_str(arguments.get()).unwrap_or_default();
    headers
        .iter()
        .filter_map(|header| header.fill(&arguments))
        .collect()
}

/// Returns an integer in decimal digits, whichever notation it has, or `None` if it is not an integer or is too large.
fn whole(number: &Number) -> Option<String> {
    if number.is_i64() || number.is_u64() {
        return Some(number.to_string());
    }
    let value = decimal_of(number).filter(BigDecimal::is_integer)?;
    let is_safe = value.abs() <= MAX_INTEGER;
    is_safe.then(|| value.with_scale(0).to_plain_string())
}

/// Collects the marks in `schema`. `path` leads to `schema` through `properties` only, or is `None` if it
/// contains other keywords.
fn collect(
    schema: &Value,
    path: Option<&mut Vec<String>>,
    found: &mut Vec<MirroredHeader>,
) -> Result<(), &'static str> {
    let members = match schema {
        Value::Object(members) => members,
        Value::Array(schemas) => {
            return schemas
                .iter()
                .try_for_each(|schema| collect(schema, None, found));
        }
        _ => return Ok(()),
    };
    let mut path = path;
    if let Some(mark) = members.get(MARK) {
        let path = path
            .as_deref()
            .filter(|path| !path.is_empty())
            .ok_or("an `x-mcp-header` of its schema does not belong to a plain argument")?;
        let kind = members.get("type").and_then(Value::as_str);
        if !matches!(kind, Some("string" | "integer" | "boolean")) {
            return Err(
                "an `x-mcp-header` of its schema does not belong to a string, integer or boolean",
            );
        }
        let name = mark
            .as_str()
            .filter(|name| !name.is_empty())
            .and_then(|name| HeaderName::try_from(format!("{PARAM_PREFIX}{name}")).ok())
            .ok_or("an `x-mcp-header` of its schema is not a valid header name")?;
        found.push(MirroredHeader {
            name,
            path: path.clone(),
        });
    }
    for (keyword, value) in members {
        match keyword.as_str() {
            // These keywords contain values and not schemas.
            "const" | "enum" | "default" | "examples" => {}
            "properties" => {
                let properties = value.as_object().into_iter().flatten();
                for (name, property) in properties {
                    if let Some(path) = path.as_deref_mut() {
                        path.push(name.clone());
                        collect(property, Some(path), found)?;
                        path.pop();
                    } else {
                        collect(property, None, found)?;
                    }
                }
            }
            _ => collect(value, None, found)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn headers(schema: &Value, arguments: &str) -> Vec<(String, String)> {
        let arguments = RawValue::from_string(arguments.to_owned()).unwrap();
        of_arguments(&MirroredHeader::of_schema(schema).unwrap(), &arguments)
            .into_iter()
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
            .collect()
    }

    #[test]
    fn marked_arguments_are_repeated_as_headers() {
        let schema = json!({"type": "object", "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "page": {"type": "object", "properties": {
                "size": {"type": "integer", "x-mcp-header": "Size"},
                "last": {"type": "boolean", "x-mcp-header": "Last"},
            }},
            "absent": {"type": "string", "x-mcp-header": "Absent"},
            "x-mcp-header": {"type": "string", "default": {"x-mcp-header": 7}},
        }});
        assert_eq!(
            headers(
                &schema,
                r#"{"region":"Zürich","page":{"size":1e2,"last":false},"absent":null}"#
            ),
            [
                ("mcp-param-region", "=?base64?WsO8cmljaA==?="),
                ("mcp-param-size", "100"),
                ("mcp-param-last", "false"),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
    }

    #[test]
    fn a_schema_with_a_misplaced_mark_is_refused() {
        let property = |property: Value| json!({"properties": {"a": property}});
        let text = json!({"type": "string", "x-mcp-header": "A"});
        let cases = [
            json!({"type": "object", "x-mcp-header": "A"}),
            property(json!({"type": "number", "x-mcp-header": "A"})),
            property(json!({"x-mcp-header": "A"})),
            property(json!({"type": "string", "x-mcp-header": ""})),
            property(json!({"type": "string", "x-mcp-header": "a b"})),
            property(json!({"type": "string", "x-mcp-header": 7})),
            property(json!({"type": "array", "items": text})),
            property(json!({"anyOf": [text]})),
            json!({"$defs": {"a": text}}),
            json!({"anyOf": [{"properties": {"a": text}}]}),
            json!({"properties": {"a": text, "b": {"type": "string", "x-mcp-header": "a"}}}),
        ];
        for schema in cases {
            assert!(MirroredHeader::of_schema(&schema).is_err(), "{schema}");
        }
    }
}
