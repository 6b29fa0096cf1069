//! Translation of resource URIs in what a source returned into the URIs of the source itself.
//!
//! The tool-runner writes the catalogue's URIs for every view, so that its cached results serve all views. In the view of a
//! single server, a URI that names the source becomes again what the source wrote. All other bytes stay unchanged.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use wardgate_domain::source_uri;
use wardgate_json::replace_parts;
use wardgate_mcp_server::{object, text_of};

/// A block of content: a link to a resource, or an embedded resource.
#[derive(Default, Deserialize)]
struct ContentBlock<'a> {
    #[serde(borrow, default)]
    uri: Option<&'a RawValue>,
    #[serde(borrow, default)]
    resource: Option<&'a RawValue>,
}

/// The result of a prompt or resource.
#[derive(Deserialize)]
struct ContentResultMembers<'a> {
    #[serde(borrow, default)]
    messages: Vec<PromptMessageMembers<'a>>,
    #[serde(borrow, default)]
    contents: Vec<&'a RawValue>,
    /// The entries of a directory.
    #[serde(borrow, default)]
    resources: Vec<&'a RawValue>,
    #[serde(borrow, default)]
    skill: Option<&'a RawValue>,
}

/// A skill. `resources` is usually a list of files, but may be a string.
#[derive(Deserialize)]
struct SkillMembers<'a> {
    #[serde(borrow)]
    uri: &'a RawValue,
    #[serde(borrow)]
    resources: &'a RawValue,
}

#[derive(Deserialize)]
struct PromptMessageMembers<'a> {
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
}

/// Translates the URIs in blocks of content, a JSON array.
pub(super) fn in_content<'t>(source: &str, blocks: &'t str) -> Cow<'t, str> {
    let each: Vec<&RawValue> = serde_json::from_str(blocks).unwrap_or_default();
    own(source, blocks, each.into_iter().filter_map(uri_of_block))
}

/// Translates the URIs in the result of a prompt or resource.
pub(super) fn in_result<'t>(source: &str, result: &'t str) -> Cow<'t, str> {
    let Some(given) = object::<ContentResultMembers<'_>>(result) else {
        return result.into();
    };
    let of_messages = given.messages.into_iter();
    let of_messages = of_messages.filter_map(|message| uri_of_block(message.content?));
    let of_contents = given.contents.into_iter().chain(given.resources);
    let of_contents =
        of_contents.filter_map(|contents| object::<ContentBlock<'_>>(contents.get())?.uri);
    let of_skill = given.skill.map(|skill| uris_of_skill(skill.get()));
    let of_skill = of_skill.into_iter().flatten();
    own(
        source,
        result,
        of_messages.chain(of_contents).chain(of_skill),
    )
}

/// Translates the URIs in a skill.
pub(super) fn in_skill<'t>(source: &str, entry: &'t str) -> Cow<'t, str> {
    own(source, entry, uris_of_skill(entry).into_iter())
}

fn uris_of_skill(entry: &str) -> Vec<&RawValue> {
    let Some(SkillMembers { uri, resources }) = object(entry) else {
        return Vec::new();
    };
    let files: Vec<&RawValue> = serde_json::from_str(resources.get()).unwrap_or_default();
    let files = files.into_iter();
    let of_files = files.filter_map(|file| object::<ContentBlock<'_>>(file.get())?.uri);
    [uri].into_iter().chain(of_files).collect()
}

/// Translates the URIs in the definition of a tool.
pub(super) fn in_definition<'t>(source: &str, definition: &'t str) -> Cow<'t, str> {
    let pages = source_uri::app_pages(definition);
    own(source, definition, pages.into_iter())
}

/// Returns the URI of a block that names a resource. A redacted block has none.
fn uri_of_block(block: &RawValue) -> Option<&RawValue> {
    let block: ContentBlock<'_> = object(block.get())?;
    let of_resource = block
        .resource
        .and_then(|resource| object::<ContentBlock<'_>>(resource.get())?.uri);
    of_resource.or(block.uri)
}

/// Returns `text` in which those of its `uris` that name `source` are replaced by the source's own URIs.
fn own<'t>(source: &str, text: &'t str, uris: impl Iterator<Item = &'t RawValue>) -> Cow<'t, str> {
    let edits = uris.filter_map(|raw| {
        let shown = text_of(raw)?;
        let (of, own) = source_uri::inward(&shown)?;
        // A URI that only looks like one of the catalogue's was written by the source itself.
        let is_made = of == source && source_uri::outward(source, &own)? == *shown;
        is_made.then(|| (raw.get(), serde_json::json!(own).to_string()))
    });
    let edits: Vec<_> = edits.collect();
    if edits.is_empty() {
        return text.into();
    }
    replace_parts(text, edits).into()
}
