//! A tool that an MCP server defines.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use wardgate_domain::{
    ColumnClass, Digest, OfferKind, RequiredCapabilities, ToolFacts, ToolName, source_uri,
};
use wardgate_json::Members;

use super::Tool;
use crate::derive::DerivedArguments;
use crate::name::is_name;
use crate::plan::{McpPlan, Plan};
use crate::result_shape::{ResultShape, Shape};
use crate::schema;
use crate::source::{McpSettings, OfferedSelection};
use wardgate_mcp_client::CanonicalDefinition;
use wardgate_resilience::LimitSettings;

impl Tool {
    /// Creates the tool of `source` that `definition` describes, under the name that clients see. It is for clients with
    /// the capabilities `required`. The server's description of the tool is passed on unchanged; the settings of the server
    /// in `tools.yaml` apply to each of its tools. The tool counts as one that may write unless the server says otherwise and
    /// the settings trust it.
    pub fn from_definition(
        definition: &CanonicalDefinition,
        source: &str,
        settings: &McpSettings,
        required: &RequiredCapabilities,
    ) -> Result<Self, String> {
        let name = format!("{}{}", settings.prefix, definition.name());
        let name = name.parse().ok().filter(|_| is_name(&name));
        let name: ToolName = name.ok_or("its name is not accepted by every client")?;
        let input = schema::of_upstream(&definition.input_schema())?;
        let hints_read_only = definition.hints("readOnlyHint");
        let read_only = hints_read_only && settings.read_only.has(definition.name());
        let trust = match (hints_read_only, read_only) {
            (_, true) => "read only",
            // Before the settings decided, the tool counted as read-only with the digest of a tool without the hint. What was
            // decided on then does not apply to it.
            (true, false) => "may write",
            (false, false) => "",
        };
        let pin = Arc::new(definition.fingerprint());
        let links = settings.resources != OfferedSelection::None;
        let mut result = ResultShape::plain(Shape::Content);
        result.classes.clone_from(&settings.classes);
        let mut tags = settings.tags.clone();
        tags.push(format!("upstream:{source}"));
        Ok(Self {
            facts: ToolFacts {
                kind: OfferKind::Tool,
                definition_digest: digest(definition, &name, &tags, &settings.classes, trust),
                name,
                read_only,
                tags: tags.into(),
                entity: None,
                classes: result.released_classes(),
                argument_defaults: schema::argument_defaults(&input),
            },
            aliases: Vec::new(),
            definition_json: {
                let shown = plain(definition.without_name());
                let shown = if links {
                    source_uri::outward_in(source, &shown, source_uri::app_pages(&shown))
                } else {
                    shown
                };
                shown.into()
            },
            time_limit: None,
            // A server's `idempotentHint` is as unverified as its `readOnlyHint`, and no setting trusts it.
            repeatable: read_only,
            limits: LimitSettings::default(),
            cache: None,
            input,
            derive: DerivedArguments::default(),
            plan: Plan::Mcp(McpPlan::of_imported(
                source,
                settings,
                definition.name(),
                &pin,
                required,
            )),
            result,
            own_name: Some(definition.name().to_owned()),
            pin: Some(pin),
            required: required.clone(),
            positions: None,
        })
    }
}

/// Removes `execution` from a definition that requires clients to call the tool as a task, because Wardgate makes the task
/// call itself.
fn plain(definition: String) -> String {
    #[derive(Deserialize)]
    struct ExecutionMember<'d> {
        #[serde(borrow, default)]
        execution: Option<&'d RawValue>,
    }
    let execution = serde_json::from_str::<ExecutionMember<'_>>(&definition);
    let execution = execution.ok().and_then(|definition| definition.execution);
    let execution: Value = execution
        .and_then(|execution| serde_json::from_str(execution.get()).ok())
        .unwrap_or_default();
    if execution["taskSupport"] != "required" {
        return definition;
    }
    let members: Members<'_> = match serde_json::from_str(&definition) {
        Ok(members) => members,
        Err(_) => return definition,
    };
    let members = members.0.iter().filter(|(name, _)| name != "execution");
    let members = members.map(|(name, value)| format!("{}:{value}", Value::from(name.as_str())));
    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
}

/// Returns the SHA-256 of everything that is known of the tool. `trust` names what its `readOnlyHint` counts for. The `Debug`
/// format is unambiguous about where each part ends.
fn digest(
    definition: &CanonicalDefinition,
    name: &ToolName,
    tags: &[String],
    classes: &BTreeMap<String, ColumnClass>,
    trust: &str,
) -> Digest {
    let digest = definition.digest();
    Digest::compute(format!("{digest}{name:?}{tags:?}{classes:?}{trust}").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_tool_that_must_run_as_a_task_is_shown_without_that() {
        let required = r#"{"a":1.10,"execution":{"taskSupport":"required"},"b":{}}"#;
        assert_eq!(plain(required.to_owned()), r#"{"a":1.10,"b":{}}"#);
        for other in [
            r#"{"execution":{"taskSupport":"optional"}}"#,
            r#"{"a":1.10}"#,
        ] {
            assert_eq!(plain(other.to_owned()), other);
        }
    }

    #[test]
    fn the_page_of_a_tool_names_its_source_and_every_other_byte_stays() {
        let definition = r#"{"inputSchema":{"maximum":1.10},"_meta":{ "ui/resourceUri":"ui://p","x":1.0,"ui":{"csp":{"b":1,"a":2},"resourceUri":"ui:\/\/p/m","visibility":["app"]}}}"#;
        let shown = definition
            .replace(r#""ui://p""#, r#""ui://notes/p""#)
            .replace(r#""ui:\/\/p/m""#, r#""ui://notes/p/m""#);
        assert_eq!(
            source_uri::outward_in("notes", definition, source_uri::app_pages(definition)),
            shown
        );
        for other in [
            r#"{"a":1.10}"#,
            r#"{"_meta":{"x":1.10}}"#,
            r#"{"_meta":7}"#,
            r#"{"_meta":{"ui":{"resourceUri":7}}}"#,
        ] {
            assert_eq!(
                source_uri::outward_in("notes", other, source_uri::app_pages(other)),
                other
            );
        }
    }
}
