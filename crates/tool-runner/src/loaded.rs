//! A catalogue in force, with its tools, their sources, and the permits used with it.

mod compiled_permits;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Map, Value};
use wardgate_domain::{
    Ambient, Digest, OfferKind, PermitVerifier, RequiredCapabilities, SwitchKind, SwitchTarget,
    ToolSwitches,
};
use wardgate_json::integral;
use wardgate_redact::{ConfiguredForms, PseudonymKey};
use wardgate_rpc::client::{MemoryClient, ServerCapabilities, ToolResult};

use crate::content::{Contents, FollowedContent};
use crate::execution_log::ExecutionLog;
use crate::executor::{Caps, Executor, RetentionLimit, Sources};
use crate::interaction::SuspendedExchanges;
use crate::platform::{KnownTool, Overview, Platform};
use crate::replicas::Replicas;
use crate::store::ToolRunnerStore;
use crate::switchboard::Switches;
use crate::{Config, Error};
use wardgate_catalogue::{AttachedFile, Catalogue, MaxRows, Offers, Tool, Toolset};
use wardgate_egress::UserGrants;
use wardgate_mcp_client::Upstream;
use wardgate_resilience::{Guard, ResultCache, SharedRateLimiter, SourceGuard, ToolLimits};

use compiled_permits::CompiledPermits;

/// A tool with everything that a call of it needs.
pub(crate) struct RunnableTool {
    pub(crate) tool: Arc<Tool>,
    /// The names of the toolsets that contain the tool.
    pub(crate) toolsets: Vec<String>,
    pub(crate) executor: Arc<dyn Executor>,
    pub(crate) time_limit: Duration,
    pub(crate) max_rows: usize,
    pub(crate) max_result_bytes: usize,
    /// The limits on what is stored of a result that is too large for a response, or `None` if nothing is stored.
    overflow: Option<RetentionLimit>,
    limits: ToolLimits,
    source: Option<Arc<SourceGuard>>,
    /// Whether a warning about columns without a class was logged since this catalogue is in force.
    warned: AtomicBool,
}

impl RunnableTool {
    /// Returns the limits on the size of one result.
    pub(crate) fn caps(&self) -> Caps {
        Caps {
            rows: self.max_rows,
            bytes: self.max_result_bytes,
            overflow: self.overflow,
            stops: self.tool.facts().read_only,
        }
    }

    /// Returns the number of rows that the caller requests, if an argument states it. A negative number counts as zero.
    pub(crate) fn page(&self, arguments: &Map<String, Value>) -> Option<usize> {
        match &self.tool.result().max_rows {
            Some(MaxRows::Argument { name, .. }) => {
                let rows = arguments.get(name).and_then(integral)?;
                Some(usize::try_from(rows).unwrap_or(0))
            }
            _ => None,
        }
    }

    /// Returns the switches that apply to the tool.
    pub(crate) fn switches(&self, all: &Switches) -> ToolSwitches {
        let toolsets = self.toolsets.iter().map(String::as_str);
        all.of_tool(
            self.tool.facts().name.as_str(),
            toolsets,
            self.tool.source(),
        )
    }

    /// Returns the guard with the limits of the tool and the circuit breaker of its source.
    pub(crate) fn guard(&self) -> Guard<'_> {
        Guard {
            limits: Some(&self.limits),
            source: self.source.as_deref(),
        }
    }

    /// Returns whether to warn about columns without a class, which is true only for the first call of this method.
    pub(crate) fn warns_of_unclassified_columns(&self) -> bool {
        !self.warned.swap(true, Ordering::Relaxed)
    }
}

/// A catalogue that is in force until its files change. Compiled permits are cached here, so that none outlives the
/// definitions that it was compiled for.
pub(crate) struct LoadedCatalogue {
    tools: HashMap<String, Arc<RunnableTool>>,
    /// The same tools in the configured order.
    listed: Vec<Arc<RunnableTool>>,
    definitions: HashMap<String, Arc<Tool>>,
    toolsets: Vec<Toolset>,
    sources: Sources,
    offers: BTreeMap<String, SourceOffers>,
    /// The MCP servers whose tools are listed but that do not answer.
    missing: Vec<String>,
    version: Digest,
    shown: Digest,
    contents: Contents,
    /// The configured forms of redacted values, by class.
    pub(crate) forms: Arc<ConfiguredForms>,
    secret_files: Vec<AttachedFile>,
    compiled: CompiledPermits,
    upstreams: BTreeMap<String, Arc<Upstream>>,
}

