//! Offers of sources besides tools, as the policy sees them.

use std::collections::BTreeMap;

use wardgate_domain::{ColumnClass, Digest, OfferKind, ToolFacts, ToolName};

use crate::content::{CONTENT, FileContent};
use crate::result_shape::{ResultShape, Shape};
use crate::source::{McpSettings, SourceKind, SourceSettings};
use crate::tool::Tool;
use wardgate_egress::AuthSettings;

/// A source and its offers besides tools.
#[derive(Debug, Clone)]
pub struct Offers {
    /// The name of the source.
    pub source: String,
    /// The prefix of the names of its tools.
    pub prefix: String,
    /// The facts about each kind of offer that the policy needs.
    pub facts: Vec<ToolFacts>,
    /// Classes of the columns of results.
    pub classes: BTreeMap<String, ColumnClass>,
    /// The canonical names of its tools, by the names that the source itself uses.
    pub tools: BTreeMap<String, ToolName>,
    /// Whether the source exchanges the caller's token for another token.
    pub exchanges_token: bool,
}

impl Offers {
    /// Returns the offers of `source`, or `None` if it offers only tools. `tools` are the tools of the whole catalogue.
    pub fn from_source(source: &SourceSettings, tools: &[Tool]) -> Option<Self> {
        let name: ToolName = source.name.parse().ok()?;
        let settings = match &source.kind {
            SourceKind::Mcp(settings) => settings,
            SourceKind::Content(own) => {
                let kinds = own.kinds();
                return Some(Self {
                    source: source.name.clone(),
                    prefix: String::new(),
                    classes: [(CONTENT.to_owned(), own.class.clone())].into(),
                    facts: kinds.map(|kind| facts_of_own(kind, &name, own)).collect(),
                    tools: BTreeMap::new(),
                    exchanges_token: false,
                });
            }
            SourceKind::Sql(_) | SourceKind::Http(_) | SourceKind::Grpc(_) => return None,
        };
        let own_names = tools
            .iter()
            .filter(|tool| tool.source() == Some(&source.name))
            .filter_map(|tool| Some((tool.own_name()?.to_owned(), tool.facts().name.clone())))
            .collect();
        Some(Self {
            source: source.name.clone(),
            prefix: settings.prefix.clone(),
            classes: settings.classes.clone(),
            facts: KINDS.map(|kind| facts(kind, &name, settings)).into(),
            tools: own_names,
            exchanges_token: settings.auth().is_some_and(AuthSettings::exchange_token),
        })
    }

    /// Returns the SHA-256 of everything that other services learn about the source.
    pub(super) fn digest(&self) -> Digest {
        Digest::compute(format!("{self:?}").as_bytes())
    }

    /// Returns the facts about this kind of offer, or `None` if the source does not have it.
    pub fn facts(&self, kind: OfferKind) -> Option<&ToolFacts> {
        self.facts.iter().find(|facts| facts.kind == kind)
    }
}

/// Kinds of offers of an MCP server, besides tools, that rights apply to.
const KINDS: [OfferKind; 3] = [OfferKind::Connect, OfferKind::Resources, OfferKind::Prompts];

fn facts(kind: OfferKind, name: &ToolName, settings: &McpSettings) -> ToolFacts {
    let mut tags = settings.tags.clone();
    tags.push(format!("upstream:{name}"));
    let mut shape = ResultShape::plain(Shape::Content);
    shape.classes.clone_from(&settings.classes);
    ToolFacts {
        // The `Debug` format is unambiguous about where each part ends.
        definition_digest: Digest::compute(
            format!("{kind:?}{name:?}{tags:?}{:?}", settings.classes).as_bytes(),
        ),
        kind,
        name: name.clone(),
        read_only: kind != OfferKind::Connect,
        tags: tags.into(),
        entity: None,
        classes: shape.released_classes(),
        argument_defaults: BTreeMap::new(),
    }
}

fn facts_of_own(kind: OfferKind, name: &ToolName, own: &FileContent) -> ToolFacts {
    ToolFacts {
        definition_digest: Digest::compute(format!("{kind:?}{name:?}{}", own.digest).as_bytes()),
        kind,
        name: name.clone(),
        read_only: true,
        tags: own.tags.as_slice().into(),
        entity: None,
        classes: vec![own.class.clone()],
        argument_defaults: BTreeMap::new(),
    }
}
