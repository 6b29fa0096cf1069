//! A tool that an MCP server defines.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::value::RawValue;
use wardgate_domain::{ColumnClass, Digest, OfferKind, ToolFacts, ToolName};

use super::{Tool, is_name};
use crate::catalogue::derive::Derive;
use crate::catalogue::result_shape::{ResultShape, Shape};
use crate::catalogue::schema;
use crate::catalogue::source::{McpSettings, Offered};
use crate::content::in_meta;
use crate::executor;
use crate::pins::Definition;
use crate::resilience::LimitSettings;

impl Tool {
    /// The tool of `source` that `definition` describes, under the name that clients see. What the server says
    /// of it goes on as it is; what `tools.yaml` says of the server holds for each of its tools.
    pub(crate) fn imported(
        definition: &Definition,
        source: &str,
        settings: &McpSettings,
    ) -> Result<Self, String> {
        let name = format!("{}{}", settings.prefix, definition.name());
        let name = name.parse().ok().filter(|_| is_name(&name));
        let name: ToolName = name.ok_or("its name is not one that every client accepts")?;
        let input = schema::of_upstream(&definition.input_schema())?;
        let read_only = definition.hints("readOnlyHint");
        let links = settings.resources != Offered::None;
        let mut result = ResultShape::plain(Shape::Content);
        result.classes.clone_from(&settings.classes);
        let mut tags = settings.tags.clone();
        tags.push(format!("upstream:{source}"));
        Ok(Self {
            facts: ToolFacts {
                kind: OfferKind::Tool,
                definition_digest: digest(definition, &name, &tags, &settings.classes),
                name,
                read_only,
                tags,
                entity: None,
                classes: result.released_classes(),
                argument_defaults: schema::argument_defaults(&input),
            },
            aliases: Vec::new(),
            definition_json: if links {
                linked(source, &definition.without_name()).into()
            } else {
                definition.without_name().into()
            },
            time_limit: None,
            repeatable: read_only || definition.hints("idempotentHint"),
            limits: LimitSettings::default(),
            cache: None,
            input,
            derive: Derive::default(),
            plan: executor::mcp_tool(source, settings, definition.name(), links),
            result,
            own_name: Some(definition.name().to_owned()),
        })
    }
}

/// A definition whose page, if it names one, is the resource that clients know.
fn linked(source: &str, definition: &str) -> String {
    let members: BTreeMap<String, &RawValue> = serde_json::from_str(definition).unwrap_or_default();
    let meta = members.get("_meta").map(|meta| meta.get());
    let Some(before) = meta.and_then(|meta| serde_json::from_str::<Value>(meta).ok()) else {
        return definition.to_owned();
    };
    let mut meta = before.clone();
    in_meta(source, &mut meta);
    if meta == before {
        return definition.to_owned();
    }
    let mut text = format!(r#"{{"_meta":{meta}"#);
    for (name, value) in members.iter().filter(|(name, _)| *name != "_meta") {
        text += &format!(",{}:{value}", Value::from(name.as_str()));
    }
    text + "}"
}

/// SHA-256 over all that is known of the tool. `Debug` keeps the parts apart.
fn digest(
    definition: &Definition,
    name: &ToolName,
    tags: &[String],
    classes: &BTreeMap<String, ColumnClass>,
) -> Digest {
    let digest = definition.digest();
    Digest::of(format!("{digest}{name:?}{tags:?}{classes:?}").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_named_as_clients_know_it_and_the_rest_stays_as_it_is_written() {
        let definition =
            r#"{"inputSchema":{"maximum":1.10},"_meta":{"ui":{"resourceUri":"ui://p/m"}}}"#;
        assert_eq!(
            linked("notes", definition),
            r#"{"_meta":{"ui":{"resourceUri":"ui://notes/p/m"}},"inputSchema":{"maximum":1.10}}"#
        );
        for other in [r#"{"a":1.10}"#, r#"{"_meta":{"x":1.10}}"#] {
            assert_eq!(linked("notes", other), other);
        }
    }
}
