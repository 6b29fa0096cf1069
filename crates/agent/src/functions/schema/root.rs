//! Converts the root of a schema to an object with properties and without conditions.

use serde_json::{Map, Value, json};

use super::{UnsupportedSchema, is, tidy};

/// Keywords that providers reject at the root.
const CONDITIONS: [&str; 7] = ["allOf", "anyOf", "oneOf", "not", "if", "then", "else"];

/// Converts the root, merging the properties of the branches of its conditions.
pub(super) fn object(
    mut root: Map<String, Value>,
) -> Result<Map<String, Value>, UnsupportedSchema> {
    if !root.contains_key("type") || is(&root, "object") {
        root.insert("type".to_owned(), json!("object"));
    } else {
        return Err(UnsupportedSchema::NotAnObject);
    }
    let [all, any, one, ..] = CONDITIONS.map(|keyword| root.shift_remove(keyword));
    for keyword in ["enum", "const", "dependentSchemas"] {
        root.shift_remove(keyword);
    }
    root.entry("properties").or_insert_with(|| json!({}));
    for part in objects(all) {
        add_properties(&mut root, &part);
        let names: Vec<Value> = required_names(&part).cloned().collect();
        require(&mut root, names);
    }
    for branches in [any, one].map(objects) {
        // A property is required only if every branch of a choice requires it.
        let common = branches.first().map(required_names).into_iter().flatten();
        let common = common.filter(|name| {
            let mut others = branches.iter();
            others.all(|branch| required_names(branch).any(|it| it == *name))
        });
        let common: Vec<Value> = common.cloned().collect();
        for branch in &branches {
            add_properties(&mut root, branch);
        }
        require(&mut root, common);
    }
    tidy(&mut root);
    Ok(root)
}

fn objects(branches: Option<Value>) -> Vec<Map<String, Value>> {
    let Some(Value::Array(branches)) = branches else {
        return Vec::new();
    };
    let objects = branches.into_iter().filter_map(|branch| match branch {
        Value::Object(branch) => Some(branch),
        _ => None,
    });
    objects.collect()
}

fn required_names(schema: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    let names = schema.get("required").and_then(Value::as_array);
    names.into_iter().flatten()
}

/// Adds the properties of `part` that the root does not have.
fn add_properties(root: &mut Map<String, Value>, part: &Map<String, Value>) {
    let Some(Value::Object(properties)) = root.get_mut("properties") else {
        return;
    };
    let further = part.get("properties").and_then(Value::as_object);
    for (name, schema) in further.into_iter().flatten() {
        properties
            .entry(name.clone())
            .or_insert_with(|| schema.clone());
    }
}

fn require(root: &mut Map<String, Value>, further: Vec<Value>) {
    let names = root.entry("required").or_insert_with(|| json!([]));
    if let Value::Array(names) = names {
        for name in further {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
}
