//! Import of the SQL tools of MCP Toolbox for Databases from its `tools.yaml`.
//!
//! ```text
//!   sources: / tools: / toolsets:       one document (`kind` is the type of an entry)
//!   kind: source ─── kind: tool ───     one document for each entry (`type` is its type)
//!     └─▶ resources ─▶ source: one URL ─ parameters: JSON Schema ─ statement: `$1` and `?` by name ─ toolsets
//! ```

mod parameter;
mod reference;
mod source;
mod statement;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::draft::{Draft, ToolDraft};
use super::text::{UniqueNames, name};
use super::{ImportError, ImportedCatalogue, document};
use parameter::Parameter;
use reference::References;
use wardgate_catalogue::SqlDialect;

/// One entry of the file: its name, its type, and its fields.
#[derive(Debug)]
struct ToolboxEntry {
    name: String,
    kind: String,
    fields: Map<String, Value>,
}

/// The entries of the file, in their order.
#[derive(Debug, Default)]
struct ToolboxFile {
    sources: Vec<ToolboxEntry>,
    tools: Vec<ToolboxEntry>,
    toolsets: Vec<ToolboxEntry>,
    /// Entries that are not imported: their section and name.
    others: Vec<(String, String)>,
}

/// Imports the SQL tools of a Toolbox file, in either of its two formats.
pub fn toolbox(text: &str) -> Result<ImportedCatalogue, ImportError> {
    let (text, references) = References::take_out(text);
    let resources = ToolboxFile::from_documents(document::parse_all(&text)?);
    let mut draft = Draft::new("a Toolbox file");
    let mut dialects = BTreeMap::new();
    let mut source_names = UniqueNames::default();
    for resource in &resources.sources {
        let taken = source_names.unique(&name(&resource.name, "source"));
        if let Some(dialect) = source::import(&taken, resource, &references, &mut draft) {
            dialects.insert(resource.name.clone(), (taken, dialect));
        }
    }
    let mut tools = BTreeMap::new();
    for resource in &resources.tools {
        let mut tool = ToolDraft {
            name: draft.tool_name(&name(&resource.name, "tool")),
            ..ToolDraft::default()
        };
        match import(resource, &dialects, &references, &mut tool) {
            Ok(()) if draft.tool(&tool) => {
                tools.insert(resource.name.clone(), tool.name);
            }
            Ok(()) => {}
            Err(reason) => draft.leave_out_tool(&tool.name, &reason),
        }
    }
    import_toolsets(&resources.toolsets, &tools, &mut draft);
    draft.note(
        "the tools",
        "their columns are `unclassified` until `result.classes` sets their classes",
    );
    for (kind, name) in &resources.others {
        draft.note(
            format!("{kind} `{name}`"),
            match kind.as_str() {
                "authService" => "omitted: authentication is configured in the gateway, authorization in the policies",
                _ => "omitted: only sources, tools and toolsets are imported",
            },
        );
    }
    draft.finish()
}

impl ToolboxFile {
    fn from_documents(documents: Vec<Map<String, Value>>) -> Self {
        let mut resources = Self::default();
        for mut document in documents {
            let text = |key: &str| document.get(key).and_then(Value::as_str).map(str::to_owned);
            match (text("kind"), text("name")) {
                (Some(kind), Some(name)) => {
                    document.retain(|key, _| key != "kind" && key != "name");
                    let singular = kind.strip_suffix('s').unwrap_or(&kind);
                    resources.add(singular, name, document.into(), "type");
                }
                _ => {
                    for (section, entries) in document {
                        let singular = section.strip_suffix('s').unwrap_or(&section);
                        let Value::Object(entries) = entries else {
                            resources.others.push((singular.to_owned(), String::new()));
                            continue;
                        };
                        for (name, fields) in entries {
                            resources.add(singular, name, fields, "kind");
                        }
                    }
                }
            }
        }
        resources
    }

