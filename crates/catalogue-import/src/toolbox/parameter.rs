//! Conversion of the parameters of a Toolbox tool to properties of a JSON Schema.

use serde_json::{Map, Value, json};

use super::reference::References;
use crate::text::{Description, UniqueNames, identifier};

/// Maximum length of the description of a parameter, in characters.
const MAX_DESCRIPTION: usize = 1_000;

/// One parameter of a tool.
#[derive(Debug)]
pub(super) struct Parameter {
    /// The Toolbox's name of the parameter.
    pub(super) original: String,
    /// The name of the argument.
    pub(super) name: String,
    pub(super) schema: Map<String, Value>,
    pub(super) is_required: bool,
    /// The allowed values, if they are a list of plain texts.
    pub(super) allowed: Vec<String>,
}

impl Parameter {
    /// Reads `parameters` or `templateParameters`. An error is the reason why the tool cannot be imported.
    pub(super) fn read_all(
        node: Option<&Value>,
        names: &mut UniqueNames,
        references: &References,
    ) -> Result<Vec<Self>, String> {
        let items = node.and_then(Value::as_array).into_iter().flatten();
        items
            .map(|item| Self::from_item(item, names, references))
            .collect()
    }

    fn from_item(
        item: &Value,
        names: &mut UniqueNames,
        references: &References,
    ) -> Result<Self, String> {
        let original = item["name"].as_str().ok_or("a parameter has no `name`")?;
        if item["authServices"]
            .as_array()
            .is_some_and(|it| !it.is_empty())
        {
            return Err(format!(
                "`{original}` is set from the caller's token, and as an argument any value could be sent; govern its rows instead \
                 (`result.entity`, `:row_rule`)"
            ));
        }
        if item.get("valueFromParam").is_some() || item.get("embeddedBy").is_some() {
            return Err(format!("`{original}` is computed from another parameter"));
        }
        let kind = match item["type"].as_str().unwrap_or_default() {
            "string" => "string",
            "integer" => "integer",
            "float" | "number" => "number",
            "boolean" => "boolean",
            kind => {
                return Err(format!(
                    "`{original}` is of type `{kind}`; only a string, a number or a boolean can be bound"
                ));
            }
        };
        let default = item.get("default").filter(|default| !default.is_null());
        let is_required = default.is_none() && item["required"] != false;
        let mut schema = Map::from_iter([("type".to_owned(), kind.into())]);
        let text = item["description"].as_str().unwrap_or_default();
        let description = Description::from_text(&references.restore(text), MAX_DESCRIPTION).text;
        if !description.is_empty() {
            schema.insert("description".to_owned(), description.into());
        }
        if let Some(default) = default {
            let default = match default {
                Value::String(text) => references.restore(text).into(),
                other => other.clone(),
            };
            schema.insert("default".to_owned(), default);
        }
        for (field, keyword) in [
            ("minValue", "minimum"),
            ("maxValue", "maximum"),
            ("pattern", "pattern"),
        ] {
            if let Some(value) = item.get(field) {
                schema.insert(keyword.to_owned(), value.clone());
            }
        }
        let allowed = words(item.get("allowedValues"));
        match &allowed {
            AllowedValues::None => {}
            AllowedValues::Plain(values) => {
                schema.insert("enum".to_owned(), values.clone().into());
            }
            AllowedValues::Patterns(pattern) => {
                schema.insert("pattern".to_owned(), pattern.as_str().into());
            }
        }
        match words(item.get("excludedValues")) {
            AllowedValues::None => {}
            AllowedValues::Plain(values) => {
                schema.insert("not".to_owned(), json!({ "enum": values }));
            }
            AllowedValues::Patterns(pattern) => {
                schema.insert("not".to_owned(), json!({ "pattern": pattern }));
            }
        }
        Ok(Self {
            original: original.to_owned(),
            name: names.unique(&identifier(original, "argument")),
            schema,
            is_required,
            allowed: match allowed {
                AllowedValues::Plain(values) => {
                    let values = values.iter().filter_map(Value::as_str);
                    values.map(str::to_owned).collect()
                }
                _ => Vec::new(),
            },
        })
    }
}

/// The values that a parameter allows or excludes.
enum AllowedValues {
    None,
    Plain(Vec<Value>),
    /// One pattern that matches the whole value, for all entries.
    Patterns(String),
}

fn words(node: Option<&Value>) -> AllowedValues {
    let Some(values) = node.and_then(Value::as_array).filter(|it| !it.is_empty()) else {
        return AllowedValues::None;
    };
    let is_pattern = |value: &Value| {
        value
            .as_str()
            .is_some_and(|text| text.contains(|c| r"\.+*?()|[]{}^$".contains(c)))
    };
    if !values.iter().any(is_pattern) {
        return AllowedValues::Plain(values.clone());
    }
    let patterns: Vec<_> = values
        .iter()
        .map(|value| {
            value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned)
        })
        .collect();
    AllowedValues::Patterns(format!("^(?:{})$", patterns.join("|")))
}

/// Builds the input schema, and adds a review for each renamed parameter.
pub(super) fn schema<'p>(
    parameters: impl Iterator<Item = &'p Parameter>,
    reviews: &mut Vec<String>,
) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for parameter in parameters {
        let Parameter { original, name, .. } = parameter;
        if original != name {
            reviews.push(format!("the parameter `{original}` is named `{name}`"));
        }
        if parameter.is_required {
            required.push(Value::from(name.as_str()));
        }
        properties.insert(name.clone(), parameter.schema.clone().into());
    }
    let mut schema = json!({ "type": "object", "properties": properties });
    if let (Some(members), false) = (schema.as_object_mut(), required.is_empty()) {
        members.insert("required".to_owned(), required.into());
    }
    schema
}
