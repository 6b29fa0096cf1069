//! A catalogue in force: its tools with their sources, and the permits seen under it.

mod compiled_permits;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Map, Value};
use wardgate_domain::{
    Ambient, Digest, OfferKind, PermitVerifier, RequiredCapabilities, SwitchKind, SwitchTarget,
    ToolSwitches,
};
use wardgate_json::integral;
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_redact::PseudonymKey;
use wardgate_rpc::client::MemoryClient;

use crate::content::{Contents, FollowedContent};
use crate::execution_log::ExecutionLog;
use crate::executor::{Caps, Executor, RetentionLimit, Sources};
use crate::interaction::SuspendedExchanges;
use crate::platform::{KnownTool, Overview, Platform};
use crate::replicas::Replicas;
use crate::store::Store;
use crate::switchboard::Switches;
use crate::{Config, Error};
use wardgate_catalogue::{Catalogue, MaxRows, Offers, Tool, Toolset};
use wardgate_egress::PerUser;
use wardgate_mcp_client::Upstream;
use wardgate_resilience::{Guard, RateLimiter, ResultCache, SourceGuard, ToolLimits};

use compiled_permits::CompiledPermits;

/// A tool and all that one call of it needs.
pub(crate) struct RunnableTool {
    pub(crate) tool: Arc<Tool>,
    /// Names of the toolsets it is in.
    toolsets: Vec<String>,
    pub(crate) executor: Arc<dyn Executor>,
    pub(crate) time_limit: Duration,
    pub(crate) max_rows: usize,
    pub(crate) max_result_bytes: usize,
    /// What is kept of a result that is too large for an answer.
    beyond: Option<RetentionLimit>,
    limits: ToolLimits,
    source: Option<Arc<SourceGuard>>,
    /// Somebody was told of columns without a class since this catalogue is in force.
    warned: AtomicBool,
}

impl RunnableTool {
    /// How much one result may be.
    pub(crate) fn caps(&self) -> Caps {
        Caps {
            rows: self.max_rows,
            bytes: self.max_result_bytes,
            beyond: self.beyond,
            stops: self.tool.facts().read_only,
        }
    }

    /// How many rows the caller asks for, where an argument says so. Less than none is none.
    pub(crate) fn page(&self, arguments: &Map<String, Value>) -> Option<usize> {
        match &self.tool.result().max_rows {
            Some(MaxRows::Argument { name, .. }) => {
                let rows = arguments.get(name).and_then(integral)?;
                Some(usize::try_from(rows).unwrap_or(0))
            }
            _ => None,
        }
    }

    /// The switches that concern it.
    pub(crate) fn switches(&self, all: &Switches) -> ToolSwitches {
        let toolsets = self.toolsets.iter().map(String::as_str);
        all.of_tool(
            self.tool.facts().name.as_str(),
            toolsets,
            self.tool.source(),
        )
    }

    /// What its calls pass on their way to the source.
    pub(crate) fn guard(&self) -> Guard<'_> {
        Guard {
            limits: Some(&self.limits),
            source: self.source.as_deref(),
        }
    }

    /// Whether to warn of columns without a class: at the first result that has some.
    pub(crate) fn warns_of_unclassified_columns(&self) -> bool {
        !self.warned.swap(true, Ordering::Relaxed)
    }
}

/// What is in force until the file changes. Permits are remembered here, so that none outlives the
/// definitions it was compiled for.
pub(crate) struct LoadedCatalogue {
    tools: HashMap<String, Arc<RunnableTool>>,
    definitions: HashMap<String, Arc<Tool>>,
    sources: Sources,
    list: pb::ListToolsResponse,
    offers: BTreeMap<String, Offers>,
    version: Digest,
    shown: Digest,
    contents: Contents,
    compiled: CompiledPermits,
    upstreams: BTreeMap<String, Arc<Upstream>>,
}

