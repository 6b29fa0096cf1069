//! `tools/list`: every page of it.

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

/// A gateway with more is not listed further.
const MAX_PAGES: usize = 100;

/// The same for tools.
const MAX_TOOLS: usize = 10_000;

/// The tools of one caller, in the order of the gateway.
#[derive(Debug)]
pub(crate) struct ToolList {
    pub(crate) tools: Vec<ListedTool>,
    /// How long the list may be used; nothing says for how long, so not at all, is zero.
    pub(super) ttl: Duration,
    /// It is the same for every caller.
    pub(super) is_public: bool,
    offerable: OnceLock<Vec<GatewayTool>>,
}

impl ToolList {
    /// Those that a model can be told of, as it is told; made once for each list.
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
            // One that cannot be read is left out; the others can still be used.
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
            // A page that leads to itself has no end.
            next if next == cursor => return Err(GatewayError::Unreadable),
            next => cursor = next,
        }
    }
    Err(GatewayError::TooLarge)
}

/// Where the tools of `toolset` are, or all of them.
fn path(toolset: Option<&str>) -> String {
    match toolset {
        None => MCP_PATH.to_owned(),
        Some(toolset) => {
            let name: String = url::form_urlencoded::byte_serialize(toolset.as_bytes()).collect();
            format!("{MCP_PATH}/{}", name.replace('+', "%20"))
        }
    }
}
