//! Selects the sources whose tools are imported or called by tools of the catalogue, and judges each tool against its pin.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::time::Instant;
use wardgate_domain::{RequiredCapabilities, ToolName};

use wardgate_catalogue::{Catalogue, McpSettings, OfferedSelection, PinMode, SourceKind};
use wardgate_catalogue::{JudgedTool, Names, Pins, UpstreamOffer};
use wardgate_mcp_client::CanonicalDefinition;
use wardgate_mcp_client::{Upstream, UpstreamError};

/// The tools that a server offers, as the server sent them.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct List {
    /// The definitions of the tools, each as one JSON object.
    pub(super) tools: Arc<[String]>,
    /// The instructions that the server gives for its use.
    pub(super) instructions: Option<Arc<str>>,
    /// The capabilities that clients must have to be shown a tool, by the server's own names. Only tools with such a
    /// condition are listed.
    pub(super) required: Arc<BTreeMap<String, RequiredCapabilities>>,
}

impl List {
    /// Requests the tools of `upstream` by `deadline`.
    pub(super) async fn fetch(
        upstream: &Upstream,
        deadline: Instant,
    ) -> Result<Self, UpstreamError> {
        let tools = upstream.offered_tools(deadline).await?;
        let conditional = tools.iter().filter(|tool| !tool.required.is_empty());
        let required = conditional.map(|tool| (tool.name.to_string(), tool.required.clone()));
        Ok(Self {
            instructions: upstream.instructions(),
            required: Arc::new(required.collect()),
            tools: tools.iter().map(|tool| tool.raw.get().to_owned()).collect(),
        })
    }
}

impl FromIterator<String> for List {
    fn from_iter<T: IntoIterator<Item = String>>(tools: T) -> Self {
        Self {
            tools: tools.into_iter().collect(),
            ..Self::default()
        }
    }
}

/// A source with tools that are imported or that tools of the catalogue call.
pub(super) struct PinnedSource {
    pub(super) name: String,
    pub(super) settings: McpSettings,
    /// Whether tools of the source are imported.
    pub(super) is_imported: bool,
    /// The server's own names of the tools to import, or `None` to import all tools.
    only: Option<BTreeSet<String>>,
    /// The server's own names of the tools that tools of the catalogue call, by the names of the latter.
    called: BTreeMap<String, String>,
}

impl PinnedSource {
    /// Returns the sources with tools that are imported or that tools of the catalogue call, sorted by name. If the file does
    /// not say whether to import a server's tools, those of a server with individually configured tools are not imported.
    pub(super) fn from_catalogue(catalogue: &Catalogue) -> Vec<Self> {
        let mut sources = Vec::new();
        for source in catalogue.sources() {
            let SourceKind::Mcp(settings) = &source.kind else {
                continue;
            };
            let is_used = || {
                let mut tools = catalogue.tools().iter();
                tools.any(|tool| tool.source() == Some(&source.name))
            };
            let is_imported = match &settings.offered {
                Some(selection) => *selection != OfferedSelection::None,
                None => !is_used(),
            };
            let called = catalogue.tools().iter().filter_map(|tool| {
                let called = tool.plan().upstream_tool()?;
                let is_own = tool.source() == Some(&source.name);
                is_own.then(|| (tool.facts().name.to_string(), called.to_owned()))
            });
            let called: BTreeMap<_, _> = called.collect();
            if !is_imported && called.is_empty() {
                continue;
            }
            sources.push(Self {
                name: source.name.clone(),
                settings: McpSettings::clone(settings),
                is_imported,
                only: match &settings.offered {
                    Some(OfferedSelection::Named(names)) => Some(names.iter().cloned().collect()),
                    _ => None,
                },
                called,
            });
        }
        sources
    }

    /// Returns whether the tools of the source must equal their pins: all imported ones and, once anything of the source has
    /// been approved or if it is approved when it is first seen, also those that tools of the catalogue call.
    pub(super) fn is_compared(&self, pins: &Pins) -> bool {
        self.is_imported || self.trusts_first_use() || pins.knows(&self.name)
    }

    /// Returns whether the tools of the source are approved when they are first seen, provided that nothing of the
    /// source has been approved yet.
    pub(super) fn trusts_first_use(&self) -> bool {
        self.settings.pins == PinMode::FirstUse
    }
}

/// Returns the approved tools and instructions of `source`.
fn approved_list(pins: &Pins, source: &str) -> List {
    let instructions = pins.instructions(source);
    let instructions = instructions.and_then(CanonicalDefinition::instructions);
    List {
        instructions: instructions.map(Arc::from),
        ..pins
            .definitions(source)
            .map(CanonicalDefinition::text)
            .collect()
    }
}

/// Judges the imported tools and the instructions of each source, and the tools that tools of the catalogue call. A source
/// without a list is assumed to offer what was approved.
pub(super) fn judge(
    sources: &[PinnedSource],
    catalogue: &Catalogue,
    pins: &Pins,
    list: impl Fn(&str) -> Option<List>,
) -> Vec<Vec<JudgedTool>> {
    let configured = catalogue.tools().iter().flat_map(|tool| {
        let aliases = tool.aliases().iter().map(ToolName::as_str);
        aliases.chain([tool.facts().name.as_str()])
    });
    let mut names = Names::of_configured(configured);
    for source in sources.iter().filter(|it| it.is_imported) {
        pins.claim(&source.name, &source.settings.prefix, &mut names);
    }
    let mut judged = Vec::new();
    for source in sources {
        let list = list(&source.name).unwrap_or_else(|| approved_list(pins, &source.name));
        let definitions: Vec<&str> = list.tools.iter().map(String::as_str).collect();
        let mut tools = Vec::new();
        if source.is_imported {
            let offer = UpstreamOffer {
                source: &source.name,
                prefix: &source.settings.prefix,
                only: source.only.as_ref(),
                definitions: &definitions,
            };
            tools = pins.judge(offer, &mut names);
            if let Some(text) = &list.instructions {
                tools.push(pins.judge_instructions(&source.name, text));
            }
        }
        tools.extend(pins.judge_called(&source.name, &source.called, &definitions));
        judged.push(tools);
    }
    judged
}
