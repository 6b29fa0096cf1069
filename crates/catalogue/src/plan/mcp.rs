//! `type: mcp`: uses a tool, resource or prompt of an MCP server.

use std::sync::Arc;

use wardgate_domain::RequiredCapabilities;
use wardgate_mcp_client::ToolFingerprint;

use super::{Plan, PlanSource, SentArguments};
use crate::fault::FieldReader;
use crate::scope::Scope;
use crate::source::{McpSettings, OfferedSelection, SourceKind};
use crate::template::Template;

/// A request to an MCP server, with placeholders.
#[derive(Debug, Clone)]
pub struct McpPlan {
    /// The server.
    pub source: PlanSource,
    /// The object of the request.
    pub target: McpTarget,
    /// Whether the source's resources are offered to clients. If so, links to them in results use the URIs that clients
    /// know.
    pub links: bool,
}

/// The object of a request to an MCP server.
#[derive(Debug, Clone)]
pub enum McpTarget {
    /// A tool, requested with `tools/call`.
    Tool {
        /// The server's own name.
        name: String,
        /// The approved definition of the tool, which is called only if the server still offers that definition. `None` for a
        /// tool of `tools.yaml` whose source has no entry in the lock file.
        pin: Option<Arc<ToolFingerprint>>,
        /// The arguments of the call.
        arguments: SentArguments,
        /// The capabilities that a client must have for the server to offer it the tool.
        required: RequiredCapabilities,
    },
    /// A resource, requested with `resources/read`.
    Resource {
        /// The URI of the resource.
        uri: Template,
    },
    /// A prompt, requested with `prompts/get`.
    Prompt {
        /// The server's own name.
        name: String,
        /// The arguments of the prompt.
        arguments: SentArguments,
    },
}

/// An approved tool of an MCP server that a tool of the catalogue calls.
#[derive(Debug, Clone)]
pub struct ApprovedTool {
    /// The approved definition.
    pub pin: Arc<ToolFingerprint>,
    /// The capabilities that a client must have for the server to offer it the tool.
    pub required: RequiredCapabilities,
}

impl McpPlan {
    /// Creates the plan of an imported tool, which calls the tool `name` of the server `source` with the arguments of the
    /// call. The tool is called only if the server still offers it as `pin` describes, and only for clients with the
    /// capabilities `required`.
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

pub(super) fn read_plan(fields: &mut FieldReader<'_>, scope: &mut Scope<'_, '_>) -> Option<Plan> {
    let source_node = fields.take_required("source", "use one of `sources`", scope.faults);
    let source = source_node.and_then(|node| {
        let settings = scope.source(node)?;
        if let SourceKind::Mcp(mcp) = &settings.kind {
            let source = PlanSource::new(&settings.name, mcp.auth());
            return Some((source, mcp.resources != OfferedSelection::None));
        }
        scope.faults.add(
            node.at,
            format!("`{}` is not a source of type mcp", settings.name),
            "specify a source with `type: mcp`",
        );
        None
    });
    let targets = ["tool", "resource", "prompt"].map(|key| (key, fields.take_optional(key)));
    let arguments_node = fields.take_optional("arguments");
    let arguments = SentArguments::from_node(arguments_node, scope);
    let mut named = targets
        .into_iter()
        .filter_map(|(key, node)| Some((key, node?)));
    let target = match (named.next(), named.next()) {
        (Some(("resource", node)), None) => {
            if let Some(node) = arguments_node {
                scope.faults.add(
                    node.at,
                    "a resource does not support `arguments`",
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
                "`execute` must have exactly one of `tool`, `resource` and `prompt`",
                "add for example `tool: read_file`, with the server's own name",
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
