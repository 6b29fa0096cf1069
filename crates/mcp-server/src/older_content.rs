//! Conversion of results for older protocol versions: tool content, structured content and prompt messages.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use wardgate_json::replace_parts;
use wardgate_mcp::Version;

use crate::envelope::object;

/// The members of a content block that are read.
#[derive(Deserialize)]
struct ContentMembers<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(default, rename = "mimeType")]
    media_type: Option<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    uri: Option<String>,
}

/// Returns the structured content of a tool result, or `None` if the version does not support it or there is none.
pub(crate) fn tool_structured(structured: &str, version: Version) -> Option<&str> {
    let is_object = structured.trim_ascii_start().starts_with('{');
    let is_known = version.is_modern() || (version.has_structured_content() && is_object);
    Some(structured).filter(|_| is_known && !structured.is_empty())
}

/// Returns the content of a tool result, a JSON array. For older clients, a text block repeats the structured content.
pub(crate) fn tool_content<'c>(
    content: &'c str,
    structured: &str,
    version: Version,
) -> Cow<'c, str> {
    let known = in_version(content, version);
    if structured.is_empty() || version.is_modern() || has_text(&known) {
        return known;
    }
    let mirror = json!({ "type": "text", "text": structured });
    let Some(rest) = known.trim_ascii_end().strip_suffix(']') else {
        return known;
    };
    let is_empty = rest.trim_ascii_end().ends_with('[');
    let comma = if is_empty { "" } else { "," };
    format!("{rest}{comma}{mirror}]").into()
}

/// Converts the result of a prompt or a resource, a JSON object.
pub fn convert_content_result(result: &str, version: Version) -> Cow<'_, str> {
    #[derive(Deserialize)]
    struct PromptResult<'a> {
        #[serde(borrow, default)]
        messages: Vec<PromptMessage<'a>>,
    }
    #[derive(Deserialize)]
    struct PromptMessage<'a> {
        #[serde(borrow, default)]
        content: Option<&'a RawValue>,
    }
    if knows_all(result, version) {
        return result.into();
    }
    let Some(given) = object::<PromptResult<'_>>(result) else {
        return result.into();
    };
    let contents = given.messages.iter().filter_map(|message| message.content);
    let edits = contents.filter_map(|content| {
        let known = block(content.get(), version)?;
        Some((content.get(), known))
    });
    let edits: Vec<_> = edits.collect();
    if edits.is_empty() {
        return result.into();
    }
    replace_parts(result, edits).into()
}

/// Converts content blocks, a JSON array.
fn in_version(contents: &str, version: Version) -> Cow<'_, str> {
    if knows_all(contents, version) {
        return contents.into();
    }
    let Ok(all) = serde_json::from_str::<Vec<&RawValue>>(contents) else {
        return contents.into();
    };
    let edits = all.iter().filter_map(|content| {
        let known = block(content.get(), version)?;
        Some((content.get(), known))
    });
    let edits: Vec<_> = edits.collect();
    if edits.is_empty() {
        return contents.into();
    }
    replace_parts(contents, edits).into()
}

/// Returns whether `text` certainly contains nothing that the version lacks. This quick search saves parsing most results.
fn knows_all(text: &str, version: Version) -> bool {
    let has_links = version.has_resource_links() || !text.contains("resource_link");
    let has_audio = version.has_audio() || !text.contains("audio");
    let has_icons = version.has_icons() || !text.contains("icons");
    has_links && has_audio && has_icons
}

/// Returns the replacement for a content block, or `None` if the version supports the block as it is.
fn block(content: &str, version: Version) -> Option<String> {
    if let Some(text) = as_text(content, version) {
        return Some(json!({ "type": "text", "text": text }).to_string());
    }
    if version.has_icons() {
        return None;
    }
    let mut members: BTreeMap<String, &RawValue> = object(content)?;
    members.remove("icons")?;
    serde_json::to_string(&members).ok()
}

/// Returns whether `contents` contain a text block.
fn has_text(contents: &str) -> bool {
    // The tool-runner writes nearly all results in this form.
    if contents.starts_with(r#"[{"type":"text""#) {
        return true;
    }
    let all: Vec<ContentMembers<'_>> = serde_json::from_str(contents).unwrap_or_default();
    all.iter().any(|content| content.kind == "text")
}

