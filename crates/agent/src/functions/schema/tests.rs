use proptest::prelude::*;

use super::*;

fn clean_parameters(schema: &Value) -> Value {
    parameters(schema).unwrap()
}

/// Returns the converted schema of the property `x`.
fn property(schema: &Value) -> Value {
    clean_parameters(&json!({ "properties": { "x": schema } }))["properties"]["x"].clone()
}

#[test]
fn what_every_provider_takes_stays_as_it_is() {
    let schema = json!({
        "type": "object",
        "properties": {
            "query": { "type": "string", "description": "What to look for.", "minLength": 1 },
            "size": { "type": "integer", "default": 5, "minimum": 1 },
            "order": { "enum": ["asc", "desc"] },
            "tags": { "type": "array", "items": { "type": "string" } },
        },
        "required": ["query"],
        "additionalProperties": false,
    });
    assert_eq!(clean_parameters(&schema), schema);
}

#[test]
fn the_root_is_an_object_with_properties() {
    let empty = json!({ "type": "object", "properties": {} });
    for schema in [
        json!({}),
        json!({ "type": "object" }),
        json!({ "type": ["object", "null"] }),
    ] {
        assert_eq!(clean_parameters(&schema), empty);
    }
    for schema in [
        json!(true),
        json!("x"),
        json!({ "type": "string" }),
        json!(null),
    ] {
        assert_eq!(
            parameters(&schema),
            Err(UnsupportedSchema::NotAnObject),
            "{schema}"
        );
    }
}

#[test]
fn what_is_about_the_schema_is_left_out_but_no_property_is() {
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://example.com/x", "$comment": "c", "x-order": 1,
        "properties": {
            "x-mcp": { "type": "string", "x-mcp-header": "Region" },
            "$schema": { "type": "string" },
            "definitions": { "type": "string", "default": { "$ref": "kept", "x-kept": 1 } },
        },
    });
    assert_eq!(
        clean_parameters(&schema),
        json!({
            "properties": {
                "x-mcp": { "type": "string" },
                "$schema": { "type": "string" },
                "definitions": { "type": "string", "default": { "$ref": "kept", "x-kept": 1 } },
            },
            "type": "object",
        })
    );
}

#[test]
fn lists_have_items_and_objects_have_properties() {
    assert_eq!(
        property(&json!({ "type": "array" })),
        json!({ "type": "array", "items": {} })
    );
    assert_eq!(
        property(&json!({ "type": ["array", "null"] })),
        json!({ "type": ["array", "null"], "items": {} })
    );
    let tuple = json!({ "type": "array", "items": [{ "type": "string" }, { "type": "null" }] });
    assert_eq!(
        property(&tuple),
        json!({ "type": "array", "items": { "anyOf": [{ "type": "string" }, { "type": "null" }] } })
    );
    assert_eq!(
        property(&json!({ "type": "object", "additionalProperties": {} })),
        json!({ "type": "object", "properties": {} })
    );
}

#[test]
fn a_property_is_a_schema_of_its_own() {
    assert_eq!(property(&json!(true)), json!({}));
    let without = clean_parameters(
        &json!({ "properties": { "x": false, "y": {} }, "required": ["x", "y", "z"] }),
    );
    assert_eq!(
        without,
        json!({ "properties": { "y": {} }, "required": ["y"], "type": "object" })
    );
    assert_eq!(
        parameters(&json!({ "properties": { "x": "string" } })),
        Err(UnsupportedSchema::NotASchema)
    );
}

#[test]
fn a_reference_is_replaced_by_what_it_stands_for() {
    let schema = json!({
        "$defs": { "a/b c": { "type": "string", "description": "generic" } },
        "properties": {
            "x": { "$ref": "#/$defs/a~1b%20c" },
            "y": { "$ref": "#/$defs/a~1b%20c", "description": "this one" },
        },
    });
    assert_eq!(
        clean_parameters(&schema)["properties"],
        json!({
            "x": { "type": "string", "description": "generic" },
            "y": { "type": "string", "description": "this one" },
        })
    );
}

#[test]
fn a_reference_into_itself_is_followed_once() {
    let tree = json!({
        "$defs": { "node": {
            "type": "object",
            "description": "A node.",
            "properties": { "name": { "type": "string" }, "children": { "type": "array", "items": { "$ref": "#/$defs/node" } } },
        } },
        "properties": { "root": { "$ref": "#/$defs/node" } },
    });
    let root = clean_parameters(&tree)["properties"]["root"].clone();
    assert_eq!(
        root["properties"]["children"]["items"],
        json!({ "type": "object", "description": "A node.", "properties": {} })
    );
    for circle in [
        json!({ "$ref": "#" }),
        json!({ "$defs": { "a": { "$ref": "#/$defs/b" }, "b": { "$ref": "#/$defs/a" } }, "$ref": "#/$defs/a" }),
        json!({ "properties": { "x": { "$ref": "#" }, "y": { "allOf": [{ "$ref": "#" }] } } }),
    ] {
        assert!(!clean_parameters(&circle).to_string().contains("$ref"));
    }
}

