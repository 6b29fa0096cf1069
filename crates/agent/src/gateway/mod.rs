//! The gateway, as an MCP client sees it (protocol 2026-07-28): each request is one POST with the caller's own token.
//!
//! ```text
//!   list_tools ─▶ tool_cache ─┐
//!   call_tool ────────────────┼─▶ exchange: one request, one answer ─┬─▶ EdgeClient ─▶ axum Router, or HTTP
//!   memory ───────────────────┘   limits, errors                     │
//!                 tool_cache ◀─ streams ◀─ listen: word of changes ◀─┘
//! ```
//!
//! Dropping a future hangs up, and in this version of the protocol that cancels what it asked for.

mod call;
mod exchange;
mod fault;
mod list;
mod listen;
mod streams;
mod tool_cache;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use serde_json::Value;
use url::Url;
use wardgate_domain::AgentRefusal;
use wardgate_edge::{EdgeClient, GatewayRequest};

use crate::Error;
use crate::request::BearerToken;
use tool_cache::ToolCache;

pub(crate) use call::{CallEnding, CallOutcome, ToolCall};
pub(crate) use fault::GatewayError;
pub(crate) use list::ToolList;

/// Where every tool is; below it, the toolsets.
const MCP_PATH: &str = "/mcp";

/// How long anything but a call of a tool may take.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// How the gateway is reached. Cheap to clone; clones share what they remember.
#[derive(Clone)]
pub struct GatewayEndpoint(Arc<Inner>);

struct Inner {
    edge: EdgeClient,
    tools: ToolCache,
}

impl GatewayEndpoint {
    /// A gateway in this process: its router is called without a socket.
    pub fn in_process(router: Router) -> Self {
        Self::through(EdgeClient::router(router))
    }

    /// A gateway elsewhere; `url` is where its paths begin, for example `https://mcp.example.org`.
    /// Its certificate is verified by the authorities of `authority`, a file of PEM, or by the system's.
    pub fn over_http(url: &Url, authority: Option<&Path>) -> Result<Self, Error> {
        let edge = EdgeClient::http(url, "wardgate-agent", authority)?;
        Ok(Self::through(edge))
    }

    fn through(edge: EdgeClient) -> Self {
        Self(Arc::new(Inner {
            edge,
            tools: ToolCache::default(),
        }))
    }

    /// The tools that this caller may see; of `toolset` alone, where one is named. It is asked anew when the gateway
    /// says that they changed, or that the last answer is no longer to be used.
    pub(crate) async fn list_tools(
        &self,
        token: &BearerToken,
        toolset: Option<&str>,
    ) -> Result<Arc<ToolList>, GatewayError> {
        let lookup = self.0.tools.lookup(token, toolset);
        if let Some(list) = self.0.tools.get(&lookup) {
            return Ok(list);
        }
        let list = Arc::new(list::fetch(&self.0.edge, token, toolset).await?);
        self.0.tools.put(&self.0.edge, &lookup, &list);
        Ok(list)
    }

    /// Runs a tool, under one key once. Dropping the future cancels the call, as `cancel` does.
    pub(crate) async fn call_tool(
        &self,
        token: &BearerToken,
        call: &ToolCall<'_>,
    ) -> Result<CallOutcome, GatewayError> {
        call::call(&self.0.edge, token, call).await
    }

    /// Puts on record that a call of `tool` which a model asked for is not made, and why; once for each `key`, an
    /// idempotency key.
    pub(crate) async fn record_refused(
        &self,
        token: &BearerToken,
        tool: &str,
        refusal: AgentRefusal,
        key: &str,
    ) -> Result<(), GatewayError> {
        call::record_refused(&self.0.edge, token, tool, refusal, key).await
    }

    /// A `memory/…` method, and its result.
    pub(crate) async fn memory(
        &self,
        token: &BearerToken,
        method: &str,
        params: Value,
    ) -> Result<Value, GatewayError> {
        let Value::Object(params) = params else {
            return Err(GatewayError::Unreadable);
        };
        let request = GatewayRequest {
            path: MCP_PATH,
            method,
            name: None,
            params,
            arguments: None,
            meta: &[],
        };
        let result = exchange::exchange(&self.0.edge, token, request, TIME_LIMIT).await?;
        serde_json::from_str(result.get()).map_err(|_| GatewayError::Unreadable)
    }
}

impl fmt::Debug for GatewayEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GatewayEndpoint")
            .field(&self.0.edge)
            .finish()
    }
}

#[cfg(test)]
mod tests;
