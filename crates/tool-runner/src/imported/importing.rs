//! Which sources' tools are imported, and what becomes of each tool.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::time::Instant;
use wardgate_domain::{RequiredCapabilities, ToolName};

use wardgate_catalogue::{Catalogue, McpSettings, OfferedSelection, PinMode, SourceKind};
use wardgate_catalogue::{JudgedTool, Names, Pins, UpstreamOffer};
use wardgate_mcp_client::CanonicalDefinition;
use wardgate_mcp_client::{Upstream, UpstreamError};

/// What a server offers, as it sent it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct List {
    /// Definitions of tools, each one JSON object.
    pub(super) tools: Arc<[String]>,
    /// What it says of itself.
    pub(super) instructions: Option<Arc<str>>,
    /// Its tools that it shows only to clients with certain capabilities, by its own names.
    pub(super) required: Arc<BTreeMap<String, RequiredCapabilities>>,
}

impl List {
    /// What `upstream` offers by `deadline`.
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
    /// The server's own names of the tools wanted; without it, all.
    only: Option<BTreeSet<String>>,
}

impl ImportedSource {
    /// In the order of their names. Where the file does not say, a server whose tools are configured one by
    /// one offers no others.
    pub(super) fn of(catalogue: &Catalogue) -> Vec<Self> {
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

    /// What it offers is approved when it is first seen, unless somebody approved anything of it.
    pub(super) fn trusts_first_use(&self) -> bool {
        self.settings.pins == PinMode::FirstUse
    }
}

/// What was approved of `source`.
fn approved(pins: &Pins, source: &str) -> List {
    let instructions = pins.instructions(source);
    let instructions = instructions.and_then(CanonicalDefinition::instructions);
    List {
        instructions: instructions.map(Arc::from),
        ..pins.of(source).map(CanonicalDefinition::text).collect()
    }
}

/// Judges the tools of each source, and what its server says of itself. One without a list is taken to offer what was approved of it.
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
        let list = list(&source.name).unwrap_or_else(|| approved(pins, &source.name));
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
