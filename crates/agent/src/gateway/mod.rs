//! An MCP client of the gateway (protocol 2026-07-28). Each request is a POST with the caller's own token.
//!
//! ```text
//!   list_tools ─▶ tool_cache ─┐
//!   call_tool ────────────────┼─▶ exchange: one request, one answer ─┬─▶ EdgeClient ─▶ axum Router, or HTTP
//!   memory ───────────────────┘   limits, errors                     │
//!                 tool_cache ◀─ streams ◀─ listen: change events ◀───┘
//! ```
//!
//! Dropping a future closes the connection, which in this version of the protocol cancels the request.

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

/// Path of the MCP endpoint with all tools. The toolsets are below it.
const MCP_PATH: &str = "/mcp";

/// Timeout of all requests except tool calls.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// A client of the gateway. Cheap to clone; all clones share one cache of tool lists.
#[derive(Clone)]
pub struct GatewayEndpoint(Arc<Inner>);

struct Inner {
    edge: EdgeClient,
    tools: ToolCache,
}

impl GatewayEndpoint {
    /// Creates a client for a gateway in this process, whose router is called without a socket.
    pub fn in_process(router: Router) -> Self {
        Self::through(EdgeClient::router(router))
    }

    /// Creates a client for a gateway at `url`, which is the base of its paths, for example `https://mcp.example.org`.
    /// The gateway's certificate is verified against `authority`, a PEM file, or against the system's authorities if it is
    /// `None`.
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

    /// Returns the tools that this caller may see, or only those of `toolset`. The list is fetched again when the gateway
    /// reports a change or the cached list has expired.
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
        self.0.tools.insert(&self.0.edge, &lookup, &list);
        Ok(list)
    }

    /// Runs a tool, at most once per idempotency key. Dropping the future cancels the call, and so does `cancel`.
    pub(crate) async fn call_tool(
        &self,
        token: &BearerToken,
        call: &ToolCall<'_>,
    ) -> Result<CallOutcome, GatewayError> {
        call::call(&self.0.edge, token, call).await
    }

    /// Records that a call of `tool` requested by a model is not made, and why. A refusal is recorded once per idempotency
    /// key `key`.
    pub(crate) async fn record_refused(
        &self,
        token: &BearerToken,
        tool: &str,
        refusal: AgentRefusal,
        key: &str,
    ) -> Result<(), GatewayError> {
        call::record_refused(&self.0.edge, token, tool, refusal, key).await
    }

    /// Calls a `memory/…` method and returns its result.
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
