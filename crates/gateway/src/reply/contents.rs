//! Contents of a result that a version does not know, as text.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::mcp::Version;

/// What is read of one content.
#[derive(Deserialize)]
struct Content<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(default, rename = "mimeType")]
    media_type: Option<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    uri: Option<String>,
}

/// `contents`, a JSON array, for a client of `version`; everything else byte for byte.
pub(super) fn for_version(contents: &str, version: Version) -> Cow<'_, str> {
    let has_links = version.has_structured_content() || !contents.contains("resource_link");
    let has_audio = version.has_audio() || !contents.contains("audio");
    if has_links && has_audio {
        return Cow::Borrowed(contents);
    }
    let Ok(all) = serde_json::from_str::<Vec<&RawValue>>(contents) else {
        return Cow::Borrowed(contents);
    };
    let write = |raw: &&RawValue| match as_text(raw.get(), version) {
        Some(text) => json!({ "type": "text", "text": text }).to_string(),
        None => raw.get().to_owned(),
    };
    let all: Vec<String> = all.iter().map(write).collect();
    Cow::Owned(format!("[{}]", all.join(",")))
}

/// The text that stands for a content; none for one that the version knows.
fn as_text(content: &str, version: Version) -> Option<String> {
    let content: Content<'_> = serde_json::from_str(content).ok()?;
    match &*content.kind {
        "resource_link" if !version.has_structured_content() => {
            let uri = content.uri.unwrap_or_default();
            Some(match content.name {
                Some(name) => format!("{name}: {uri}"),
                None => uri,
            })
        }
        "audio" if !version.has_audio() => {
            let media_type = content.media_type.unwrap_or_else(|| "audio".to_owned());
            Some(format!(
                "[{media_type}: protocol version {version} has no sound]"
            ))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_version_gets_the_contents_it_knows_and_text_for_the_others() {
        let contents = r#"[{"type":"text","text":"audio resource_link 1.10"},{"type":"audio","data":"AAAA","mimeType":"audio/wav"},{"type":"resource_link","name":"plan","uri":"ward://plan"},{"type":"image","data":"", "mimeType":"image/png"}]"#;
        let kinds = |version| {
            let contents: Vec<Value> =
                serde_json::from_str(&for_version(contents, version)).unwrap();
            contents
                .iter()
                .map(|content| content["type"].as_str().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(for_version(contents, Version::V2026_07_28), contents);
        assert_eq!(for_version(contents, Version::V2025_06_18), contents);
        assert_eq!(
            kinds(Version::V2025_03_26),
            ["text", "audio", "text", "image"]
        );
        assert_eq!(
            kinds(Version::V2024_11_05),
            ["text", "text", "text", "image"]
        );
        let oldest = for_version(contents, Version::V2024_11_05);
        assert!(oldest.contains("plan: ward://plan") && oldest.contains("audio/wav"));
        assert!(oldest.contains(r#"{"type":"image","data":"", "mimeType":"image/png"}"#));
        assert!(!oldest.contains("AAAA"));
    }
}
