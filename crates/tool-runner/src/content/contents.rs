//! The prompts and resources in force, and the source of each.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tracing::warn;
use wardgate_domain::{Caller, ColumnClass, Digest, OfferKind, source_uri};
use wardgate_rpc::client::{ContentSource, Skills};

use super::lists::{ContentLists, ListedContent};
use super::upstream::{Entries, FollowedContent, UpstreamOffers};
use crate::Error;
use crate::executor::Sources;
use wardgate_catalogue::AttachedFile;
use wardgate_catalogue::{
    FileContent, McpSettings, OfferedItem, OfferedSelection, SourceKind, SourceSettings, Toolset,
};
use wardgate_mcp_client::Upstream;

/// The prompts and resources of a catalogue.
pub(crate) struct Contents {
    origins: BTreeMap<String, Origin>,
    lists: ContentLists,
}

/// The place where a source's prompts and resources come from.
#[derive(Clone)]
pub(crate) enum Origin {
    Own(Arc<FileContent>),
    Upstream(Arc<UpstreamOffers>),
}

impl Origin {
    /// Returns the origin as this caller reaches it. `token` is the caller's token, for sources whose credentials are
    /// derived from it.
    pub(crate) fn for_caller(&self, caller: &Caller, token: Option<&str>) -> Result<Self, Error> {
        Ok(match self {
            Self::Own(_) => self.clone(),
            Self::Upstream(of) => {
                let own = of.for_caller(caller, token);
                let own = own.map_err(|error| Error::HttpSource(error.to_string()))?;
                Self::Upstream(Arc::new(own))
            }
        })
    }

    /// Returns the class of every text of this origin.
    pub(crate) fn class(&self) -> &ColumnClass {
        match self {
            Self::Own(own) => &own.class,
            Self::Upstream(of) => &of.class,
        }
    }

    /// Returns a URI of `source` in the form that clients know.
    pub(crate) fn client_uri<'u>(&self, source: &str, uri: &'u str) -> Cow<'u, str> {
        match self {
            Self::Own(_) => uri.into(),
            Self::Upstream(_) => {
                source_uri::outward(source, uri).map_or_else(|| uri.into(), Cow::Owned)
            }
        }
    }
}

impl Contents {
    /// Creates the lists of `sources`, which are already open. The lists of MCP servers are those that `following` last
    /// received. `limit` is the time that a server may take to answer.
    pub(crate) fn new(
        sources: &[SourceSettings],
        toolsets: &[Toolset],
        open: &Sources,
        following: &FollowedContent,
        limit: Duration,
    ) -> Result<Self, Error> {
        let mut contents = Self {
            origins: BTreeMap::new(),
            lists: ContentLists::default(),
        };
        // The contents of the file are added first, because the first of two items with the same name is kept.
        for source in sources {
            if let SourceKind::Content(own) = &source.kind {
                contents.add_own(&source.name, own, toolsets);
            }
        }
        for source in sources {
            if let SourceKind::Mcp(settings) = &source.kind
                && let [OfferedSelection::All | OfferedSelection::Named(_), _]
                | [_, OfferedSelection::All | OfferedSelection::Named(_)] =
                    [&settings.prompts, &settings.resources]
            {
                let (upstream, guard) = open.server(&source.name)?;
                let of = UpstreamOffers::new(&source.name, settings, upstream, guard, limit);
                contents.add_upstream(of, settings, toolsets, following);
            }
        }
        contents.settle();
        Ok(contents)
    }

    fn add_own(&mut self, source: &str, own: &Arc<FileContent>, toolsets: &[Toolset]) {
        let entry = |listed: OfferedItem| ListedContent {
            source: source.to_owned(),
            own_name: listed.name.clone(),
            name: listed.name,
            definition: listed.definition.to_string().into(),
        };
        self.lists.prompts.extend(own.prompts().map(entry));
        self.lists.resources.extend(own.resources().map(entry));
        let templates = own.templates().map(entry);
        self.lists.templates.extend(templates);
        self.lists.sources.push(ContentSource {
            name: source.to_owned(),
            kinds: own.kinds().collect(),
            toolsets: names(toolsets, &own.tags),
            is_upstream: false,
            is_missing: false,
            skills: None,
        });
        let origin = Origin::Own(Arc::clone(own));
        self.origins.insert(source.to_owned(), origin);
    }