/// The offers of a source besides tools, with the instructions of its server and the lifetimes of its lists.
pub(crate) struct SourceOffers {
    pub(crate) offers: Offers,
    /// The approved instructions of an MCP server. Empty if there are none.
    pub(crate) instructions: String,
    /// The time for which the server allows its lists to be cached, if the server states one.
    ttls: BTreeMap<OfferKind, Duration>,
}

impl SourceOffers {
    /// Collects the offers of a source. If the tools of a server are not imported, they are configured individually,
    /// and the lifetime of the server's own list is not used.
    fn new(
        offers: Offers,
        sources: &Sources,
        is_imported: bool,
        instructions: Option<&String>,
    ) -> Self {
        let server = sources.mcp(&offers.source).ok();
        let kinds = [OfferKind::Tool, OfferKind::Prompts, OfferKind::Resources];
        let kinds = kinds.into_iter();
        let ttls = kinds
            .filter(|kind| is_imported || *kind != OfferKind::Tool)
            .filter_map(|kind| Some((kind, server.as_ref()?.ttl(kind)?)))
            .collect();
        Self {
            offers,
            instructions: instructions.cloned().unwrap_or_default(),
            ttls,
        }
    }

    /// Returns the time for which the server allows its list of this kind to be cached.
    pub(crate) fn ttl(&self, kind: OfferKind) -> Option<Duration> {
        self.ttls.get(&kind).copied()
    }
}

/// The state that outlives every catalogue.
#[derive(Clone)]
pub(crate) struct SharedState {
    pub(crate) ambient: Ambient,
    pub(crate) platform: Arc<Platform>,
    pub(crate) rates: Arc<SharedRateLimiter>,
    pub(crate) results: Arc<ResultCache<ToolResult>>,
    pub(crate) store: ToolRunnerStore,
    /// The prompts and resources of MCP servers.
    pub(crate) following: Arc<FollowedContent>,
    /// The time for which results that are too large for a response are stored.
    pub(crate) kept_for: Duration,
    /// The exchanges that wait for their clients.
    pub(crate) suspended_exchanges: Arc<SuspendedExchanges>,
    /// The other replicas, which may hold exchanges that wait for their clients.
    pub(crate) replicas: Arc<Replicas>,
    /// The log of executions, or `None` if the callers are in this process, because its gateway records the calls.
    pub(crate) executions: Option<ExecutionLog>,
    /// The memory service that tools about conversations query, or `None` if there is none.
    pub(crate) memory: Option<MemoryClient>,
}

impl SharedState {
    pub(crate) fn new(config: &Config, store: ToolRunnerStore, ambient: Ambient) -> Self {
        let bytes = |result: &ToolResult| {
            let others = result.other_members.len() + result.meta.len();
            result.content.len() + result.structured_content.len() + others
        };
        let results = ResultCache::new(config.result_cache_bytes, bytes, ambient.clone());
        let rates = SharedRateLimiter::new(store.shared_rates(), &ambient);
        Self {
            suspended_exchanges: Arc::new(SuspendedExchanges::new(
                config.advertise.clone(),
                ambient.clone(),
            )),
            replicas: Arc::new(Replicas::new(config.advertise.clone(), None)),
            ambient,
            platform: Arc::new(Platform::new()),
            rates: Arc::new(rates),
            results: Arc::new(results),
            following: Arc::new(FollowedContent::new()),
            store,
            kept_for: config.kept_for,
            executions: None,
            memory: None,
        }
    }
}

/// The keys that every catalogue uses.
#[derive(Clone)]
pub(crate) struct Keys {
    pub(crate) permits: PermitVerifier,
    pub(crate) pseudonyms: Arc<PseudonymKey>,
}

