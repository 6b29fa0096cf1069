//! The gateway, as an MCP client sees it.

/// How the gateway is reached.
#[derive(Debug, Clone)]
pub struct Gateway;
