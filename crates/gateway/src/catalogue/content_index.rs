//! An index of all prompts, resources, templates and skills, by the names that clients know.

use std::borrow::Cow;
use std::collections::BTreeMap;

use wardgate_domain::{OfferKind, UriTemplate, source_uri};
use wardgate_mcp::Version;
use wardgate_mcp_server::{DefinitionKind, VersionedDefinition};
use wardgate_rpc::client::{Content, ContentEntry, ContentSource, Skills};

use super::View;

/// The content that the tool-runner listed last.
#[derive(Debug, Default)]
pub(crate) struct ContentIndex {
    sources: BTreeMap<String, ContentSource>,
    pub(crate) prompts: Vec<IndexEntry>,
    pub(crate) resources: Vec<IndexEntry>,
    pub(crate) templates: Vec<IndexEntry>,
    pub(crate) skills: Vec<IndexEntry>,
    /// The templates of sources that are not upstream servers, each with the name of its source. The URI of an upstream's
    /// resource names the upstream itself.
    readable: Vec<(UriTemplate, String)>,
}

/// An entry of a list.
#[derive(Debug)]
pub(crate) struct IndexEntry {
    pub(crate) source: String,
    /// The name that clients use.
    pub(crate) name: String,
    /// The name that the source uses.
    pub(crate) own_name: String,
    definition: VersionedDefinition,
}

/// The source of a prompt, resource or template, and its name there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ContentLocation {
    pub(crate) source: String,
    /// The name that the source uses, on which the policy decides.
    pub(crate) own_name: String,
}

impl ContentIndex {
    pub(crate) fn new(listed: Content) -> Self {
        let entries = |kind, entries: Vec<ContentEntry>| -> Vec<IndexEntry> {
            let mut entries: Vec<_> = entries
                .into_iter()
                .filter_map(|entry| IndexEntry::new(kind, entry))
                .collect();
            // The list is sorted because a cursor names the last entry of a page.
            entries.sort_by(|a, b| a.name.cmp(&b.name));
            entries
        };
        let templates = entries(DefinitionKind::Template, listed.templates);
        let sources: BTreeMap<_, _> = listed
            .sources
            .into_iter()
            .map(|source| (source.name.clone(), source))
            .collect();
        let of_file = |entry: &&IndexEntry| {
            let source = sources.get(&entry.source);
            source.is_some_and(|source| !source.is_upstream)
        };
        let readable = templates.iter().filter(of_file).filter_map(|entry| {
            let template = entry.name.parse().ok()?;
            Some((template, entry.source.clone()))
        });
        Self {
            readable: readable.collect(),
            templates,
            prompts: entries(DefinitionKind::Prompt, listed.prompts),
            resources: entries(DefinitionKind::Resource, listed.resources),
            skills: entries(DefinitionKind::Skill, listed.skills),
            sources,
        }
    }

    /// Returns whether `view` has lists of this kind. The lists of a toolset may be empty.
    pub(crate) fn offers(&self, kind: OfferKind, view: &View) -> bool {
        let mut sources = self.sources(kind);
        sources.any(|source| !view.has_own_names() || view.has(source))
    }

    /// Returns which parts of the skills extension `view` offers, or `None` if it offers no skills.
    pub(crate) fn skills(&self, view: &View) -> Option<Skills> {
        let sources = self.sources(OfferKind::Resources);
        let in_view = sources.filter(|source| view.has(source));
        let all = in_view.filter_map(|source| source.skills);
        all.reduce(|one, other| Skills {
            directories: one.directories || other.directories,
        })
    }

    /// Returns whether the source of this name has resources.
    pub(crate) fn has_resources(&self, source: &str) -> bool {
        let source = self.source(source);
        source.is_some_and(|source| source.kinds.contains(&OfferKind::Resources))
    }

    /// Returns the sources that offer content of this kind.
    pub(crate) fn sources(&self, kind: OfferKind) -> impl Iterator<Item = &ContentSource> {
        let sources = self.sources.values();
        sources.filter(move |source| source.kinds.contains(&kind))
    }

    pub(crate) fn source(&self, name: &str) -> Option<&ContentSource> {
        self.sources.get(name)
    }

    pub(crate) fn prompt(&self, name: &str) -> Option<ContentLocation> {
        find(&self.prompts, name)
    }

    /// Returns the resource at `uri`: one that is listed or matches a template, or any URI that names an upstream with resources.
    pub(crate) fn resource(&self, uri: &str) -> Option<ContentLocation> {
        let by_template = || {
            let mut readable = self.readable.iter();
            let (_, source) = readable.find(|(template, _)| template.match_uri(uri).is_some())?;
            Some(ContentLocation {
                source: source.clone(),
                own_name: uri.to_owned(),
            })
        };
        let by_server = || {
            let (source, own_name) = source_uri::inward(uri)?;
            let source = self.sources.get(source)?;
            let has_it = source.is_upstream && source.kinds.contains(&OfferKind::Resources);
            has_it.then(|| ContentLocation {
                source: source.name.clone(),
                own_name,
            })
        };
        find(&self.resources, uri)
            .or_else(by_template)
            .or_else(by_server)
    }

    pub(crate) fn template(&self, text: &str) -> Option<ContentLocation> {
        find(&self.templates, text)
    }
}

fn find(entries: &[IndexEntry], name: &str) -> Option<ContentLocation> {
    let at = entries.binary_search_by(|entry| entry.name.as_str().cmp(name));
    let entry = &entries[at.ok()?];
    Some(ContentLocation {
        source: entry.source.clone(),
        own_name: entry.own_name.clone(),
    })
}

impl IndexEntry {
    /// Creates an entry, or returns `None` if the definition is not a JSON object.
    fn new(kind: DefinitionKind, listed: ContentEntry) -> Option<Self> {
        let definition = VersionedDefinition::new(kind, &listed.name, &listed.definition_json);
        if definition.is_none() {
            tracing::error!(
                source = listed.source,
                "a definition is not a JSON object and is not listed"
            );
        }
        Some(Self {
            definition: definition?,
            source: listed.source,
            name: listed.name,
            own_name: listed.own_name,
        })
    }

    /// Returns the definition as it is shown in `view`.
    pub(crate) fn definition(&self, view: &View, version: Version) -> Cow<'_, str> {
        if view.has_own_names() {
            self.definition.with_name(version, &self.own_name).into()
        } else {
            self.definition.of_version(version).into()
        }
    }
}

#[cfg(test)]
mod tests;