impl LoadedCatalogue {
    /// Loads a catalogue. Sources that did not change are taken over from `previous` together with their connections.
    pub(crate) fn new(
        catalogue: Catalogue,
        config: &Config,
        keys: &Keys,
        shared: &SharedState,
        previous: Option<&Self>,
    ) -> Result<Self, Error> {
        let imported = catalogue.imported_sources().to_vec();
        let followed = catalogue.followed_sources().to_vec();
        let missing = catalogue.missing_sources().to_vec();
        let instructions = catalogue.instructions().clone();
        let secret_files = catalogue.secret_files().to_vec();
        let forms = Arc::clone(catalogue.forms());
        let (tools, toolsets, settings, version) = catalogue.into_parts();
        let store = Some(shared.store.clone());
        let mut sources = Sources::new(&shared.platform, shared.memory.clone(), store);
        let open = previous.map(|previous| &previous.sources);
        for settings in &settings {
            let limit = longest(&tools, &settings.name, config.time_limit);
            sources.open(settings.clone(), limit, &shared.ambient, open)?;
        }
        let (following, limit) = (&shared.following, config.time_limit);
        let contents = Contents::new(&settings, &toolsets, &sources, following, limit)?;
        let of_contents = contents.digest();
        let offers = settings
            .iter()
            .filter_map(|it| Offers::from_source(it, &tools));
        let offers: BTreeMap<_, _> = offers
            .map(|offers| {
                let instructions = instructions.get(&offers.source);
                let name = offers.source.clone();
                let is_imported = imported.contains(&name);
                let of = SourceOffers::new(offers, &sources, is_imported, instructions);
                (name, of)
            })
            .collect();
        let both = |one: &Digest, other: &Digest| {
            Digest::of_parts([one, other].map(|it| it.as_bytes().as_slice()))
        };
        let shown = both(&both(&version, &of_contents), &of_required(&tools));
        let version = both(&shown, &of_ttls(offers.values()));
        let toolsets_of = |tool: &Tool| -> Vec<String> {
            let own = toolsets.iter().filter(|it| it.holds(tool.facts()));
            own.map(|toolset| toolset.name.clone()).collect()
        };
        shared.platform.now_in_force(Overview {
            tools: tools.iter().map(known_tool).collect(),
            toolsets: toolsets.clone(),
        });
        let upstreams = followed
            .into_iter()
            .map(|name| Ok((name.clone(), sources.mcp(&name)?)))
            .collect::<Result<_, Error>>()?;
        // Large results are stored only if some tool reads them.
        let overflow = tools.iter().any(|tool| tool.plan().reads_kept_results());
        let overflow = overflow.then_some(RetentionLimit {
            rows: config.kept_rows,
            bytes: config.kept_bytes,
        });
        let runnable = |tool: Tool| {
            let tool = Arc::new(tool);
            Ok(Arc::new(RunnableTool {
                toolsets: toolsets_of(&tool),
                executor: crate::executor::open(tool.plan(), &sources)?,
                time_limit: tool.time_limit().unwrap_or(config.time_limit),
                max_rows: match tool.result().max_rows {
                    Some(MaxRows::Fixed(rows)) => rows,
                    _ => config.max_rows,
                },
                max_result_bytes: config.max_result_bytes,
                overflow: overflow.filter(|_| tool.keeps_large_results()),
                limits: ToolLimits::new(
                    tool.facts().name.to_string(),
                    tool.limits(),
                    Arc::clone(&shared.rates),
                ),
                source: tool.source().and_then(|name| sources.guard(name)).cloned(),
                warned: AtomicBool::new(false),
                tool,
            }))
        };
        let listed = tools.into_iter().map(runnable);
        let listed = listed.collect::<Result<Vec<_>, Error>>()?;
        let named = || {
            let tools = listed.iter();
            tools.map(|it| (it.tool.facts().name.to_string(), it))
        };
        Ok(Self {
            tools: named().map(|(name, it)| (name, Arc::clone(it))).collect(),
            definitions: named()
                .map(|(name, it)| (name, Arc::clone(&it.tool)))
                .collect(),
            listed,
            toolsets,
            sources,
            missing,
            version,
            shown,
            offers,
            contents,
            forms,
            secret_files,
            compiled: CompiledPermits::new(keys, config.pushdown),
            upstreams,
        })
    }

    /// Returns the tool with the given canonical name. Aliases are not looked up.
    pub(crate) fn tool(&self, name: &str) -> Option<&Arc<RunnableTool>> {
        self.tools.get(name)
    }

    /// Returns the tools by canonical name.
    pub(crate) fn definitions(&self) -> &HashMap<String, Arc<Tool>> {
        &self.definitions
    }

    /// Returns the offers of the named source besides tools.
    pub(crate) fn offers(&self, source: &str) -> Option<&Offers> {
        self.offers.get(source).map(|of| &of.offers)
    }

    /// Returns the offers of every source, sorted by name.
    pub(crate) fn source_offers(&self) -> impl Iterator<Item = &SourceOffers> {
        self.offers.values()
    }

