//! The tool-runner's catalogue, as the gateway last saw it, and the views of it that the paths serve.

mod content_index;
mod may_write;
mod view;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use futures::StreamExt;
use tokio::sync::watch;
use wardgate_domain::{ArgumentNames, Reason, RequiredCapabilities, ToolFacts, ToolSwitches};
use wardgate_mcp::mirrored_header::MirroredHeader;
use wardgate_mcp_server::{DefinitionKind, RpcError, VersionedDefinition};
use wardgate_rpc::Readiness;
use wardgate_rpc::client::{CallError, Catalogue as ListedCatalogue, ToolRunnerClient};

/// Member of `_meta` of a list that names the upstreams that do not answer.
pub(crate) const MISSING_UPSTREAMS: &str = "dev.wardgate/missingUpstreams";

pub(crate) use self::content_index::{ContentIndex, ContentLocation, IndexEntry};
pub(crate) use self::view::View;
pub(crate) use wardgate_rpc::client::CatalogueSource;

use crate::change_counter::ChangeCounter;

/// A tool of the catalogue.
#[derive(Debug)]
pub(crate) struct Tool {
    pub(crate) facts: ToolFacts,
    /// The definition as it is configured, or as its server sent it.
    pub(crate) definition: VersionedDefinition,
    /// The definition that is listed instead, except on the route of its server. `None` if it is the same.
    pub(crate) marked_definition: Option<VersionedDefinition>,
    /// The arguments that modern clients mirror as headers.
    pub(crate) mirrored_headers: Vec<MirroredHeader>,
    /// The arguments that the input schema names.
    pub(crate) argument_names: ArgumentNames,
    pub(crate) time_limit: Duration,
    /// Whether the source exchanges the caller's token, so that a call must bring the token.
    pub(crate) needs_caller_token: bool,
    /// The callers for whom the tool is switched on.
    pub(crate) switches: ToolSwitches,
    /// The toolsets that contain the tool.
    pub(crate) toolsets: Vec<String>,
    /// Whether a call of the tool may become a task.
    pub(crate) may_be_task: bool,
    /// The capabilities that a client must declare to be offered the tool.
    pub(crate) required_capabilities: RequiredCapabilities,
}

impl Tool {
    /// Returns whether the tool is offered to a client that declared `capabilities`, MCP `ClientCapabilities`.
    pub(crate) fn is_for_client(&self, capabilities: Option<&str>) -> bool {
        self.required_capabilities.are_declared(capabilities)
    }

    pub(crate) fn is_in(&self, toolset: &str) -> bool {
        self.toolsets.iter().any(|name| name == toolset)
    }
}

/// Reason and message of the error for every list and call until the catalogue was loaded for the first time.
pub(crate) const NOT_KNOWN: (Reason, &str) = (
    Reason::CATALOGUE_UNAVAILABLE,
    "The tools have not been loaded yet. Try again later.",
);

/// The tools, sources and content of the catalogue, by name.
#[derive(Debug, Default)]
pub(crate) struct CatalogueIndex {
    tools: Vec<Arc<Tool>>,
    by_name: HashMap<String, Arc<Tool>>,
    sources: BTreeMap<String, Arc<CatalogueSource>>,
    missing_upstreams: Vec<String>,
    content: ContentIndex,
    /// The tool-runner's version of the part of the catalogue that clients are shown.
    shown_version: Bytes,
}

impl CatalogueIndex {
    /// Returns the tool with this name or alias.
    pub(crate) fn find(&self, name: &str) -> Option<&Arc<Tool>> {
        self.by_name.get(name)
    }

    pub(crate) fn tools(&self) -> impl Iterator<Item = &Tool> {
        self.tools.iter().map(Arc::as_ref)
    }

    /// Returns the source of this name.
    pub(crate) fn source(&self, name: &str) -> Option<&Arc<CatalogueSource>> {
        self.sources.get(name)
    }

    /// Returns all sources, in the order of their names.
    pub(crate) fn sources(&self) -> impl Iterator<Item = &CatalogueSource> {
        self.sources.values().map(Arc::as_ref)
    }

    /// Returns the prompts, resources, templates and skills.
    pub(crate) fn content(&self) -> &ContentIndex {
        &self.content
    }

    /// Returns the names of the upstreams that do not answer.
    pub(crate) fn missing_upstreams(&self) -> &[String] {
        &self.missing_upstreams
    }
}