    fn add(&mut self, section: &str, name: String, fields: Value, kind: &str) {
        let fields = match (section, fields) {
            (_, Value::Object(fields)) => fields,
            // In the older format a toolset is the list itself.
            ("toolset", tools @ Value::Array(_)) => Map::from_iter([("tools".to_owned(), tools)]),
            _ => Map::new(),
        };
        let resource = ToolboxEntry {
            name,
            kind: scalar(fields.get(kind)).unwrap_or_default(),
            fields,
        };
        match section {
            "source" => self.sources.push(resource),
            "tool" => self.tools.push(resource),
            "toolset" => self.toolsets.push(resource),
            other => self.others.push((other.to_owned(), resource.name)),
        }
    }
}

/// Fills in the tool. An error is the reason why the entry cannot become a tool.
fn import(
    resource: &ToolboxEntry,
    sources: &BTreeMap<String, (String, SqlDialect)>,
    references: &References,
    tool: &mut ToolDraft,
) -> Result<(), String> {
    let ToolboxEntry { kind, fields, .. } = resource;
    if !kind.ends_with("-sql") || kind.ends_with("-execute-sql") {
        return Err(format!("its type `{kind}` has no SQL in the file"));
    }
    let source = fields
        .get("source")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let Some((source, dialect)) = sources.get(source) else {
        return Err(format!("its source `{source}` is missing or omitted"));
    };
    let statement = fields.get("statement").and_then(Value::as_str);
    let statement = references.restore(statement.ok_or("it has no `statement`")?);
    tool.describe(
        &references.restore(
            fields
                .get("description")
                .and_then(Value::as_str)
                .unwrap_or_default(),
        ),
    );
    if let Some(services) = fields.get("authRequired").and_then(Value::as_array) {
        let services: Vec<_> = services.iter().filter_map(Value::as_str).collect();
        tool.reviews.push(format!(
            "it was restricted to callers authenticated by {}: define in the policies who may call it",
            services.join(", ")
        ));
    }
    let mut names = UniqueNames::without(&["row_rule"]);
    let parameters = Parameter::read_all(fields.get("parameters"), &mut names, references)?;
    let mut choices =
        Parameter::read_all(fields.get("templateParameters"), &mut names, references)?;
    for choice in &mut choices {
        // The statement cannot be built without a value.
        choice.is_required = !choice.schema.contains_key("default");
    }
    let (statement, derive) =
        statement::convert(&statement, *dialect, &parameters, &choices, &mut names)?;
    tool.reviews.extend(statement::reviews(
        &statement,
        *dialect,
        !choices.is_empty(),
    ));
    tool.input_schema = parameter::schema(parameters.iter().chain(&choices), &mut tool.reviews);
    if statement::only_reads(&statement) {
        tool.hints.push("readOnlyHint");
    }
    tool.execute = Map::from_iter([
        ("type".to_owned(), "sql".into()),
        ("source".to_owned(), source.as_str().into()),
    ]);
    if !derive.is_empty() {
        tool.execute.insert("derive".to_owned(), derive.into());
    }
    tool.execute
        .insert("statement".to_owned(), statement.into());
    Ok(())
}

fn import_toolsets(toolsets: &[ToolboxEntry], tools: &BTreeMap<String, String>, draft: &mut Draft) {
    let mut names = UniqueNames::default();
    for toolset in toolsets {
        let about = format!("toolset `{}`", toolset.name);
        let listed = toolset.fields.get("tools").and_then(Value::as_array);
        let listed = listed.into_iter().flatten().filter_map(Value::as_str);
        let (known, lost): (Vec<_>, Vec<_>) = listed.partition(|name| tools.contains_key(*name));
        if !lost.is_empty() {
            draft.note(
                &about,
                format!("omits {}, which are not imported", lost.join(", ")),
            );
        }
        if known.is_empty() {
            draft.note(&about, "omitted: none of its tools is imported");
            continue;
        }
        let known: Vec<_> = known.into_iter().map(|name| tools[name].clone()).collect();
        draft.toolset(&names.unique(&name(&toolset.name, "toolset")), &known);
    }
}

/// Returns the value of a field if it is a string, a number or a boolean.
fn scalar(value: Option<&Value>) -> Option<String> {
    match value? {
        Value::String(text) => Some(text.clone()),
        value @ (Value::Number(_) | Value::Bool(_)) => Some(json!(value).to_string()),
        _ => None,
    }
}
