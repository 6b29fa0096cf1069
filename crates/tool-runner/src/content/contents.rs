//! Which prompts and resources are in force, and whose they are.

use std::collections::BTreeMap;
use std::sync::Arc;

use wardgate_domain::OfferKind;
use wardgate_proto::toolrunner::v1 as pb;

use super::Own;
use super::own::Listed;
use crate::catalogue::{SourceKind, SourceSettings, Toolset};
use crate::files::Attached;

/// The prompts and resources of a catalogue.
pub(crate) struct Contents {
    own: BTreeMap<String, Arc<Own>>,
    /// Without the version.
    list: pb::ListContentResponse,
}

impl Contents {
    pub(crate) fn of(sources: &[SourceSettings], toolsets: &[Toolset]) -> Self {
        let mut own = BTreeMap::new();
        let mut list = pb::ListContentResponse::default();
        for source in sources {
            let SourceKind::Content(content) = &source.kind else {
                continue;
            };
            let name = source.name.as_str();
            list.sources.push(pb::ContentSource {
                name: name.to_owned(),
                prompts: content.kinds().any(|kind| kind == OfferKind::Prompts),
                resources: content.kinds().any(|kind| kind == OfferKind::Resources),
                toolsets: toolsets
                    .iter()
                    .filter(|toolset| content.tags.iter().any(|tag| toolset.tags.contains(tag)))
                    .map(|toolset| toolset.name.clone())
                    .collect(),
                is_upstream: false,
                is_missing: false,
            });
            let entry = |listed| entry(name, listed);
            list.prompts.extend(content.prompts().map(entry));
            list.resources.extend(content.resources().map(entry));
            list.resource_templates
                .extend(content.templates().map(entry));
            own.insert(source.name.clone(), Arc::clone(content));
        }
        let lists = [
            &mut list.prompts,
            &mut list.resources,
            &mut list.resource_templates,
        ];
        for list in lists {
            list.sort_by(|a, b| a.name.cmp(&b.name));
        }
        Self { own, list }
    }

    /// The source of that name, if it has content of its own.
    pub(super) fn own(&self, source: &str) -> Option<&Arc<Own>> {
        self.own.get(source)
    }

    /// Every file that something of it stands in.
    pub(crate) fn files(&self) -> Vec<Attached> {
        let files = self.own.values().flat_map(|own| own.files());
        files.cloned().collect()
    }

    pub(crate) fn list(&self) -> &pb::ListContentResponse {
        &self.list
    }
}

fn entry(source: &str, listed: Listed) -> pb::ContentEntry {
    pb::ContentEntry {
        source: source.to_owned(),
        own_name: listed.name.clone(),
        name: listed.name,
        definition_json: listed.definition.to_string().into(),
    }
}