impl From<ListedCatalogue> for CatalogueIndex {
    fn from(listed: ListedCatalogue) -> Self {
        let mut index = Self {
            missing_upstreams: listed.missing_upstreams,
            sources: listed
                .sources
                .into_iter()
                .map(|source| (source.name.clone(), Arc::new(source)))
                .collect(),
            shown_version: listed.shown_version,
            ..Self::default()
        };
        for tool in listed.tools {
            let versioned = |definition: &str| {
                VersionedDefinition::new(DefinitionKind::Tool, tool.facts.name.as_str(), definition)
            };
            let Some(definition) = versioned(&tool.definition_json) else {
                tracing::error!(tool.name = %tool.facts.name, "a tool's definition is not a JSON object and is not listed");
                continue;
            };
            let marked = if tool.facts.read_only {
                None
            } else {
                may_write::mark_definition(&tool.definition_json)
            };
            let marked_definition = marked.and_then(|definition| versioned(&definition));
            let entry = Arc::new(Tool {
                mirrored_headers: MirroredHeader::of_tool(&tool.definition_json),
                argument_names: ArgumentNames::of_definition(&tool.definition_json),
                definition,
                marked_definition,
                facts: tool.facts,
                time_limit: tool.time_limit,
                needs_caller_token: tool.needs_caller_token,
                toolsets: tool.toolsets,
                switches: tool.switches,
                may_be_task: tool.may_be_task,
                required_capabilities: tool.required_capabilities,
            });
            for alias in tool.aliases {
                index.by_name.insert(alias, Arc::clone(&entry));
            }
            index
                .by_name
                .insert(entry.facts.name.to_string(), Arc::clone(&entry));
            index.tools.push(entry);
        }
        index
    }
}

/// Follows the catalogue of the tool-runner. While the tool-runner is unreachable, the last known catalogue stays in use: a
/// permit names the definition that it is for, so a stale entry does no harm.
#[derive(Debug)]
pub(crate) struct Catalogue {
    /// The last known catalogue, or `None` until it was loaded for the first time. An unknown catalogue is not an empty one.
    current: Arc<ArcSwapOption<CatalogueIndex>>,
    readiness: watch::Receiver<Readiness>,
}

impl Catalogue {
    pub(crate) fn follow(runner: ToolRunnerClient, changes: ChangeCounter) -> Self {
        let current = Arc::new(ArcSwapOption::empty());
        let (sender, readiness) = watch::channel(Readiness::NotReady("not loaded yet".to_owned()));
        let target = Arc::clone(&current);
        tokio::spawn(async move {
            tokio::select! {
                () = sender.closed() => {}
                () = follow(&runner, &target, &sender, &changes) => {}
            }
        });
        Self { current, readiness }
    }

    /// Returns the last known catalogue, or `None` until it was loaded for the first time.
    pub(crate) fn current(&self) -> Option<Arc<CatalogueIndex>> {
        self.current.load_full()
    }

    /// Returns the last known catalogue, or an error until it was loaded for the first time.
    pub(crate) fn require_current(&self) -> Result<Arc<CatalogueIndex>, RpcError> {
        let (reason, message) = NOT_KNOWN;
        self.current()
            .ok_or_else(|| RpcError::internal(reason, message))
    }

    pub(crate) fn readiness(&self) -> watch::Receiver<Readiness> {
        self.readiness.clone()
    }
}

async fn follow(
    runner: &ToolRunnerClient,
    target: &ArcSwapOption<CatalogueIndex>,
    sender: &watch::Sender<Readiness>,
    changes: &ChangeCounter,
) {
    loop {
        if let Err(error) = until_lost(runner, target, sender, changes).await {
            tracing::warn!(%error, "the stream of the tool-runner's catalogue failed; trying again");
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

async fn until_lost(
    runner: &ToolRunnerClient,
    target: &ArcSwapOption<CatalogueIndex>,
    sender: &watch::Sender<Readiness>,
    changes: &ChangeCounter,
) -> Result<(), CallError> {
    let mut versions = runner.watch_catalogue().await?;
    while let Some(version) = versions.next().await {
        version?;
        let listed = runner.list_tools().await?;
        let content = runner.list_content().await?;
        tracing::info!(tools = listed.tools.len(), "catalogue loaded");
        let shown = listed.shown_version.clone();
        let index = CatalogueIndex {
            content: ContentIndex::new(content),
            ..listed.into()
        };
        let earlier = target.swap(Some(Arc::new(index)));
        // After a reconnect the tool-runner sends its version again, and not every new version changes what clients are shown.
        if earlier.is_none_or(|earlier| earlier.shown_version != shown) {
            changes.announce();
        }
        sender.send_replace(Readiness::Ready);
    }
    Ok(())
}
