//! A tool as the gateway lists it, and what a call of it gives.

use serde::Deserialize;
use serde_json::{Map, Value};

/// A tool as the gateway lists it. All of it may be somebody else's words.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct ListedTool {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) title: Option<String>,
    #[serde(default)]
    pub(crate) description: Option<String>,
    #[serde(rename = "inputSchema")]
    pub(crate) input_schema: Value,
    #[serde(default)]
    pub(crate) annotations: ToolHints,
    #[serde(default, rename = "_meta")]
    pub(crate) meta: Map<String, Value>,
}

/// What a tool says of itself (MCP, `ToolAnnotations`). Hints, no more.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub(crate) struct ToolHints {
    #[serde(default, rename = "readOnlyHint")]
    pub(crate) read_only: Option<bool>,
}

/// A tool's answer (MCP 2026-07-28, `CallToolResult`).
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ToolResult {
    pub(crate) content: Vec<Value>,
    /// May be any JSON, `null` too.
    pub(crate) structured: Option<Value>,
    pub(crate) is_error: bool,
}
