//! The URIs in what servers give, as clients know them.
//!
//! What is no URI of a resource, or cannot be one, stays as it is.

use serde_json::Value;
use serde_json::value::RawValue;
use wardgate_domain::source_uri;

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

/// In the `_meta` of a tool, of which `definition` is the JSON. Every other byte stays.
pub(crate) fn in_definition(source: &str, definition: &str) -> String {
    let shown = |raw: &RawValue| {
        let uri: String = serde_json::from_str(raw.get()).ok()?;
        source_uri::outward(source, &uri)
    };
    let mut text = definition.to_owned();
    // From the end, so that what is before stays where it is.
    let mut uris = source_uri::app_pages(definition);
    uris.sort_by_key(|raw| std::cmp::Reverse(raw.get().as_ptr()));
    for raw in uris {
        let start = raw.get().as_ptr().addr() - definition.as_ptr().addr();
        if let Some(shown) = shown(raw) {
            let written = Value::from(shown).to_string();
            text.replace_range(start..start + raw.get().len(), &written);
        }
    }
    text
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
    }

    #[test]
    fn the_page_of_a_tool_names_its_source_and_every_other_byte_stays() {
        let definition = r#"{"inputSchema":{"maximum":1.10},"_meta":{ "ui/resourceUri":"ui://p","x":1.0,"ui":{"csp":{"b":1,"a":2},"resourceUri":"ui:\/\/p/m","visibility":["app"]}}}"#;
        let shown = definition
            .replace(r#""ui://p""#, r#""ui://notes/p""#)
            .replace(r#""ui:\/\/p/m""#, r#""ui://notes/p/m""#);
        assert_eq!(in_definition("notes", definition), shown);
        for other in [
            r#"{"a":1.10}"#,
            r#"{"_meta":{"x":1.10}}"#,
            r#"{"_meta":7}"#,
            r#"{"_meta":{"ui":{"resourceUri":7}}}"#,
        ] {
            assert_eq!(in_definition("notes", other), other);
        }
    }
}
