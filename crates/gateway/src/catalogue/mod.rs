//! The tool-runner's catalogue, as the gateway last saw it, and the views of it that paths show.

mod content_index;
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

/// Key of the upstreams that do not answer, in `_meta` of a list.
pub(crate) const MISSING_UPSTREAMS: &str = "dev.wardgate/missingUpstreams";

pub(crate) use self::content_index::{ContentIndex, ContentLocation, IndexEntry};
pub(crate) use self::view::View;
pub(crate) use wardgate_rpc::client::CatalogueSource;

use crate::change_counter::ChangeCounter;

/// One tool.
#[derive(Debug)]
pub(crate) struct Tool {
    pub(crate) facts: ToolFacts,
    pub(crate) definition: VersionedDefinition,
    /// The arguments that modern clients mirror as headers.
    pub(crate) mirrored_headers: Vec<MirroredHeader>,
    /// The arguments that its input schema names.
    pub(crate) argument_names: ArgumentNames,
    pub(crate) time_limit: Duration,
    /// Its source exchanges the caller's token, so a call must bring it.
    pub(crate) needs_caller_token: bool,
    /// Whom it is on for.
    pub(crate) switches: ToolSwitches,
    /// Those it is in.
    pub(crate) toolsets: Vec<String>,
    /// A call of it may become a task.
    pub(crate) may_be_task: bool,
    /// Only clients that declare these are offered it.
    pub(crate) required_capabilities: RequiredCapabilities,
}

impl Tool {
    /// Whether it is offered to a client that declared `capabilities`, MCP `ClientCapabilities`.
    pub(crate) fn is_for_client(&self, capabilities: Option<&str>) -> bool {
        self.required_capabilities.are_declared(capabilities)
    }

    pub(crate) fn is_in(&self, toolset: &str) -> bool {
        self.toolsets.iter().any(|name| name == toolset)
    }
}

/// Why there is neither a list nor a call before the tool-runner was first heard of.
pub(crate) const NOT_KNOWN: (Reason, &str) = (
    Reason::CATALOGUE_UNAVAILABLE,
    "The tools are not known yet. Try again later.",
);

/// Every tool, by the names it answers to.
#[derive(Debug, Default)]
pub(crate) struct CatalogueIndex {
    tools: Vec<Arc<Tool>>,
    by_name: HashMap<String, Arc<Tool>>,
    sources: BTreeMap<String, Arc<CatalogueSource>>,
    missing_upstreams: Vec<String>,
    content: ContentIndex,
    /// The tool-runner's word for all of this that clients are shown.
    shown_version: Bytes,
}

impl CatalogueIndex {
    /// The tool that answers to `name`, its own or an alias.
    pub(crate) fn find(&self, name: &str) -> Option<&Arc<Tool>> {
        self.by_name.get(name)
    }

    pub(crate) fn tools(&self) -> impl Iterator<Item = &Tool> {
        self.tools.iter().map(Arc::as_ref)
    }

    /// What offers more than tools, by its name.
    pub(crate) fn source(&self, name: &str) -> Option<&Arc<CatalogueSource>> {
        self.sources.get(name)
    }

    /// All of these, in the order of their names.
    pub(crate) fn sources(&self) -> impl Iterator<Item = &CatalogueSource> {
        self.sources.values().map(Arc::as_ref)
    }

    /// Its prompts and resources.
    pub(crate) fn content(&self) -> &ContentIndex {
        &self.content
    }

    /// The upstreams that do not answer.
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
            let Some(definition) = VersionedDefinition::new(
                DefinitionKind::Tool,
                tool.facts.name.as_str(),
                &tool.definition_json,
            ) else {
                tracing::error!(tool.name = %tool.facts.name, "a tool's definition is not a JSON object; it is left out");
                continue;
            };
            let entry = Arc::new(Tool {
                mirrored_headers: MirroredHeader::of_tool(&tool.definition_json),
                argument_names: ArgumentNames::of_definition(&tool.definition_json),
                definition,
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

/// Follows the catalogue. While the tool-runner is away the last known one stays: permits name the
/// definition they are for, so a stale entry can mislead nobody.
#[derive(Debug)]
pub(crate) struct Catalogue {
    /// None before it was first heard of: not to know the tools is not to have none.
    current: Arc<ArcSwapOption<CatalogueIndex>>,
    readiness: watch::Receiver<Readiness>,
}

impl Catalogue {
    pub(crate) fn follow(runner: ToolRunnerClient, changes: ChangeCounter) -> Self {
        let current = Arc::new(ArcSwapOption::empty());
        let (sender, readiness) = watch::channel(Readiness::NotReady("not listed yet".to_owned()));
        let target = Arc::clone(&current);
        tokio::spawn(async move {
            tokio::select! {
                () = sender.closed() => {}
                () = follow(&runner, &target, &sender, &changes) => {}
            }
        });
        Self { current, readiness }
    }

    /// None while the tool-runner was never heard of.
    pub(crate) fn current(&self) -> Option<Arc<CatalogueIndex>> {
        self.current.load_full()
    }

    /// The same, for whoever cannot answer without it.
    pub(crate) fn known(&self) -> Result<Arc<CatalogueIndex>, RpcError> {
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
            tracing::warn!(%error, "the tool-runner's catalogue cannot be followed; trying again");
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
        // A connection that comes back says its version once more, and not all that is new is news to clients.
        if earlier.is_none_or(|earlier| earlier.shown_version != shown) {
            changes.announce();
        }
        sender.send_replace(Readiness::Ready);
    }
    Ok(())
}
