//! A tool that an MCP server defines.

use std::collections::BTreeMap;

use wardgate_domain::{ColumnClass, Digest, OfferKind, ToolFacts, ToolName};

use super::{Tool, is_name};
use crate::catalogue::derive::Derive;
use crate::catalogue::result_shape::{ResultShape, Shape};
use crate::catalogue::schema;
use crate::catalogue::source::McpSettings;
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
            definition_json: definition.without_name().into(),
            time_limit: None,
            repeatable: read_only || definition.hints("idempotentHint"),
            limits: LimitSettings::default(),
            cache: None,
            input,
            derive: Derive::default(),
            plan: executor::mcp_tool(source, definition.name()),
            result,
            own_name: Some(definition.name().to_owned()),
        })
    }
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