#[test]
fn nothing_outside_the_schema_is_referred_to() {
    for reference in [
        "https://example.com/x",
        "other.json#/a",
        "#/missing",
        "#anchor",
        "#/%ff",
    ] {
        let schema = json!({ "properties": { "x": { "$ref": reference } } });
        assert_eq!(
            parameters(&schema),
            Err(UnsupportedSchema::Remote),
            "{reference}"
        );
    }
}

#[test]
fn little_that_would_become_much_is_refused() {
    let mut definitions = Map::new();
    for step in 0..30 {
        let next = json!({ "$ref": format!("#/$defs/s{}", step + 1) });
        definitions.insert(format!("s{step}"), json!({ "allOf": [next, next] }));
    }
    definitions.insert("s30".to_owned(), json!({}));
    let doubling = json!({ "$defs": definitions, "properties": { "x": { "$ref": "#/$defs/s0" } } });
    assert_eq!(parameters(&doubling), Err(UnsupportedSchema::TooLarge));

    let mut deep = json!({});
    for _ in 0..100 {
        deep = json!({ "not": deep });
    }
    assert_eq!(
        parameters(&json!({ "properties": { "x": deep } })),
        Err(UnsupportedSchema::TooLarge)
    );
    let wide = json!({ "properties": { "x": { "enum": (0..6_000).collect::<Vec<_>>() } } });
    assert_eq!(parameters(&wide), Err(UnsupportedSchema::TooLarge));
}

#[test]
fn a_choice_at_the_root_becomes_its_branches_taken_together() {
    let schema = json!({
        "type": "object",
        "properties": { "a": { "type": "string" } },
        "allOf": [{ "properties": { "b": {} }, "required": ["b"] }],
        "oneOf": [
            { "properties": { "c": { "type": "string" } }, "required": ["a", "c"] },
            { "properties": { "c": { "type": "integer" }, "d": {} }, "required": ["a", "d"] },
        ],
        "not": { "required": ["a", "b"] },
        "if": {}, "then": {}, "else": {}, "const": 1, "enum": [1],
    });
    assert_eq!(
        clean_parameters(&schema),
        json!({
            "type": "object",
            "properties": { "a": { "type": "string" }, "b": {}, "c": { "type": "string" }, "d": {} },
            "required": ["b", "a"],
        })
    );
}

#[test]
fn a_choice_of_one_is_none_and_an_empty_one_nothing() {
    let optional = json!({ "anyOf": [{ "not": {} }, { "type": "string" }], "description": "d" });
    assert_eq!(
        property(&optional),
        json!({ "description": "d", "type": "string" })
    );
    assert_eq!(
        property(&json!({ "anyOf": [], "enum": [], "description": 5 })),
        json!({})
    );
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(Value::from),
        Just(json!("object")),
        Just(json!("array")),
        Just(json!("#")),
        Just(json!("#/properties/x")),
    ];
    leaf.prop_recursive(6, 60, 4, |inner| {
        let name = prop_oneof![
            Just("type"),
            Just("properties"),
            Just("items"),
            Just("anyOf"),
            Just("allOf"),
            Just("$ref"),
            Just("not"),
            Just("required"),
            Just("x"),
            Just("enum"),
            Just("additionalProperties"),
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((name, inner), 0..4).prop_map(|members| members
                .into_iter()
                .map(|(name, it)| (name.to_owned(), it))
                .collect::<Map<_, _>>()
                .into()),
        ]
    })
}

/// Asserts that a schema, and every schema inside it, meets the requirements of providers.
fn assert_acceptable(schema: &Value) {
    let members = schema.as_object().unwrap();
    assert!(!members.contains_key("$ref"), "{schema}");
    if is(members, "array") {
        assert!(members["items"].is_object(), "{schema}");
    }
    for property in members
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        assert_acceptable(property.1);
    }
    if let Some(items) = members.get("items") {
        assert_acceptable(items);
    }
    for branch in ["anyOf", "allOf"] {
        for branch in members
            .get(branch)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            assert_acceptable(branch);
        }
    }
}

proptest! {
    #[test]
    fn whatever_a_schema_is_it_becomes_acceptable_or_is_refused(schema in any_json()) {
        if let Ok(cleaned) = parameters(&schema) {
            assert_acceptable(&cleaned);
            prop_assert_eq!(&cleaned["type"], "object");
            prop_assert!(cleaned["properties"].is_object());
            prop_assert_eq!(parameters(&cleaned), Ok(cleaned.clone()), "it has nothing more to clean");
        }
    }
}
