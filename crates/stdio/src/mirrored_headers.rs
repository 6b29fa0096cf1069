//! Arguments that a tool wants mirrored as headers (`x-mcp-header` in its schema), from the most recent list of tools.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use reqwest::header::HeaderMap;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use wardgate_mcp::mirrored_header::{MirroredHeader, of_arguments};

/// Maximum number of tools whose mirrored arguments are kept.
const MOST: usize = 4_096;

/// The mirrored headers, by tool.
#[derive(Debug, Default)]
pub(crate) struct MirroredHeaders(Mutex<HashMap<String, Vec<MirroredHeader>>>);

#[derive(Deserialize)]
struct ListToolsResponse {
    result: ListToolsResult,
}

#[derive(Deserialize)]
struct ListToolsResult {
    tools: Vec<ListedTool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListedTool {
    name: String,
    #[serde(default)]
    input_schema: Value,
}

impl MirroredHeaders {
    /// Updates the headers from the response to `tools/list`.
    pub(crate) fn update_from(&self, answer: &[u8]) {
        let Ok(ListToolsResponse { result }) = serde_json::from_slice(answer) else {
            return;
        };
        let mut by_tool = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for tool in result.tools {
            // An invalid annotation is not reported here, because the gateway reports it.
            let marks = MirroredHeader::of_schema(&tool.input_schema).unwrap_or_default();
            if marks.is_empty() {
                by_tool.remove(&tool.name);
            } else if by_tool.len() < MOST || by_tool.contains_key(&tool.name) {
                by_tool.insert(tool.name, marks);
            }
        }
    }

    /// Adds the mirrored headers of a call of `tool`.
    pub(crate) fn add(&self, tool: &str, arguments: &RawValue, headers: &mut HeaderMap) {
        let by_tool = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(marks) = by_tool.get(tool) else {
            return;
        };
        headers.extend(of_arguments(marks, arguments));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn marked_arguments_are_repeated_until_they_are_listed_without_the_mark() {
        let mirrored_headers = MirroredHeaders::default();
        let headers = |tool: &str, arguments: &str| {
            let mut headers = HeaderMap::new();
            let arguments = RawValue::from_string(arguments.to_owned()).unwrap();
            mirrored_headers.add(tool, &arguments, &mut headers);
            let mut headers: Vec<_> = headers
                .iter()
                .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
                .collect();
            headers.sort();
            headers
        };
        let schema = json!({"properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "size": {"type": "integer", "x-mcp-header": "Size"},
        }});
        let list = |schema: &Value| {
            let answer = json!({"jsonrpc": "2.0", "id": 1, "result": {"tools": [
                {"name": "t", "inputSchema": schema}, {"name": "plain"},
            ]}});
            mirrored_headers.update_from(answer.to_string().as_bytes());
        };
        list(&schema);
        let arguments = r#"{"region":"Zürich","size":1e2}"#;
        assert_eq!(
            headers("t", arguments),
            [
                "mcp-param-region: =?base64?WsO8cmljaA==?=",
                "mcp-param-size: 100",
            ]
        );
        assert!(headers("plain", arguments).is_empty());
        mirrored_headers.update_from(br#"{"id":1,"error":{"code":1,"message":""}}"#);
        assert_eq!(headers("t", r#"{"region":"x"}"#), ["mcp-param-region: x"]);
        list(&json!({}));
        assert!(headers("t", arguments).is_empty());
    }
}