    /// Returns the tools in the configured order.
    pub(crate) fn listed_tools(&self) -> &[Arc<RunnableTool>] {
        &self.listed
    }

    pub(crate) fn toolsets(&self) -> &[Toolset] {
        &self.toolsets
    }

    /// Returns the names of the MCP servers whose tools are listed but that do not answer.
    pub(crate) fn missing_upstreams(&self) -> &[String] {
        &self.missing
    }

    /// Returns the prompts and resources.
    pub(crate) fn contents(&self) -> &Contents {
        &self.contents
    }

    /// Returns the files whose changes make a new catalogue, in addition to the catalogue itself.
    pub(crate) fn attached_files(&self) -> Vec<AttachedFile> {
        [self.contents.files(), self.secret_files.clone()].concat()
    }

    /// Returns the paths of the files from which sources read their secrets.
    pub(crate) fn secret_files(&self) -> impl Iterator<Item = &Path> + Clone {
        self.secret_files.iter().map(AttachedFile::path)
    }

    /// Returns the grants of callers to the named source, or `None` if the source does not use such grants.
    pub(crate) fn per_user(&self, source: &str) -> Option<&Arc<UserGrants>> {
        self.sources.per_user(source)
    }

    /// Returns the capabilities that the named MCP server declared when it was connected.
    pub(crate) fn capabilities(&self, source: &str) -> Option<ServerCapabilities> {
        let declared = self
            .sources
            .mcp(source)
            .ok()?
            .observed_server()
            .borrow()
            .declares?;
        Some(ServerCapabilities {
            logging: declared.logging,
            completions: declared.completions,
            resource_subscriptions: declared.resource_subscriptions,
        })
    }

    /// Returns whether calls of this tool may become tasks.
    pub(crate) fn may_be_task(&self, tool: &RunnableTool) -> bool {
        let source = tool
            .tool
            .source()
            .filter(|_| tool.tool.plan().may_request_input());
        let server = source.and_then(|source| self.sources.mcp(source).ok());
        server.is_some_and(|server| server.observed_server().borrow().has_tasks)
    }

    /// Returns the MCP servers whose lists of tools are compared with the lock file, by the names of their sources.
    pub(crate) fn upstreams(&self) -> &BTreeMap<String, Arc<Upstream>> {
        &self.upstreams
    }

    /// Returns every MCP server, whether its tools are imported or configured individually.
    pub(crate) fn servers(&self) -> Vec<Arc<Upstream>> {
        self.sources.servers().cloned().collect()
    }

    /// Returns whether a switch of this target would apply to anything.
    pub(crate) fn has(&self, target: &SwitchTarget) -> bool {
        let name = target.name.as_str();
        match target.kind {
            SwitchKind::Tool => self.tools.contains_key(name),
            SwitchKind::Toolset => self.toolsets.iter().any(|toolset| toolset.name == name),
            SwitchKind::Upstream => self.sources.has(name),
        }
    }

    /// Returns the version, which changes whenever anything changes that other services learn about the catalogue.
    pub(crate) fn version(&self) -> Digest {
        self.version
    }

    /// Returns the version of what callers are shown.
    pub(crate) fn shown_version(&self) -> Digest {
        self.shown
    }

    pub(crate) fn compiled_permits(&self) -> &CompiledPermits {
        &self.compiled
    }
}

/// Returns the longest time limit of the source's tools.
fn longest(tools: &[Tool], source: &str, default: Duration) -> Duration {
    tools
        .iter()
        .filter(|tool| tool.source() == Some(source))
        .map(|tool| tool.time_limit().unwrap_or(default))
        .max()
        .unwrap_or(default)
}

/// Returns a digest of the capabilities that clients must declare to be shown each tool. They are not part of the
/// tool's definition.
fn of_required(tools: &[Tool]) -> Digest {
    let required = tools.iter().map(Tool::required_capabilities);
    let required: Vec<_> = required.map(RequiredCapabilities::to_wire).collect();
    Digest::compute(format!("{required:?}").as_bytes())
}

/// Returns a digest of the times for which lists of sources may be cached.
fn of_ttls<'a>(offers: impl Iterator<Item = &'a SourceOffers>) -> Digest {
    let ttls: Vec<_> = offers.map(|of| &of.ttls).collect();
    Digest::compute(format!("{ttls:?}").as_bytes())
}

fn known_tool(tool: &Tool) -> KnownTool {
    KnownTool {
        facts: tool.facts().clone(),
        source: tool.source().map(str::to_owned),
    }
}
