//! The URIs in what servers give, as clients know them.
//!
//! What is no URI of a resource, or cannot be one, stays as it is.

use serde_json::Value;
use wardgate_domain::source_uri;

/// Where MCP Apps name the resource of a tool's page, now and in earlier drafts.
const PAGE: [&str; 2] = ["/ui/resourceUri", "/ui~1resourceUri"];

/// In blocks of content: links to resources, and resources that stand in them.
pub(crate) fn in_content(source: &str, blocks: &mut Value) {
    for block in blocks.as_array_mut().into_iter().flatten() {
        in_block(source, block);
    }
}

/// In the messages of a prompt.
pub(super) fn in_messages(source: &str, messages: &mut Value) {
    for message in messages.as_array_mut().into_iter().flatten() {
        if let Some(content) = message.get_mut("content") {
            in_block(source, content);
        }
    }
}

/// In the contents of a resource.
pub(super) fn in_contents(source: &str, contents: &mut Value) {
    for contents in contents.as_array_mut().into_iter().flatten() {
        at(source, contents, "/uri");
    }
}

/// In the `_meta` of a tool.
pub(crate) fn in_meta(source: &str, meta: &mut Value) {
    for place in PAGE {
        at(source, meta, place);
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
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn links_and_resources_in_content_name_their_source_and_nothing_else_changes() {
        let mut content = json!([
            { "type": "text", "text": "file:///a" },
            { "type": "resource_link", "uri": "file:///a", "name": "a" },
            { "type": "resource", "resource": { "uri": "ui://p/m", "text": "x" } },
            { "type": "resource_link", "uri": "no uri" },
            7,
        ]);
        in_content("notes", &mut content);
        assert_eq!(
            content,
            json!([
                { "type": "text", "text": "file:///a" },
                { "type": "resource_link", "uri": "notes+file:///a", "name": "a" },
                { "type": "resource", "resource": { "uri": "ui://notes/p/m", "text": "x" } },
                { "type": "resource_link", "uri": "no uri" },
                7,
            ])
        );
        let mut meta =
            json!({ "ui": { "resourceUri": "ui://p" }, "ui/resourceUri": "ui://p", "x": 1 });
        in_meta("notes", &mut meta);
        assert_eq!(
            meta,
            json!({ "ui": { "resourceUri": "ui://notes/p" }, "ui/resourceUri": "ui://notes/p", "x": 1 })
        );
    }
}
