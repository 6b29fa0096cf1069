//! Selects the sources whose tools are imported, and judges each tool against its pin.

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

/// A source whose tools are imported.
pub(super) struct ImportedSource {
    pub(super) name: String,
    pub(super) settings: McpSettings,
    /// The server's own names of the tools to import, or `None` to import all tools.
    only: Option<BTreeSet<String>>,
}

impl ImportedSource {
    /// Returns the sources whose tools are imported, sorted by name. If the file does not say whether to import a
    /// server's tools, a server with individually configured tools is left out.
    pub(super) fn from_catalogue(catalogue: &Catalogue) -> Vec<Self> {
        let mut importing = Vec::new();
        for source in catalogue.sources() {
            let SourceKind::Mcp(settings) = &source.kind else {
                continue;
            };
            let is_used = || {
                let mut tools = catalogue.tools().iter();
                tools.any(|tool| tool.source() == Some(&source.name))
            };
            let only = match &settings.offered {
                Some(OfferedSelection::None) => continue,
                None if is_used() => continue,
                Some(OfferedSelection::Named(names)) => Some(names.iter().cloned().collect()),
                Some(OfferedSelection::All) | None => None,
            };
            importing.push(Self {
                name: source.name.clone(),
                settings: McpSettings::clone(settings),
                only,
            });
        }
        importing
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

/// Judges the tools and the instructions of each source. A source without a list is assumed to offer what was approved.
pub(super) fn judge(
    importing: &[ImportedSource],
    catalogue: &Catalogue,
    pins: &Pins,
    list: impl Fn(&str) -> Option<List>,
) -> Vec<Vec<JudgedTool>> {
    let configured = catalogue.tools().iter().flat_map(|tool| {
        let aliases = tool.aliases().iter().map(ToolName::as_str);
        aliases.chain([tool.facts().name.as_str()])
    });
    let mut names = Names::of_configured(configured);
    for source in importing {
        pins.claim(&source.name, &source.settings.prefix, &mut names);
    }
    let mut judged = Vec::new();
    for source in importing {
        let list = list(&source.name).unwrap_or_else(|| approved_list(pins, &source.name));
        let definitions: Vec<&str> = list.tools.iter().map(String::as_str).collect();
        let offer = UpstreamOffer {
            source: &source.name,
            prefix: &source.settings.prefix,
            only: source.only.as_ref(),
            definitions: &definitions,
        };
        let mut tools = pins.judge(offer, &mut names);
        if let Some(text) = &list.instructions {
            tools.push(pins.judge_instructions(&source.name, text));
        }
        judged.push(tools);
    }
    judged
}
