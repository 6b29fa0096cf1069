//! The catalogue, as the tool-runner reports it.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use wardgate_domain::{
    InvalidMessage, OfferKind, RequiredCapabilities, ToolFacts, ToolName, ToolSwitches,
};
use wardgate_proto::toolrunner::v1 as pb;

/// All configured tools.
#[derive(Debug, Clone, Default)]
pub struct Catalogue {
    /// The tools, in configured order.
    pub tools: Vec<CatalogueTool>,
    /// A version that changes with everything in the catalogue that callers can see.
    pub shown_version: Bytes,
    /// The MCP servers whose tools are listed, but which do not respond at the moment.
    pub missing_upstreams: Vec<String>,
    /// The sources that offer more than these tools.
    pub sources: Vec<CatalogueSource>,
}

/// A source that offers resources, prompts or its own route.
#[derive(Debug, Clone)]
pub struct CatalogueSource {
    /// The name of the source.
    pub name: String,
    /// The prefix of the names of its tools and prompts.
    pub prefix: String,
    /// The facts for policy decisions, by kind.
    pub facts: BTreeMap<OfferKind, ToolFacts>,
    /// The canonical names of its tools, by the names that the source uses.
    pub tools: BTreeMap<String, ToolName>,
    /// The switches that enable or disable the source for callers.
    pub switches: ToolSwitches,
    /// The approved instructions of an MCP server, or empty if there are none.
    pub instructions: String,
    /// Whether requests to the source must carry the caller's bearer token.
    pub needs_caller_token: bool,
    /// The capabilities that an MCP server declared, or `None` if they are unknown.
    pub capabilities: Option<ServerCapabilities>,
    /// The times for which lists of an MCP server may be cached, by kind, as far as the server specifies them.
    pub ttls: BTreeMap<OfferKind, Duration>,
}

/// The MCP `ServerCapabilities` of a server that do not follow from its lists.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServerCapabilities {
    /// Whether the server sends log messages.
    pub logging: bool,
    /// Whether the server completes arguments.
    pub completions: bool,
    /// Whether the server notifies about changes of single resources.
    pub resource_subscriptions: bool,
}

/// A configured tool.
#[derive(Debug, Clone)]
pub struct CatalogueTool {
    /// The facts for policy decisions.
    pub facts: ToolFacts,
    /// Alternative names of the tool.
    pub aliases: Vec<String>,
    /// The MCP definition without `name`, a JSON object.
    pub definition_json: String,
    /// Maximum duration of a call.
    pub time_limit: Duration,
    /// The names of the toolsets that contain the tool.
    pub toolsets: Vec<String>,
    /// Whether a call must carry the caller's bearer token.
    pub needs_caller_token: bool,
    /// The switches that enable or disable the tool for callers.
    pub switches: ToolSwitches,
    /// Whether a call may become a task, for a client that supports tasks.
    pub may_be_task: bool,
    /// The capabilities that a client must declare to be offered the tool.
    pub required_capabilities: RequiredCapabilities,
}

impl TryFrom<pb::Tool> for CatalogueTool {
    type Error = InvalidMessage;

    fn try_from(tool: pb::Tool) -> Result<Self, Self::Error> {
        let missing = |field| InvalidMessage::field(field, "is missing");
        let time_limit = tool.time_limit.ok_or_else(|| missing("tool.time_limit"))?;
        Ok(Self {
            facts: tool
                .facts
                .ok_or_else(|| missing("tool.facts"))?
                .try_into()?,
            aliases: tool.aliases,
            definition_json: String::from_utf8(tool.definition_json.into())
                .map_err(|_| InvalidMessage::field("tool.definition_json", "is not UTF-8"))?,
            time_limit: Duration::try_from(time_limit)
                .map_err(|_| InvalidMessage::field("tool.time_limit", "is negative"))?,
            toolsets: tool.toolsets,
            needs_caller_token: tool.needs_caller_token,
            switches: tool.switches.try_into()?,
            may_be_task: tool.may_be_task,
            required_capabilities: RequiredCapabilities::from_wire(
                &tool.required_capabilities_json,
                tool.alternative_capabilities_json.iter().map(|it| &**it),
            )
            .ok_or_else(|| {
                let field = "tool.required_capabilities_json";
                InvalidMessage::field(field, "is not a JSON object of capabilities")
            })?,
        })
    }
}

impl TryFrom<pb::Source> for CatalogueSource {
    type Error = InvalidMessage;

    fn try_from(source: pb::Source) -> Result<Self, Self::Error> {
        let ttls = [
            (OfferKind::Tool, source.tools_ttl),
            (OfferKind::Prompts, source.prompts_ttl),
            (OfferKind::Resources, source.resources_ttl),
        ];
        let ttls = ttls
            .into_iter()
            .filter_map(|(kind, ttl)| Some((kind, ttl?.try_into().ok()?)))
            .collect();
        let mut facts = BTreeMap::new();
        for offered in source.facts {
            let offered = ToolFacts::try_from(offered)?;
            facts.insert(offered.kind, offered);
        }
        let canonical = |(own, name): (String, String)| match name.parse() {
            Ok(name) => Ok((own, name)),
            Err(_) => Err(InvalidMessage::field(
                "source.tools",
                "is not a name of a tool",
            )),
        };
        Ok(Self {
            ttls,
            instructions: source.instructions,
            needs_caller_token: source.needs_caller_token,
            capabilities: source.capabilities.map(|declared| ServerCapabilities {
                logging: declared.logging,
                completions: declared.completions,
                resource_subscriptions: declared.resource_subscriptions,
            }),
            name: source.name,
            prefix: source.prefix,
            facts,
            tools: source
                .tools
                .into_iter()
                .map(canonical)
                .collect::<Result<_, _>>()?,
            switches: source.switches.try_into()?,
        })
    }
}

impl From<ServerCapabilities> for pb::ServerCapabilities {
    fn from(declared: ServerCapabilities) -> Self {
        Self {
            logging: declared.logging,
            completions: declared.completions,
            resource_subscriptions: declared.resource_subscriptions,
        }
    }
}