/// Returns the text that replaces a content block, or `None` if the version supports the block.
fn as_text(content: &str, version: Version) -> Option<String> {
    let content: ContentMembers<'_> = serde_json::from_str(content).ok()?;
    match &*content.kind {
        "resource_link" if !version.has_resource_links() => {
            let uri = content.uri.unwrap_or_default();
            Some(match content.name {
                Some(name) => format!("{name}: {uri}"),
                None => uri,
            })
        }
        "audio" if !version.has_audio() => {
            let media_type = content.media_type.unwrap_or_else(|| "audio".to_owned());
            Some(format!(
                "[{media_type}: protocol version {version} does not support audio]"
            ))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    const CONTENTS: &str = r#"[{"type":"text","text":"audio resource_link icons 1.10"},{"type":"audio","data":"AAAA","mimeType":"audio/wav"},{"type":"resource_link","name":"plan","uri":"ward://plan","icons":[],"x":1.10},{"type":"image","data":"", "mimeType":"image/png"}]"#;

    #[test]
    fn a_version_gets_the_contents_it_knows_and_text_for_the_others() {
        let kinds = |version| {
            let contents: Vec<Value> =
                serde_json::from_str(&in_version(CONTENTS, version)).unwrap();
            let kinds = contents.iter().map(|content| content["type"].as_str());
            kinds
                .map(|kind| kind.unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        let linked = ["text", "audio", "resource_link", "image"];
        let expected = [
            ["text", "text", "text", "image"],
            ["text", "audio", "text", "image"],
            linked,
            linked,
            linked,
        ];
        assert_eq!(Version::EVERY.map(kinds), expected);
        for version in [Version::V2026_07_28, Version::V2025_11_25] {
            assert_eq!(in_version(CONTENTS, version), CONTENTS);
        }
        let without_icons = in_version(CONTENTS, Version::V2025_06_18);
        assert!(!without_icons.contains(r#""icons":"#) && without_icons.contains(r#""x":1.10"#));
        let oldest = in_version(CONTENTS, Version::V2024_11_05);
        assert!(oldest.contains("plan: ward://plan") && oldest.contains("audio/wav"));
        assert!(oldest.contains(r#"{"type":"image","data":"", "mimeType":"image/png"}"#));
        assert!(!oldest.contains("AAAA"));
    }

    #[test]
    fn messages_of_prompts_hold_what_the_version_knows() {
        let link = r#"{"type":"resource_link","name":"plan","uri":"ward://plan"}"#;
        let of = |content: &str| {
            format!(r#"{{"messages":[{{"role":"user", "content":{content}}}],"x":1.10}}"#)
        };
        let text = of(r#"{"type":"text","text":"plan: ward://plan"}"#);
        let link = of(link);
        let expected = [&text, &text, &link, &link, &link];
        let all = Version::EVERY.map(|version| convert_content_result(&link, version).into_owned());
        assert_eq!(all.each_ref(), expected);
        // The contents of resources are the same in all versions.
        let read = r#"{"contents":[{"uri":"a","text":"resource_link audio icons"}]}"#;
        assert_eq!(
            Version::EVERY.map(|version| convert_content_result(read, version)),
            [read; 5]
        );
    }

    #[test]
    fn structured_content_is_in_the_versions_that_have_it() {
        for (structured, known) in [
            (r#"{"a":1.10}"#, [false, false, true, true, true]),
            ("[1.10]", [false, false, false, false, true]),
            ("null", [false, false, false, false, true]),
            ("", [false; 5]),
        ] {
            let has = Version::EVERY.map(|version| tool_structured(structured, version).is_some());
            assert_eq!(has, known, "{structured}");
        }
    }

    #[test]
    fn what_is_structured_is_a_text_as_well_for_older_clients() {
        let mirror = r#"{"type":"text","text":"[1.10]"}"#;
        let image = r#"{"type":"image","data":"","mimeType":"image/png"}"#;
        for (content, mirrored) in [
            ("[]".to_owned(), format!("[{mirror}]")),
            (format!("[{image} ] "), format!("[{image} ,{mirror}]")),
        ] {
            for version in Version::EVERY {
                let known = tool_content(&content, "[1.10]", version);
                let expected = if version.is_modern() {
                    &content
                } else {
                    &mirrored
                };
                assert_eq!(known, expected.as_str(), "{version}");
                assert_eq!(tool_content(&content, "", version), content);
            }
        }
        for text in [
            r#"[{"type":"text","text":"one point ten"}]"#,
            r#"[{"text":"a","type":"text"}]"#,
        ] {
            assert_eq!(tool_content(text, "[1.10]", Version::V2025_06_18), text);
        }
    }
}
