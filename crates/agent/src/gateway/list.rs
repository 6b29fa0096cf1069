//! `tools/list`: fetches all pages of a tool list.

use std::sync::OnceLock;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, json};
use wardgate_edge::{EdgeClient, GatewayRequest};

use super::exchange::exchange;
use super::fault::GatewayError;
use super::{MCP_PATH, TIME_LIMIT};
use crate::clients::GatewayTool;
use crate::functions::offerable;
use crate::mcp_tool::ListedTool;
use crate::request::BearerToken;

/// Maximum number of pages of a list. A longer list is an error.
const MAX_PAGES: usize = 100;

/// Maximum number of tools of a list. A longer list is an error.
const MAX_TOOLS: usize = 10_000;

/// The tools of a caller, in the order in which the gateway lists them.
#[derive(Debug)]
pub(crate) struct ToolList {
    pub(crate) tools: Vec<ListedTool>,
    /// How long the list may be cached. Zero, also the default if the gateway states no duration, forbids caching.
    pub(super) ttl: Duration,
    /// Whether the list is the same for every caller.
    pub(super) is_public: bool,
    offerable: OnceLock<Vec<GatewayTool>>,
}

impl ToolList {
    /// Returns the tools that can be offered to a model, in the form for models. Computed once per list.
    pub(crate) fn offerable(&self) -> &[GatewayTool] {
        self.offerable.get_or_init(|| offerable(&self.tools))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolListPage<'p> {
    #[serde(borrow)]
    tools: Vec<&'p RawValue>,
    #[serde(default)]
    next_cursor: Option<String>,
    #[serde(default)]
    ttl_ms: u64,
    #[serde(default)]
    cache_scope: Option<String>,
}

pub(super) async fn fetch(
    edge: &EdgeClient,
    token: &BearerToken,
    toolset: Option<&str>,
) -> Result<ToolList, GatewayError> {
    let mut list = ToolList {
        tools: Vec::new(),
        ttl: Duration::MAX,
        is_public: true,
        offerable: OnceLock::new(),
    };
    let mut cursor: Option<String> = None;
    for _ in 0..MAX_PAGES {
        let mut params = Map::new();
        if let Some(cursor) = &cursor {
            params.insert("cursor".to_owned(), json!(cursor));
        }
        let request = GatewayRequest {
            path: &path(toolset),
            method: "tools/list",
            name: None,
            params,
            arguments: None,
            meta: &[],
        };
        let result = exchange(edge, token, request, TIME_LIMIT).await?;
        let page: ToolListPage<'_> =
            serde_json::from_str(result.get()).map_err(|_| GatewayError::Unreadable)?;
        for tool in page.tools {
            // An unreadable tool is left out, so that the other tools stay usable.
            match serde_json::from_str(tool.get()) {
                Ok(tool) => list.tools.push(tool),
                Err(error) => tracing::warn!(%error, "a listed tool cannot be read"),
            }
        }
        list.ttl = list.ttl.min(Duration::from_millis(page.ttl_ms));
        list.is_public &= page.cache_scope.as_deref() == Some("public");
        if list.tools.len() > MAX_TOOLS {
            return Err(GatewayError::TooLarge);
        }
        match page.next_cursor {
            None => return Ok(list),
            // A page whose cursor refers to the page itself would repeat forever.
            next if next == cursor => return Err(GatewayError::Unreadable),
            next => cursor = next,
        }
    }
    Err(GatewayError::TooLarge)
}

/// Returns the path that serves the tools of `toolset`, or all tools if it is `None`.
fn path(toolset: Option<&str>) -> String {
    match toolset {
        None => MCP_PATH.to_owned(),
        Some(toolset) => {
            let name: String = url::form_urlencoded::byte_serialize(toolset.as_bytes()).collect();
            format!("{MCP_PATH}/{}", name.replace('+', "%20"))
        }
    }
}
