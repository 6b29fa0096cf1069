//! A tool in the gateway's list, and the result of a call.

use serde::Deserialize;
use serde_json::{Map, Value};

/// A tool in the gateway's list. All texts may come from a third party.
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

/// A tool's description of its behaviour (MCP `ToolAnnotations`). The hints are not guaranteed to be true; `MAY_WRITE` in `_meta`
/// contradicts `readOnlyHint`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub(crate) struct ToolHints {
    #[serde(default, rename = "readOnlyHint")]
    pub(crate) read_only: Option<bool>,
}

/// The result of a tool call (MCP 2026-07-28, `CallToolResult`).
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ToolResult {
    pub(crate) content: Vec<Value>,
    /// The structured content: any JSON value, including `null`.
    pub(crate) structured: Option<Value>,
    pub(crate) is_error: bool,
}