/// What outlives every catalogue.
#[derive(Clone)]
pub(crate) struct SharedState {
    pub(crate) ambient: Ambient,
    pub(crate) platform: Arc<Platform>,
    pub(crate) rates: Arc<RateLimiter>,
    pub(crate) results: Arc<ResultCache<pb::ToolResult>>,
    pub(crate) store: Store,
    /// Prompts and resources of MCP servers.
    pub(crate) following: Arc<FollowedContent>,
    /// How long results that are too large for an answer are kept.
    pub(crate) kept_for: Duration,
    /// Calls that wait for their clients.
    pub(crate) parking: Arc<SuspendedExchanges>,
    /// Where those are that wait on another replica.
    pub(crate) replicas: Arc<Replicas>,
    /// Records what is run; none where the callers are in this process, whose gateway records it.
    pub(crate) executions: Option<ExecutionLog>,
    /// Where tools about conversations ask; none where there are no conversations.
    pub(crate) memory: Option<MemoryClient>,
}

impl SharedState {
    pub(crate) fn new(config: &Config, store: Store, ambient: Ambient) -> Self {
        let bytes = |result: &pb::ToolResult| {
            let others = result.other_members_json.len() + result.meta_json.len();
            result.content_json.len() + result.structured_content_json.len() + others
        };
        let results = ResultCache::new(config.result_cache_bytes, bytes, ambient.clone());
        Self {
            parking: Arc::new(SuspendedExchanges::new(
                config.advertise.clone(),
                ambient.clone(),
            )),
            replicas: Arc::new(Replicas::new(config.advertise.clone(), None)),
            ambient,
            platform: Arc::new(Platform::new()),
            rates: Arc::new(RateLimiter::default()),
            results: Arc::new(results),
            following: Arc::new(FollowedContent::new()),
            store,
            kept_for: config.kept_for,
            executions: None,
            memory: None,
        }
    }
}

/// What every catalogue is put in force with.
#[derive(Clone)]
pub(crate) struct Keys {
    pub(crate) permits: PermitVerifier,
    pub(crate) pseudonyms: Arc<PseudonymKey>,
}

impl LoadedCatalogue {
    /// Sources that did not change are taken over from `previous` with their connections.
    pub(crate) fn new(
        catalogue: Catalogue,
        config: &Config,
        keys: &Keys,
        shared: &SharedState,
        previous: Option<&Self>,
    ) -> Result<Self, Error> {
        let (imported, missing) = (catalogue.imported().to_vec(), catalogue.missing().to_vec());
        let instructions = catalogue.instructions().clone();
        let (tools, toolsets, settings, version) = catalogue.into_parts();
        let store = Some(shared.store.clone());
        let mut sources = Sources::new(&shared.platform, shared.memory.clone(), store);
        let open = previous.map(|previous| &previous.sources);
        let mut offers = BTreeMap::new();
        for settings in &settings {
            if let Some(of_source) = Offers::of(settings, &tools) {
                offers.insert(of_source.source.clone(), of_source);
            }
            let limit = longest(&tools, &settings.name, config.time_limit);
            sources.open(settings.clone(), limit, &shared.ambient, open)?;
        }
        let (following, limit) = (&shared.following, config.time_limit);
        let contents = Contents::of(&settings, &toolsets, &sources, following, limit)?;
        let of_contents = contents.digest();
        let offered: Vec<_> = offers
            .values()
            .map(|of| offered(of, &sources, &imported, instructions.get(&of.source)))
            .collect();
        let both = |one: &Digest, other: &Digest| {
            Digest::of_parts([one, other].map(|it| it.as_bytes().as_slice()))
        };
        let shown = both(&both(&version, &of_contents), &of_required(&tools));
        let version = both(&shown, &of_ttls(&offered));
        let toolsets_of = |tool: &Tool| -> Vec<String> {
            let own = toolsets.iter().filter(|it| it.holds(tool.facts()));
            own.map(|toolset| toolset.name.clone()).collect()
        };
        shared.platform.now_in_force(Overview {
            tools: tools.iter().map(known).collect(),
            toolsets: toolsets.clone(),
        });
        let list = pb::ListToolsResponse {
            tools: tools
                .iter()
                .map(|tool| wire(tool, toolsets_of(tool), config))
                .collect(),
            toolsets: toolsets.iter().cloned().map(toolset_message).collect(),
            catalogue_version: version.to_wire(),
            shown_version: shown.to_wire(),
            missing_upstreams: missing,
            sources: offered,
        };
        let upstreams = imported
            .into_iter()
            .map(|name| Ok((name.clone(), sources.mcp(&name)?)))
            .collect::<Result<_, Error>>()?;
        // Only where some tool reads them.
        let beyond = tools.iter().any(|tool| tool.plan().reads_kept_results());
        let beyond = beyond.then_some(RetentionLimit {
            rows: config.kept_rows,
            bytes: config.kept_bytes,
        });
        let definitions: HashMap<_, _> = tools
            .into_iter()
            .map(|tool| (tool.facts().name.to_string(), Arc::new(tool)))
            .collect();
        let runnable = |(name, tool): (&String, &Arc<Tool>)| {
            let runnable = RunnableTool {
                toolsets: toolsets_of(tool),
                executor: crate::executor::open(tool.plan(), &sources)?,
                time_limit: tool.time_limit().unwrap_or(config.time_limit),
                max_rows: match tool.result().max_rows {
                    Some(MaxRows::Fixed(rows)) => rows,
                    _ => config.max_rows,
                },
                max_result_bytes: config.max_result_bytes,
                beyond: beyond.filter(|_| tool.keeps_large_results()),
                limits: ToolLimits::new(
                    tool.facts().name.to_string(),
                    tool.limits(),
                    Arc::clone(&shared.rates),
                ),
                source: tool.source().and_then(|name| sources.guard(name)).cloned(),
                warned: AtomicBool::new(false),
                tool: Arc::clone(tool),
            };
            Ok((name.clone(), Arc::new(runnable)))
        };
        let tools = definitions
            .iter()
            .map(runnable)
            .collect::<Result<_, Error>>()?;
        Ok(Self {
            tools,
            definitions,
            sources,
            list,
            version,
            shown,
            offers,
            contents,
            compiled: CompiledPermits::new(keys, config.pushdown),
            upstreams,
        })
    }

