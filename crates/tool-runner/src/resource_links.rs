//! Rewrites the resource URIs in the output of MCP servers to the URIs that clients know.
//!
//! A value that is not the URI of a resource, or cannot be rewritten, stays as it is.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use wardgate_domain::source_uri;

/// Rewrites the URIs in blocks of content, which are links to resources and embedded resources.
pub(crate) fn in_content(source: &str, blocks: &mut Value) {
    for block in blocks.as_array_mut().into_iter().flatten() {
        in_block(source, block);
    }
}

/// Rewrites the URIs in blocks of content that are given as JSON text. Every other byte stays as it is, and so does
/// text that cannot be parsed.
pub(crate) fn in_content_text(source: &str, blocks: &str) -> String {
    let each: Vec<&RawValue> = serde_json::from_str(blocks).unwrap_or_default();
    let uris = each.into_iter().filter_map(uri_of_block);
    source_uri::outward_in(source, blocks, uris)
}

/// Rewrites the URIs in the messages of a prompt that are given as JSON text.
pub(crate) fn in_messages_text(source: &str, messages: &str) -> String {
    #[derive(Deserialize)]
    struct MessageContent<'a> {
        #[serde(borrow)]
        content: &'a RawValue,
    }
    let each: Vec<&RawValue> = serde_json::from_str(messages).unwrap_or_default();
    let uris = each.into_iter().filter_map(|message| {
        let message: MessageContent<'_> = serde_json::from_str(message.get()).ok()?;
        uri_of_block(message.content)
    });
    source_uri::outward_in(source, messages, uris)
}

/// Rewrites the URIs in the contents of a resource that are given as JSON text.
pub(crate) fn in_contents_text(source: &str, contents: &str) -> String {
    let each: Vec<&RawValue> = serde_json::from_str(contents).unwrap_or_default();
    let uris = each.into_iter().filter_map(uri_of_contents);
    source_uri::outward_in(source, contents, uris)
}

/// Returns the URI in a block of content, or `None` if the block is neither a link to a resource nor an embedded
/// resource.
fn uri_of_block(block: &RawValue) -> Option<&RawValue> {
    #[derive(Deserialize)]
    struct Block<'a> {
        #[serde(borrow, rename = "type")]
        kind: Cow<'a, str>,
        #[serde(borrow, default)]
        uri: Option<&'a RawValue>,
        #[serde(borrow, default)]
        resource: Option<&'a RawValue>,
    }
    let block: Block<'_> = serde_json::from_str(block.get()).ok()?;
    match &*block.kind {
        "resource_link" => block.uri,
        "resource" => uri_of_contents(block.resource?),
        _ => None,
    }
}

fn uri_of_contents(contents: &RawValue) -> Option<&RawValue> {
    #[derive(Deserialize)]
    struct Contents<'a> {
        #[serde(borrow)]
        uri: &'a RawValue,
    }
    let contents: Contents<'_> = serde_json::from_str(contents.get()).ok()?;
    Some(contents.uri)
}

/// Rewrites the URIs in the messages of a prompt.
pub(crate) fn in_messages(source: &str, messages: &mut Value) {
    for message in messages.as_array_mut().into_iter().flatten() {
        if let Some(content) = message.get_mut("content") {
            in_block(source, content);
        }
    }
}

/// Rewrites the URIs in the contents of a resource.
pub(crate) fn in_contents(source: &str, contents: &mut Value) {
    for contents in contents.as_array_mut().into_iter().flatten() {
        at(source, contents, "/uri");
    }
}

fn in_block(source: &str, block: &mut Value) {
    match block["type"].as_str() {
        Some("resource_link") => at(source, block, "/uri"),
        Some("resource") => at(source, block, "/resource/uri"),
        _ => {}
    }
}

fn at(source: &str, value: &mut Value, place: &str) {
    let Some(uri) = value.pointer_mut(place) else {
        return;
    };
    let shown = uri
        .as_str()
        .and_then(|uri| source_uri::outward(source, uri));
    if let Some(shown) = shown {
        *uri = shown.into();
    }
}

#[cfg(test)]
mod tests;
