//! Converts the result of a tool to text for a model.

use serde_json::Value;

use crate::mcp_tool::ToolResult;

/// Maximum length of a result's text, in characters, which is about a third of a small model's context window.
const MAX_TEXT: usize = 48_000;

/// Returns the text of a result, or its structured content if it has no text. Other content is only named. Text that is too long
/// is truncated, with a note on how much is missing.
pub(crate) fn result_text(result: &ToolResult) -> String {
    let blocks: Vec<String> = result.content.iter().map(block).collect();
    let has_text = result.content.iter().any(|block| {
        let text = block["text"]
            .as_str()
            .or(block["resource"]["text"].as_str());
        text.is_some_and(|text| !text.trim().is_empty())
    });
    let mut parts: Vec<String> = blocks.into_iter().filter(|text| !text.is_empty()).collect();
    if let Some(structured) = &result.structured
        && !has_text
    {
        // Writing JSON to a string cannot fail.
        parts.push(serde_json::to_string_pretty(structured).unwrap_or_default());
    }
    if parts.is_empty() {
        parts.push("(no content)".to_owned());
    }
    cut(parts.join("\n"))
}

/// Converts a content block (MCP 2026-07-28, `ContentBlock`) to text.
fn block(block: &Value) -> String {
    let member = |name: &str| block[name].as_str().unwrap_or_default();
    match member("type") {
        "text" => member("text").to_owned(),
        kind @ ("image" | "audio") => {
            // Base64 encodes three bytes as four characters.
            let bytes = member("data").len() / 4 * 3;
            format!(
                "[{kind}, {}, about {bytes} bytes, not shown]",
                member("mimeType")
            )
        }
        "resource_link" => format!("[resource {} {}]", member("name"), member("uri")),
        "resource" => {
            let resource = &block["resource"];
            let uri = resource["uri"].as_str().unwrap_or_default();
            match resource["text"].as_str() {
                Some(text) => format!("[resource {uri}]\n{text}"),
                None => format!("[resource {uri}, not shown]"),
            }
        }
        _ => "[content of another kind, not shown]".to_owned(),
    }
}

fn cut(text: String) -> String {
    let Some((at, _)) = text.char_indices().nth(MAX_TEXT) else {
        return text;
    };
    let left_out = text[at..].chars().count();
    format!(
        "{}\n[cut: {left_out} more characters were left out]",
        &text[..at]
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn text(content: &Value, structured: Option<Value>) -> String {
        result_text(&ToolResult {
            content: content.as_array().unwrap().clone(),
            structured,
            is_error: false,
        })
    }

    #[test]
    fn text_comes_before_structured_content_and_never_both() {
        let content = json!([{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }]);
        assert_eq!(text(&content, Some(json!({ "data": [1] }))), "a\nb");
        let empty = json!([{ "type": "text", "text": " " }]);
        assert_eq!(
            text(&json!([]), Some(json!({ "data": [1] }))),
            "{\n  \"data\": [\n    1\n  ]\n}"
        );
        assert!(text(&empty, Some(json!({ "a": 1 }))).contains("\"a\": 1"));
        assert_eq!(text(&json!([]), Some(Value::Null)), "null");
        assert_eq!(text(&json!([]), None), "(no content)");
    }

    #[test]
    fn what_is_no_text_is_named() {
        let shown = text(
            &json!([
                { "type": "image", "mimeType": "image/png", "data": "aaaaaaaa" },
                { "type": "audio", "mimeType": "audio/wav", "data": "aaaa" },
                { "type": "resource_link", "name": "notes", "uri": "file:///notes" },
                { "type": "resource", "resource": { "uri": "file:///a", "text": "inside" } },
                { "type": "resource", "resource": { "uri": "file:///b", "blob": "aaaa" } },
                { "type": "hologram" },
                5,
            ]),
            None,
        );
        assert_eq!(
            shown.lines().collect::<Vec<_>>(),
            [
                "[image, image/png, about 6 bytes, not shown]",
                "[audio, audio/wav, about 3 bytes, not shown]",
                "[resource notes file:///notes]",
                "[resource file:///a]",
                "inside",
                "[resource file:///b, not shown]",
                "[content of another kind, not shown]",
                "[content of another kind, not shown]",
            ]
        );
    }

    #[test]
    fn a_result_that_is_too_long_says_how_much_is_missing() {
        let long = "é".repeat(MAX_TEXT + 7);
        let shown = text(&json!([{ "type": "text", "text": long }]), None);
        assert!(shown.ends_with("é\n[cut: 7 more characters were left out]"));
        assert_eq!(shown.chars().filter(|c| *c == 'é').count(), MAX_TEXT);
        let fits = "é".repeat(MAX_TEXT);
        assert_eq!(text(&json!([{ "type": "text", "text": fits }]), None), fits);
    }
}