    fn add_upstream(
        &mut self,
        of: UpstreamOffers,
        settings: &McpSettings,
        toolsets: &[Toolset],
        following: &FollowedContent,
    ) {
        let source = of.source.clone();
        let entries = Entries {
            of: &of,
            prefix: &settings.prefix,
        };
        let prompts = following.prompts.list(&source).unwrap_or_default();
        let listed = following.resources.list(&source).unwrap_or_default();
        self.lists.prompts.extend(entries.prompts(&prompts.0));
        let resources = entries.resources(&listed.resources);
        self.lists.resources.extend(resources);
        let templates = entries.templates(&listed.templates);
        self.lists.templates.extend(templates);
        let skills = following.skills.list(&source);
        // Whether the server has skills is not known until it has answered once.
        let may_have_skills =
            of.skills != OfferedSelection::None && skills.as_ref().is_none_or(|it| it.0.is_some());
        let (skills, listed) = skills.and_then(|skills| skills.0).unzip();
        self.lists
            .skills
            .extend(entries.skills(&listed.unwrap_or_default()));
        let missing = [
            following.prompts.missing_servers(),
            following.resources.missing_servers(),
            following.skills.missing_servers(),
        ];
        let mut tags = settings.tags.clone();
        tags.push(format!("upstream:{source}"));
        let kinds = [
            (OfferKind::Prompts, &of.prompts),
            (OfferKind::Resources, &of.resources),
        ];
        let kinds = kinds.into_iter();
        self.lists.sources.push(ContentSource {
            name: source.clone(),
            kinds: kinds
                .filter(|(_, offered)| **offered != OfferedSelection::None)
                .map(|(kind, _)| kind)
                .collect(),
            toolsets: names(toolsets, &tags),
            is_upstream: true,
            is_missing: missing.iter().any(|missing| missing.contains(&source)),
            skills: may_have_skills.then(|| Skills {
                directories: skills.is_some_and(|skills| skills.directories),
            }),
        });
        self.origins.insert(source, Origin::Upstream(Arc::new(of)));
    }

    /// Sorts the lists and removes entries whose name is already taken.
    fn settle(&mut self) {
        let lists = [
            &mut self.lists.prompts,
            &mut self.lists.resources,
            &mut self.lists.templates,
            &mut self.lists.skills,
        ];
        for list in lists {
            list.sort_by(|a, b| a.name.cmp(&b.name));
            list.dedup_by(|later, earlier| {
                let is_taken = later.name == earlier.name;
                if is_taken {
                    warn!(
                        source = later.source,
                        by = earlier.source,
                        "a prompt or resource is not offered: its name is already in use"
                    );
                }
                is_taken
            });
        }
    }

    /// Returns the origin of the contents of the named source, or `None` if that source has none.
    pub(crate) fn origin(&self, source: &str) -> Option<&Origin> {
        self.origins.get(source)
    }

    /// Makes `following` follow exactly the servers that offer prompts, resources or skills.
    pub(crate) fn follow_servers(&self, following: &FollowedContent) {
        following.of_prompts.follow(&self.servers(|of| &of.prompts));
        following
            .of_resources
            .follow(&self.servers(|of| &of.resources));
        following.of_skills.follow(&self.servers(|of| &of.skills));
    }

    /// Returns the servers that offer any of what `of` selects.
    fn servers(
        &self,
        of: impl Fn(&UpstreamOffers) -> &OfferedSelection,
    ) -> BTreeMap<String, Arc<Upstream>> {
        let servers = self
            .origins
            .iter()
            .filter_map(|(source, origin)| match origin {
                Origin::Upstream(server) if *of(server) != OfferedSelection::None => {
                    Some((source.clone(), Arc::clone(&server.upstream)))
                }
                Origin::Upstream(_) | Origin::Own(_) => None,
            });
        servers.collect()
    }

    /// Returns every file that contents are read from.
    pub(crate) fn files(&self) -> Vec<AttachedFile> {
        let files = self.origins.values().flat_map(|origin| match origin {
            Origin::Own(own) => own.files().cloned().collect(),
            Origin::Upstream(_) => Vec::new(),
        });
        files.collect()
    }

    pub(crate) fn lists(&self) -> &ContentLists {
        &self.lists
    }

    /// Returns a digest that changes whenever the lists change.
    pub(crate) fn digest(&self) -> Digest {
        let lists = &self.lists;
        let each = [
            &lists.prompts,
            &lists.resources,
            &lists.templates,
            &lists.skills,
        ];
        let each = each.map(|list| {
            let entries = list.iter().map(|it| {
                let definition = Digest::compute(&it.definition);
                (&it.source, &it.name, &it.own_name, definition)
            });
            entries.collect::<Vec<_>>()
        });
        // The `Debug` form keeps the parts distinguishable.
        Digest::compute(format!("{:?}{each:?}", lists.sources).as_bytes())
    }
}

/// Returns the names of the toolsets that have one of these tags.
fn names(toolsets: &[Toolset], tags: &[String]) -> Vec<String> {
    let toolsets = toolsets.iter();
    toolsets
        .filter(|toolset| tags.iter().any(|tag| toolset.tags.contains(tag)))
        .map(|toolset| toolset.name.clone())
        .collect()
}
