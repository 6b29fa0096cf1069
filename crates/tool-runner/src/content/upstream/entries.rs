//! Converts what a server lists into entries with the names of the catalogue.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use tracing::warn;
use wardgate_domain::source_uri;

use super::UpstreamOffers;
use super::skills::Skill;
use crate::content::ListedContent;
use wardgate_catalogue::is_name;

/// Maximum number of entries in one list of one server.
const MAX_ENTRIES: usize = 1_000;

/// Maximum size of one definition, in bytes.
const MAX_BYTES: usize = 64 * 1024;

/// Maximum size of the skills of one server, including their lists of files, in bytes.
const MAX_SKILLS_BYTES: usize = 4 * 1024 * 1024;

/// Creates entries from the definitions of one server.
pub(in crate::content) struct Entries<'a> {
    pub(in crate::content) of: &'a UpstreamOffers,
    /// The prefix of the names of the server's prompts.
    pub(in crate::content) prefix: &'a str,
}

impl Entries<'_> {
    pub(in crate::content) fn prompts(&self, definitions: &[String]) -> Vec<ListedContent> {
        self.entries("name", definitions, |own| {
            let name = format!("{}{own}", self.prefix);
            (self.of.prompts.has(own) && is_name(&name)).then_some(name)
        })
    }

    pub(in crate::content) fn resources(&self, definitions: &[String]) -> Vec<ListedContent> {
        self.entries("uri", definitions, |own| self.client_uri(own))
    }

    pub(in crate::content) fn templates(&self, definitions: &[String]) -> Vec<ListedContent> {
        self.entries("uriTemplate", definitions, |own| self.client_uri(own))
    }

    /// Returns the skills that can be offered, up to the maximum total size.
    pub(in crate::content) fn skills(&self, definitions: &[String]) -> Vec<ListedContent> {
        let source = &self.of.source;
        let mut room = MAX_SKILLS_BYTES;
        let mut entries = Vec::new();
        for definition in definitions.iter().take(MAX_ENTRIES) {
            let is_offered = |uri: &str| self.of.offers_resource(uri);
            let skill = match Skill::parse(source, definition, is_offered) {
                Ok(skill) if self.of.skills.has(&skill.own_uri) => skill,
                Ok(_) => continue,
                Err(why) => {
                    self.of.kept_out(why);
                    continue;
                }
            };
            let Some(left) = room.checked_sub(skill.definition.len()) else {
                self.of.kept_out("the size limit for skills is reached");
                continue;
            };
            room = left;
            entries.push(ListedContent {
                source: source.clone(),
                name: skill.uri,
                own_name: skill.own_uri,
                definition: skill.definition.into(),
            });
        }
        entries
    }

    /// Returns the children of a directory as JSON, with the URIs that clients know.
    pub(super) fn children(&self, definitions: &[String]) -> Vec<String> {
        let entries = self.entries("uri", definitions, |own| {
            let is_offered = self.of.offers_resource(own);
            source_uri::outward(&self.of.source, own).filter(|_| is_offered)
        });
        let whole = |entry: &ListedContent| {
            let others = String::from_utf8_lossy(&entry.definition);
            let others = others.trim_start_matches('{');
            let comma = if others == "}" { "" } else { "," };
            format!(
                r#"{{"uri":{}{comma}{others}"#,
                serde_json::json!(entry.name)
            )
        };
        entries.iter().map(whole).collect()
    }

    fn client_uri(&self, own: &str) -> Option<String> {
        let is_offered = self.of.resources.has(own);
        source_uri::outward(&self.of.source, own).filter(|_| is_offered)
    }

    /// Returns the entries whose name, which is the member `member`, can be shown.
    fn entries(
        &self,
        member: &str,
        definitions: &[String],
        shown: impl Fn(&str) -> Option<String>,
    ) -> Vec<ListedContent> {
        let source = &self.of.source;
        let entry = |definition: &String| {
            let members: BTreeMap<String, &RawValue> = serde_json::from_str(definition).ok()?;
            let own_name: String = serde_json::from_str(members.get(member)?.get()).ok()?;
            let name = shown(&own_name)?;
            let others = members.iter().filter(|(name, _)| *name != member);
            let others: Vec<_> = others
                .map(|(name, value)| format!("{}:{}", serde_json::json!(name), value.get()))
                .collect();
            Some(ListedContent {
                source: source.clone(),
                name,
                own_name,
                definition: format!("{{{}}}", others.join(",")).into(),
            })
        };
        let fits = |definition: &&String| definition.len() <= MAX_BYTES;
        let entries: Vec<_> = definitions.iter().filter(fits).filter_map(entry).collect();
        if entries.len() > MAX_ENTRIES {
            warn!(
                upstream = source,
                entries = entries.len(),
                "an upstream server lists more entries than the limit; the rest is not offered"
            );
        }
        entries.into_iter().take(MAX_ENTRIES).collect()
    }
}