    /// By canonical name only.
    pub(crate) fn tool(&self, name: &str) -> Option<&Arc<RunnableTool>> {
        self.tools.get(name)
    }

    /// The tools by canonical name.
    pub(crate) fn definitions(&self) -> &HashMap<String, Arc<Tool>> {
        &self.definitions
    }

    /// What the source of this name offers besides tools.
    pub(crate) fn offers(&self, source: &str) -> Option<&Offers> {
        self.offers.get(source)
    }

    /// Prompts and resources.
    pub(crate) fn contents(&self) -> &Contents {
        &self.contents
    }

    /// What callers granted the source of that name to do in their name, where it is one of those.
    pub(crate) fn per_user(&self, source: &str) -> Option<&Arc<PerUser>> {
        self.sources.per_user(source)
    }

    /// What the MCP server of that name declared when it was connected to.
    pub(crate) fn capabilities(&self, source: &str) -> Option<pb::ServerCapabilities> {
        let declared = self.sources.mcp(source).ok()?.shown().borrow().declares?;
        Some(pb::ServerCapabilities {
            logging: declared.logging,
            completions: declared.completions,
            resource_subscriptions: declared.resource_subscriptions,
        })
    }

    /// Whether calls of this tool may become tasks.
    pub(crate) fn may_be_task(&self, tool: &RunnableTool) -> bool {
        let source = tool.tool.source().filter(|_| tool.tool.plan().talks());
        let server = source.and_then(|source| self.sources.mcp(source).ok());
        server.is_some_and(|server| server.shown().borrow().has_tasks)
    }

    /// The MCP servers whose tools are imported, by name of their source.
    pub(crate) fn upstreams(&self) -> &BTreeMap<String, Arc<Upstream>> {
        &self.upstreams
    }

    /// Every MCP server, whether its tools are imported or configured one by one.
    pub(crate) fn servers(&self) -> Vec<Arc<Upstream>> {
        self.sources.servers().cloned().collect()
    }

