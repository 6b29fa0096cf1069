//! The input schema of a tool, as calls are checked against it and as clients see it.

use std::collections::BTreeMap;

use serde_json::Value;
use wardgate_arguments::{InputSchema, Property, UnusableSchema, as_seen, default_fits};
use wardgate_yaml::{KeyOrder, Node, Yaml};

use crate::fault::Faults;
use crate::pins::EscapedText;

/// Compiles `node` as the schema of an object.
pub(super) fn compile(node: &Node, what: &str, faults: &mut Faults) -> Option<InputSchema> {
    faults.map(node, what)?;
    InputSchema::compile_closed(&node.to_value())
        .map_err(|unusable| match unusable {
            UnusableSchema::NotAnObject => faults.add(
                node.at,
                format!("`{what}` does not describe an object"),
                "write `type: object`",
            ),
            UnusableSchema::Invalid { path, problem } => faults.add(
                node.follow(&path).at,
                format!("`{what}` is not a valid JSON Schema: {problem}"),
                "fix it according to JSON Schema 2020-12; `$ref` may only point inside the schema",
            ),
        })
        .ok()
}

/// Reads the `input_schema` of a tool and checks its defaults.
pub(super) fn read_input_schema(node: &Node, faults: &mut Faults) -> Option<InputSchema> {
    let schema = compile(node, "input_schema", faults)?;
    if let Some(declared) = node.get("properties") {
        for (_, property) in faults.map(declared, "properties")? {
            check_default(property, faults);
        }
    }
    let opens = OPENING.iter().any(|keyword| node.get(keyword).is_some());
    check_required(node, !opens, faults);
    Some(schema)
}

/// Keywords that govern members that `properties` does not name.
const OPENING: [&str; 3] = [
    "additionalProperties",
    "patternProperties",
    "unevaluatedProperties",
];

/// Checks that required members are allowed, because otherwise no object is valid. `is_closed` is whether members that
/// `properties` does not name are rejected even if the schema does not say this.
fn check_required(node: &Node, is_closed: bool, faults: &mut Faults) {
    let refuses_others = matches!(
        node.get("additionalProperties").map(|node| &node.value),
        Some(Yaml::Boolean(false))
    ) && node.get("patternProperties").is_none();
    let properties = node.get("properties");
    if (is_closed || refuses_others)
        && let Some(Yaml::List(names)) = node.get("required").map(|node| &node.value)
    {
        for name in names {
            if let Yaml::Text(text) = &name.value
                && properties.is_none_or(|it| it.get(text).is_none())
            {
                faults.add(
                    name.at,
                    format!("`{text}` is required but not a property, so no call can match"),
                    format!("add `{text}` to `properties`, or remove it from `required`"),
                );
            }
        }
    }
    if let Some(Yaml::Map(properties)) = properties.map(|node| &node.value) {
        for (_, property) in properties {
            check_required(property, false, faults);
        }
    }
    if let Some(items) = node.get("items") {
        check_required(items, false, faults);
    }
}

/// Compiles the schema of a tool that an MCP server defines.
pub(super) fn of_upstream(text: &str) -> Result<InputSchema, String> {
    let unusable = |problem: String| {
        format!(
            "its inputSchema cannot be used for validation: {}",
            EscapedText::short(&problem)
        )
    };
    let schema: Value = serde_json::from_str(text).map_err(|error| unusable(error.to_string()))?;
    InputSchema::compile_open(&schema).map_err(|error| unusable(error.to_string()))
}

/// Returns the schema for clients as JSON text. Its keys keep the configured order, `type: object` is added if it is
/// missing, and the calls of `examples` become its `examples` (2020-12, validation, section 9.5).
pub(super) fn definition(node: &Node, examples: Option<&Node>) -> String {
    let mut text = node.to_json(KeyOrder::Author);
    if node.get("type").is_none() {
        text = match text.as_str() {
            "{}" => r#"{"type":"object"}"#.to_owned(),
            members => format!(r#"{{"type":"object",{}"#, &members[1..]),
        };
    }
    let calls: Vec<_> = match examples.map(|node| &node.value) {
        Some(Yaml::List(items)) => items.iter().filter_map(|it| it.get("arguments")).collect(),
        _ => Vec::new(),
    };
    if calls.is_empty() {
        return text;
    }
    let calls: Vec<_> = calls
        .iter()
        .map(|it| it.to_json(KeyOrder::Author))
        .collect();
    // The schema is a non-empty object, so a comma can follow its last member.
    let open = &text[..text.len() - 1];
    format!(r#"{open},"examples":[{}]}}"#, calls.join(","))
}

/// Returns the defaults of arguments by name, in the form that policies see.
pub(super) fn argument_defaults(schema: &InputSchema) -> BTreeMap<String, String> {
    let default = |property: &Property| {
        let default = property.default.as_ref()?;
        Some((property.name.clone(), as_seen(default)))
    };
    schema.properties().iter().filter_map(default).collect()
}

fn check_default(property: &Node, faults: &mut Faults) {
    let Some(default) = property.get("default") else {
        return;
    };
    if !default_fits(&property.to_value(), &default.to_value()) {
        faults.add(
            default.at,
            format!(
                "the default {} does not match its own schema",
                default.to_json(KeyOrder::Author)
            ),
            "change the default or the schema",
        );
    }
}
