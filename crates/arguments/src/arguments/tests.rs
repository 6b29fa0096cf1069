//! Tests of which arguments fit and which schemas are usable.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::unusable_schema::UnusableSchema;

fn closed_schema(schema: &Value) -> InputSchema {
    InputSchema::compile_closed(schema).unwrap()
}

fn forecast() -> InputSchema {
    closed_schema(&json!({
        "type": "object",
        "properties": {
            "city": { "type": "string" },
            "days": { "type": "integer", "default": 3, "minimum": 1 },
            "place": { "type": "object", "required": ["lat"], "properties": { "lat": { "type": "number" } } },
        },
        "required": ["city"],
    }))
}

fn complaints(schema: &InputSchema, raw: &str) -> Vec<(String, String)> {
    let invalid = Arguments::parse(schema, raw.as_bytes()).unwrap_err();
    let complaints = invalid.complaints().iter();
    complaints
        .map(|it| (it.path.clone(), it.message.clone()))
        .collect()
}

#[test]
fn values_are_coerced_and_defaults_filled_in() {
    let read = |raw: &str| Arguments::parse(&forecast(), raw.as_bytes()).unwrap();
    assert_eq!(
        Value::from(read(r#"{"city": 7, "days": "5"}"#).into_values()),
        json!({"city": "7", "days": 5})
    );
    assert_eq!(
        Value::from(read(r#"{"city": "Hue"}"#).into_values()),
        json!({"city": "Hue", "days": 3})
    );
}

#[test]
fn every_fault_says_where_it_is() {
    let schema = forecast();
    let path = |raw| complaints(&schema, raw)[0].0.clone();
    assert_eq!(path("{}"), "/city");
    assert_eq!(path(r#"{"city": "Hue", "days": "five"}"#), "/days");
    assert_eq!(path(r#"{"city": "Hue", "days": 0}"#), "/days");
    assert_eq!(path(r#"{"city": "Hue", "place": {}}"#), "/place/lat");
    assert_eq!(path(r#"{"city": "Hue", "a/b~c": 1}"#), "/a~1b~0c");
    assert_eq!(path(r#"{"city": "Hue", "city": "Hue"}"#), "/city");
    assert_eq!(path("[]"), "");
    assert_eq!(path("not JSON"), "");
}

#[test]
fn no_complaint_repeats_a_value() {
    let schema = forecast();
    for raw in [
        r#"{"city": "Hue", "days": "s3cret"}"#,
        r#"{"city": {"s3cret": "s3cret"}, "days": 1}"#,
        r#"{"city": "s3cret", "place": {"lat": "s3cret"}}"#,
        r#"{"city": "s3cret", "days": 0}"#,
    ] {
        for (_, message) in complaints(&schema, raw) {
            assert!(!message.contains("s3cret"), "{raw}: {message}");
        }
    }
}

#[test]
fn what_a_policy_decided_on_is_not_coerced_into_something_else() {
    let schema = forecast();
    let read = |raw: &str| Arguments::parse_as_decided(&schema, raw.as_bytes());
    assert!(read(r#"{"city": "Hue", "days": "5"}"#).is_ok());
    assert!(read(r#"{"city": "Hue", "days": 5.0}"#).is_err());
}

#[test]
fn unknown_arguments_are_for_the_schema_to_allow() {
    let raw = br#"{"more": 1}"#;
    let properties = json!({ "properties": {} });
    assert!(Arguments::parse(&closed_schema(&properties), raw).is_err());
    assert!(Arguments::parse(&InputSchema::compile_open(&properties).unwrap(), raw).is_ok());
    let said = json!({ "properties": {}, "additionalProperties": true });
    assert!(Arguments::parse(&closed_schema(&said), raw).is_ok());
    let shut = json!({ "properties": {}, "additionalProperties": false });
    assert!(Arguments::parse(&InputSchema::compile_open(&shut).unwrap(), raw).is_err());
}

#[test]
fn nothing_outside_a_schema_is_fetched() {
    for reference in [
        "https://example.com/schema.json",
        "http://127.0.0.1:9/x",
        "file:///etc/passwd",
        "other.json",
        "#/$defs/missing",
    ] {
        let schema = json!({ "properties": { "a": { "$ref": reference } } });
        assert!(
            matches!(
                InputSchema::compile_closed(&schema),
                Err(UnusableSchema::Invalid { .. })
            ),
            "{reference}"
        );
    }
}

#[test]
fn a_schema_may_refer_to_itself() {
    let tree = closed_schema(&json!({
        "type": "object",
        "properties": { "name": { "type": "string" }, "child": { "$ref": "#" } },
        "required": ["name"],
    }));
    assert!(Arguments::parse(&tree, br#"{"name": "a", "child": {"name": "b"}}"#).is_ok());
    let deep = r#"{"name":"a","child":"#.repeat(60) + "{}" + &"}".repeat(60);
    assert_eq!(complaints(&tree, &deep)[0].0, "/child".repeat(60) + "/name");
}

/// Checks a value against a schema. Both may be rejected, but neither may hang, overflow the stack or end the process.
fn survives(schema: &Value, raw: &str) {
    if let Ok(schema) = InputSchema::compile_open(schema) {
        let _ = Arguments::parse(&schema, raw.as_bytes());
    }
}

#[test]
fn references_that_only_go_in_a_circle_do_no_harm() {
    for schema in [
        json!({ "$ref": "#" }),
        json!({ "allOf": [{ "$ref": "#" }, { "$ref": "#" }] }),
        json!({ "$defs": { "a": { "$ref": "#/$defs/b" }, "b": { "$ref": "#/$defs/a" } }, "$ref": "#/$defs/a" }),
        json!({ "$defs": { "a": { "not": { "$ref": "#/$defs/a" } } }, "properties": { "x": { "$ref": "#/$defs/a" } } }),
        json!({ "$defs": {
            "a": { "anyOf": [{ "$ref": "#/$defs/b" }, { "$ref": "#/$defs/a" }] },
            "b": { "if": { "$ref": "#/$defs/a" }, "then": false },
        }, "properties": { "x": { "$ref": "#/$defs/a" } } }),
        json!({ "$dynamicRef": "#x", "$dynamicAnchor": "x" }),
        json!({ "properties": { "x": { "default": 1, "allOf": [{ "$ref": "#" }, { "$ref": "#" }] } } }),
        json!({ "$schema": "https://json-schema.org/draft/2019-09/schema", "$recursiveAnchor": true, "allOf": [{ "$recursiveRef": "#" }] }),
        json!({ "unevaluatedProperties": { "$ref": "#" }, "$ref": "#/$defs/%61", "$defs": { "a": { "$ref": "#" } } }),
    ] {
        survives(&schema, r#"{"x": {"x": 1}}"#);
    }
}

/// Returns a schema of `count` definitions, each of which is made from a reference to the next one.
fn chain(count: usize, link: impl Fn(Value) -> Value) -> Value {
    let next = |step: usize| json!({ "$ref": format!("#/$defs/s{step}") });
    let mut definitions: Map<_, _> = (0..count)
        .map(|step| (format!("s{step}"), link(next(step + 1))))
        .collect();
    definitions.insert(format!("s{count}"), json!({ "type": "integer" }));
    json!({ "$defs": definitions, "properties": { "x": next(0) } })
}

#[test]
fn a_long_chain_of_references_does_no_harm() {
    for count in [10, 47, 60, 400, 511, 20_000] {
        for schema in [
            chain(count, |next| next),
            chain(count, |next| json!({ "not": next })),
            chain(
                count,
                |next| json!({ "allOf": [{ "anyOf": [{ "oneOf": [next] }] }] }),
            ),
            chain(
                count,
                |next| json!({ "allOf": [next], "unevaluatedProperties": false }),
            ),
            chain(
                count,
                |next| json!({ "anyOf": [next], "unevaluatedItems": false }),
            ),
        ] {
            survives(&schema, r#"{"x": 1}"#);
            survives(&schema, r#"{"x": {"x": []}}"#);
        }
    }
}

#[test]
fn a_schema_that_doubles_at_each_step_is_not_followed() {
    let doubling = chain(60, |next| json!({ "allOf": [next, next] }));
    let deeper = json!({ "properties": { "x": { "allOf": [{ "$ref": "#" }, { "$ref": "#" }] } } });
    let nested = r#"{"x":"#.repeat(100) + "1" + &"}".repeat(100);
    for (schema, raw) in [(doubling, r#"{"x": 1}"#), (deeper, nested.as_str())] {
        let schema = InputSchema::compile_open(&schema).unwrap();
        let invalid = Arguments::parse(&schema, raw.as_bytes()).unwrap_err();
        assert!(invalid.to_string().contains("too large"), "{invalid}");
        assert!(Arguments::parse(&schema, b"{}").is_ok());
    }
}

#[test]
fn looking_at_what_was_not_looked_at_takes_bounded_time() {
    let mut schema = json!({ "type": "object" });
    for _ in 0..50 {
        schema = json!({ "anyOf": [schema], "unevaluatedProperties": false });
    }
    survives(&schema, r#"{"x": 1}"#);
}

#[test]
fn deep_arguments_under_deep_schemas_do_no_harm() {
    let nested = r#"{"x":"#.repeat(120) + "1" + &"}".repeat(120);
    let mut step = json!({ "$ref": "#" });
    for _ in 0..55 {
        step = json!({ "allOf": [step] });
    }
    survives(&json!({ "properties": { "x": step } }), &nested);
    let looping = json!({ "properties": { "x": { "$ref": "#" } }, "unevaluatedProperties": false });
    survives(&looping, &nested);
}

#[test]
fn references_by_anchor_and_by_the_schemas_own_name_are_followed() {
    let schema = closed_schema(&json!({
        "$id": "https://example.com/forecast",
        "$defs": { "a b": { "type": "integer", "$anchor": "day" } },
        "properties": {
            "by_anchor": { "$ref": "#day" },
            "by_pointer": { "$ref": "#/$defs/a%20b" },
            "by_name": { "$ref": "https://example.com/forecast#/$defs/a%20b" },
        },
    }));
    for name in ["by_anchor", "by_pointer", "by_name"] {
        let read =
            |value: &str| Arguments::parse(&schema, format!(r#"{{"{name}": {value}}}"#).as_bytes());
        assert!(read("1").is_ok(), "{name}");
        assert!(read("1.5").is_err(), "{name}");
    }
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in ".{0,200}") {
        let _ = Arguments::parse(&forecast(), text.as_bytes());
    }
}