    /// Whether there is anything a switch of this target could concern.
    pub(crate) fn has(&self, target: &SwitchTarget) -> bool {
        let name = target.name.as_str();
        match target.kind {
            SwitchKind::Tool => self.tools.contains_key(name),
            SwitchKind::Toolset => self
                .list
                .toolsets
                .iter()
                .any(|toolset| toolset.name == name),
            SwitchKind::Upstream => self.sources.has(name),
        }
    }

    pub(crate) fn list(&self) -> &pb::ListToolsResponse {
        &self.list
    }

    /// Differs where anything does that others learn of this.
    pub(crate) fn version(&self) -> Digest {
        self.version
    }

    /// Differs where anything does that callers are shown.
    pub(crate) fn shown(&self) -> Digest {
        self.shown
    }

    pub(crate) fn compiled(&self) -> &CompiledPermits {
        &self.compiled
    }
}

/// What a source offers besides tools, with what its server says of itself and of its lists. Where its tools are not
/// imported they are configured one by one, and the server's own list of them is of no concern.
fn offered(
    of: &Offers,
    sources: &Sources,
    imported: &[String],
    said: Option<&String>,
) -> pb::Source {
    let server = sources.mcp(&of.source).ok();
    let ttl = |kind| server.as_ref()?.ttl(kind)?.try_into().ok();
    let tools = of.tools.iter();
    pb::Source {
        name: of.source.clone(),
        prefix: of.prefix.clone(),
        facts: of.facts.iter().map(Into::into).collect(),
        tools: tools
            .map(|(own, name)| (own.clone(), name.to_string()))
            .collect(),
        needs_caller_token: of.exchanges_token,
        // They change more often than the catalogue.
        switches: Vec::new(),
        // It is known once the server was connected to.
        capabilities: None,
        instructions: said.cloned().unwrap_or_default(),
        tools_ttl: ttl(OfferKind::Tool).filter(|_| imported.contains(&of.source)),
        prompts_ttl: ttl(OfferKind::Prompts),
        resources_ttl: ttl(OfferKind::Resources),
    }
}

/// The longest that any tool of the source may take.
fn longest(tools: &[Tool], source: &str, default: Duration) -> Duration {
    tools
        .iter()
        .filter(|tool| tool.source() == Some(source))
        .map(|tool| tool.time_limit().unwrap_or(default))
        .max()
        .unwrap_or(default)
}

/// Of what clients must declare to be shown each tool, which is no part of the tool's definition.
fn of_required(tools: &[Tool]) -> Digest {
    let required = tools.iter().map(Tool::required_capabilities);
    let required: Vec<_> = required.map(RequiredCapabilities::to_wire).collect();
    Digest::of(format!("{required:?}").as_bytes())
}

/// How long lists of sources may be kept.
fn of_ttls(offered: &[pb::Source]) -> Digest {
    let ttls: Vec<_> = offered
        .iter()
        .map(|of| (&of.tools_ttl, &of.prompts_ttl, &of.resources_ttl))
        .collect();
    Digest::of(format!("{ttls:?}").as_bytes())
}

fn known(tool: &Tool) -> KnownTool {
    KnownTool {
        facts: tool.facts().clone(),
        source: tool.source().map(str::to_owned),
    }
}

fn wire(tool: &Tool, toolsets: Vec<String>, config: &Config) -> pb::Tool {
    let time_limit = tool.time_limit().unwrap_or(config.time_limit);
    let (needed, alternatives) = tool.required_capabilities().to_wire();
    pb::Tool {
        facts: Some(tool.facts().into()),
        aliases: tool.aliases().iter().map(ToString::to_string).collect(),
        definition_json: tool.definition_json().clone(),
        time_limit: time_limit.try_into().ok(),
        toolsets,
        needs_caller_token: tool.plan().needs_caller_token(),
        // These change more often than the catalogue.
        switches: Vec::new(),
        may_be_task: false,
        required_capabilities_json: needed.into(),
        alternative_capabilities_json: alternatives.into_iter().map(Bytes::from).collect(),
    }
}

fn toolset_message(toolset: Toolset) -> pb::Toolset {
    pb::Toolset {
        name: toolset.name,
        description: toolset.description,
    }
}
