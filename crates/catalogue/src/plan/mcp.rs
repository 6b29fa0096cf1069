//! `type: mcp`: a tool, resource or prompt of an MCP server.

use std::sync::Arc;

use wardgate_domain::RequiredCapabilities;
use wardgate_mcp_client::ToolFingerprint;

use super::{Plan, PlanSource, SentArguments};
use crate::fault::FieldReader;
use crate::scope::Scope;
use crate::source::{McpSettings, OfferedSelection, SourceKind};
use crate::template::Template;

/// What is asked of an MCP server.
#[derive(Debug, Clone)]
pub struct McpPlan {
    /// The server.
    pub source: PlanSource,
    /// What is asked of it.
    pub target: McpTarget,
    /// The source's resources are offered: links to them are those that clients know.
    pub links: bool,
}

/// What is asked of the server.
#[derive(Debug, Clone)]
pub enum McpTarget {
    /// `tools/call`.
    Tool {
        /// The server's name for it.
        name: String,
        /// The approved definition of an imported tool. It is called only where the server still offers it so.
        pin: Option<Arc<ToolFingerprint>>,
        /// What it is called with.
        arguments: SentArguments,
        /// The clients that the server has an imported tool for.
        required: RequiredCapabilities,
    },
    /// `resources/read`.
    Resource {
        /// Its URI.
        uri: Template,
    },
    /// `prompts/get`.
    Prompt {
        /// The server's name for it.
        name: String,
        /// What it is got with.
        arguments: SentArguments,
    },
}

impl McpPlan {
    /// Calls the tool `name` of the server `source` with the arguments of the call, only where the server still offers
    /// it as `pin` says, and for a client with the capabilities `required`.
    pub(crate) fn of_imported(
        source: &str,
        settings: &McpSettings,
        name: &str,
        pin: &Arc<ToolFingerprint>,
        required: &RequiredCapabilities,
    ) -> Self {
        Self {
            source: PlanSource::new(source, settings.auth()),
            links: settings.resources != OfferedSelection::None,
            target: McpTarget::Tool {
                name: name.to_owned(),
                pin: Some(Arc::clone(pin)),
                arguments: SentArguments::OfCall {
                    derived: Vec::new(),
                },
                required: required.clone(),
            },
        }
    }
}

pub(super) fn read(fields: &mut FieldReader<'_>, scope: &mut Scope<'_, '_>) -> Option<Plan> {
    let source_node = fields.required("source", "name one of `sources`", scope.faults);
    let source = source_node.and_then(|node| {
        let settings = scope.source(node)?;
        if let SourceKind::Mcp(mcp) = &settings.kind {
            let source = PlanSource::new(&settings.name, mcp.auth());
            return Some((source, mcp.resources != OfferedSelection::None));
        }
        scope.faults.add(
            node.at,
            format!("`{}` is no source of type mcp", settings.name),
            "name one with `type: mcp`",
        );
        None
    });
    let targets = ["tool", "resource", "prompt"].map(|key| (key, fields.optional(key)));
    let arguments_node = fields.optional("arguments");
    let arguments = SentArguments::read(arguments_node, scope);
    let mut named = targets
        .into_iter()
        .filter_map(|(key, node)| Some((key, node?)));
    let target = match (named.next(), named.next()) {
        (Some(("resource", node)), None) => {
            if let Some(node) = arguments_node {
                scope.faults.add(
                    node.at,
                    "a resource takes no `arguments`",
                    "put placeholders into its URI",
                );
            }
            let uri = scope.template(node, "resource");
            uri.map(|uri| McpTarget::Resource { uri })
        }
        (Some((key, node)), None) => scope.faults.text(node, key).map(|name| {
            let name = name.to_owned();
            match key {
                "tool" => McpTarget::Tool {
                    name,
                    pin: None,
                    arguments,
                    required: RequiredCapabilities::default(),
                },
                _ => McpTarget::Prompt { name, arguments },
            }
        }),
        (_, second) => {
            let at = second.map(|(_, node)| node).or(source_node)?.at;
            scope.faults.add(
                at,
                "`execute` names not exactly one of `tool`, `resource` and `prompt`",
                "add for example `tool: read_file`, the server's own name for it",
            );
            None
        }
    };
    let (source, links) = source?;
    Some(Plan::Mcp(McpPlan {
        source,
        target: target?,
        links,
    }))
}
